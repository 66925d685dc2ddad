"""The step of each stage: pure functions from an effective configuration and its sources to everything that decides a result.

Models, corpora, tools and benchmark data are identified by content. A function writes nothing, and looks up no run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolformer.credentials import masked
from toolformer.jobs import heldout, instantiate
from toolformer.jobs.config import Config
from toolformer.jobs.config.effective import keeps_by_chance
from toolformer.jobs.corpora import documents
from toolformer.jobs.job import Sources
from toolformer.jobs.sample_ids import SampleIds, sample_ids
from toolformer.jobs.versions import ORACLES, VERSIONS
from toolformer.step import Step, settings_of
from toolformer.storage import safe_join
from toolformer.tools import examples
from toolformer.tools.identity import identify, model_state
from toolformer.training import distributed


def step_of(stage: str, config: Config, sources: Sources) -> Step:
    """The step of a stage."""
    if stage == "generate":
        return generate(config)
    if stage == "train":
        return train(config, sources)
    if stage == "evaluate":
        return evaluate(config, sources)
    return report(config)


def annotate(config: Config, key: str) -> Step:
    """The step that makes shards of scored calls of a tool, whatever their documents. No other tool counts."""
    config = replace(config, seed=config.sampling_seed, tools=[key], tool={key: config.tool[key]})
    inputs = {
        "model": model_state(config.model),
        "prompts": {key: instantiate.tool_settings(config, key).prompt.fill("")},
        "tools": _tool_files(config, inference=False),
        "paragraphs": config.corpus.paragraphs,
    }
    return _step("annotate", config, inputs)


def generate(config: Config) -> Step:
    """The step that makes C* of the configured corpus."""
    inputs: dict[str, Any] = {
        "annotation": [annotate(config, key) for key in sorted(config.tools)],
        "corpus": documents(config),
    }
    if config.heldout_share and not config.heldout.source:
        inputs["heldout"] = heldout.share(config)
    if keeps_by_chance(config):  # whose draws are by the seed
        inputs["seed"] = config.seed
    return _step("generate", config, inputs)


def train(config: Config, sources: Sources) -> Step:
    """The step of a finetuning. UserError if no text was held out of an annotation, and none are named."""
    inputs: dict[str, Any] = {"model": model_state(sources.model), "datasets": list(sources.annotations)}
    if config.heldout.source:
        heldout.check_files_differ(config)
        inputs["heldout"] = documents(config, "heldout")
    else:
        heldout.digest(config, sources)  # is part of the annotations
    # How the weights are spread over processes decides nothing; a file's own optimizer does.
    if (deepspeed := config.trainer.deepspeed) is not None and (
        optimizer := distributed.read_config(deepspeed).get("optimizer")
    ):
        inputs["optimizer"] = optimizer
    return _step("train", config, inputs)


def answer(config: Config, sources: Sources) -> Step:
    """The step of a system's answers, whatever it is asked."""
    training, tools = sources.training, config.tools
    inputs: dict[str, Any] = {"training": training} if training else {"model": model_state(sources.model)}
    if tools:
        inputs["tools"] = _tool_files(config, inference=True)
    if tools and config.system != "toolformer":  # they are shown in this order
        inputs["order"] = list(tools)
    if tools and config.system == "prompted":
        inputs["examples"] = {
            key: examples.of_tool(config.tool[key].implementation, config.tool[key].name or key)
            for key in tools
        }
    return _step("answer", config, inputs)


def evaluate(config: Config, sources: Sources) -> Step:
    """The step of an evaluation. UserError if there is no such benchmark or file of samples."""
    from toolformer.evaluation import suite

    tasks, paths = task_names(config), config.paths
    for task in tasks:  # before hours are spent on what cannot be written
        safe_join(Path(paths.root), f"{task}.parquet")
    inputs: dict[str, Any] = {
        "answers": answer(config, sources),
        "samples": _samples_of(tasks, config),
        "data": suite.data_state(tasks, paths.data_dir, paths.root),
        "tasks": suite.user_files(tasks, paths.tasks_dir),
    }
    if heldout.TASK in tasks:
        inputs["heldout"] = heldout.digest(config, sources)
    if config.evaluation.oracles:
        inputs["oracles"] = ORACLES
    return _step("evaluate", replace(config, benchmarks=tasks), inputs)


def task_names(config: Config) -> list[str]:
    """The benchmarks of an evaluation, groups resolved. UserError for an unknown one."""
    from toolformer.evaluation import suite

    return suite.task_names(config.benchmarks, config.paths.tasks_dir)


def reads_heldout(config: Config) -> bool:
    """Whether an evaluation measures the perplexity of held-out texts."""
    return heldout.TASK in task_names(config)


def _samples_of(tasks: Collection[str], config: Config) -> SampleIds:
    """The ids of `evaluation.samples`, of these benchmarks alone: a file may hold those of a whole study."""
    ids = sample_ids(config.evaluation.samples)
    return {task: ids[task] for task in tasks if task in ids} if isinstance(ids, dict) else ids


def report(config: Config) -> Step:
    """The step of a report. It is never done: a report is written again each time."""
    return Step("report", 1, {"name": config.name, "root": config.paths.root})


# What the steps are made of


def _step(name: str, config: Config, inputs: dict[str, Any]) -> Step:
    return Step(name, VERSIONS[name], deciding_settings(config, name), inputs)


def deciding_settings(config: Config, step: str) -> dict[str, Any]:
    """The settings that decide a step's result and differ from their defaults.

    What may be a secret is represented by its hash: arguments of a tool decide its results too, as far as its `Identity` says.
    """
    settings = settings_of(config, step)
    for tool in settings.get("tool", {}).values():
        base = tool.get("implementation", {})
        tool |= {
            name: identify(tool[name], base).settings
            for name in ("implementation", "inference")
            if name in tool
        }
    hidden: dict[str, Any] = masked(settings, digest=True)
    return hidden


def _tool_files(config: Config, *, inference: bool) -> dict[str, Any]:
    """The versions of the code of the tools in use, and the files that their settings name (of a function: its own file).

    Args:
        inference: also of the arguments that differ at inference, which no annotation reads.
    """
    described: dict[str, Any] = {}
    for key in config.tools:
        base, more = config.tool[key].implementation, config.tool[key].inference if inference else {}
        first, second = identify(base), identify(more, base)
        described[key] = [{**first.versions, **second.versions}, first.files + second.files]
    return described
