"""The step of each stage: pure functions from a configuration to everything that decides a result.

`toolformer run --plan`, `run`, the stages and `explain` all make their steps here. Corpora, tools and benchmark data are
identified by content. A function writes nothing, and looks up no run but those that the configuration names; steps that
are passed to it take their place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from toolformer.annotation.candidates import ToolSampling
from toolformer.credentials import masked
from toolformer.data import Document
from toolformer.data.heldout import split
from toolformer.decoding import examples
from toolformer.decoding.settings import SYSTEMS, Decoding, trained_on
from toolformer.errors import UserError
from toolformer.jobs import instantiate
from toolformer.jobs.config import Config
from toolformer.jobs.samples import Samples, sample_ids
from toolformer.jobs.versions import VERSIONS
from toolformer.results import Results, Run
from toolformer.step import Mark, Step, settings_of
from toolformer.storage import safe_join
from toolformer.tools.identity import deciding, files, model_state, versions
from toolformer.training import distributed

LATEST = "latest"
HELDOUT_LIMIT = 1000
"""Held-out texts that a training measures its perplexity on, at most."""


def annotate(config: Config) -> Step:
    """The step that makes shards of scored calls, whatever their documents."""
    config = replace(config, seed=config.sampling_seed)
    inputs = {
        "model": model_state(config.model),
        "prompts": {key: instantiate.tool_settings(config, key).prompt.fill("") for key in config.tools},
        "tools": _tool_files(config, inference=False),
        "paragraphs": config.corpus.paragraphs,
    }
    return _step("annotate", with_tools(config, config.tools), inputs)


def documents(config: Config, key: str = "corpus") -> Step:
    """The texts of a corpus, `corpus` or `heldout`: what its files hold, and how they are read. Reads no text."""
    instantiate.apply_paths(config)
    settings = settings_of(config, "documents" if key == "corpus" else "heldout").get(key, {})
    source = instantiate.corpus(getattr(config, key), key)
    return Step("documents", VERSIONS["documents"], settings, {"content": source.digest()})


def generate(config: Config) -> Step:
    """The step that makes C* of the configured corpus."""
    inputs: dict[str, Any] = {"annotation": annotate(config), "corpus": documents(config)}
    if config.heldout_share and not config.heldout.source:
        inputs["heldout"] = config.heldout_share
    if config.filter.chance:  # whose draws are by the seed
        inputs["seed"] = config.seed
    return _step("generate", with_tools(config, config.tools), inputs)


def train(config: Config, datasets: Sequence[Step] | None = None) -> Step:
    """The step of a finetuning on these annotations; on those that `dataset` names, if they are left out."""
    if datasets is None:
        datasets = [run.step for run in named_annotations(config)]
    inputs: dict[str, Any] = {
        "model": model_state(config.model),
        "datasets": list(datasets),
    }
    if config.heldout.source:
        inputs["heldout"] = documents(config, "heldout")
    else:
        held_out(datasets)  # which are part of the annotations
    if (deepspeed := config.trainer.deepspeed) is not None:
        inputs["deepspeed"] = (
            deepspeed if deepspeed in distributed.NAMED else distributed.read_config(deepspeed)
        )
    return _step("train", config, inputs)


def held_out(annotations: Sequence[Step]) -> list[str]:
    """What names the documents that these annotations held out of their corpora. UserError if one held out none."""
    for step in annotations:
        if "heldout" not in step.inputs:
            raise UserError(
                f"heldout: generate run {step.key()[:8]} held no text out of its corpus; name held-out texts: corpus@heldout=jsonl "
                "heldout.path=FILE"
            )
    return [_held_out_of(step.inputs["corpus"], step.inputs["heldout"]) for step in annotations]


def _held_out_of(corpus: Step, share: float) -> str:
    return Step("heldout", corpus.version, {"share": share}, {"corpus": corpus}).key()


def split_off(config: Config) -> list[Document]:
    """The documents that are held out of the configured corpus."""
    return [
        document
        for document, is_held_out in split(instantiate.corpus(config.corpus), config.heldout_share)
        if is_held_out
    ]


def answer(config: Config, training: Step | None = None) -> Step:
    """The step of a system's answers, whatever it is asked.

    Args:
        training: the step that made its model; without one the model is `config.model`.
    """
    tools = config.tools if calls_tools(config) else ()
    inputs: dict[str, Any] = {"training": training} if training else {"model": model_state(config.model)}
    if tools:
        inputs["tools"] = _tool_files(config, inference=True)
    if tools and config.system != "toolformer":  # they are shown in this order
        inputs["order"] = list(tools)
    if tools and config.system == "prompted":
        inputs["examples"] = {
            key: examples.of_tool(config.tool[key].implementation, config.tool[key].name or key)
            for key in tools
        }
    return _step("answer", replace(with_tools(config, tools), decoding=effective_decoding(config)), inputs)


def calls_tools(config: Config) -> bool:
    """Whether the configured system calls tools."""
    return SYSTEMS[config.system].calls_tools and config.decoding.k > 0


def effective_decoding(config: Config) -> Decoding:
    """The decoding settings as far as they decide an answer: k is 0 for a system that calls no tools."""
    decoding, tools = config.decoding, config.tools if calls_tools(config) else ()
    by_tool = {key: k for key, k in (decoding.by_tool or {}).items() if key in tools}
    stand_in = {key: tool for key, tool in (decoding.stand_in or {}).items() if {key, tool} <= {*tools}}
    return replace(decoding, k=decoding.k if tools else 0, by_tool=by_tool or None, stand_in=stand_in or None)


def evaluate(config: Config, training: Step | None = None, annotation: Step | None = None) -> Step:
    """The step of an evaluation; of a trained system by this training, or by the one that `checkpoint` names.

    Args:
        annotation: whose held-out texts an untrained system reads; else the one that `dataset` names.

    UserError if there is no such benchmark, train run or file of samples.
    """
    from toolformer.evaluation import suite

    if training is None and (run := named_training(config)):
        training = run.step
    tasks, paths = suite.task_names(config.benchmarks, config.paths.tasks_dir), config.paths
    for task in tasks:  # before hours are spent on what cannot be written
        safe_join(Path(paths.root), f"{task}.parquet")
    inputs: dict[str, Any] = {
        "answers": answer(local_model(config), training),
        "samples": _samples_of(tasks, config),
        "data": suite.data_state(tasks, paths.data_dir, paths.root),
        "tasks": suite.user_files(tasks, paths.tasks_dir),
    }
    if "heldout_perplexity" in tasks:
        if config.heldout.source:
            inputs["heldout"] = documents(config, "heldout")
        elif annotations := [annotation] if annotation else heldout_annotations(config, training):
            inputs["heldout"] = held_out(annotations)
        else:
            inputs["heldout"] = [_held_out_of(documents(config), config.heldout_share)]
    return _step("evaluate", replace(config, benchmarks=tasks), inputs)


def _samples_of(tasks: Collection[str], config: Config) -> Samples:
    """The ids of `evaluation.samples`, of these benchmarks alone: a file may hold those of a whole study."""
    ids = sample_ids(config.evaluation.samples)
    return {task: ids[task] for task in tasks if task in ids} if isinstance(ids, dict) else ids


def explain(config: Config, evaluation: Step | None = None) -> Step:
    """The step that explains an evaluation; the configured one if it is left out."""
    evaluation = evaluation or evaluate(config)
    # The oracle conditions call, with all settings of the tools, whatever the evaluation did.
    calling = answer(calling_config(local_model(config)), evaluation.find("train"))
    decoding = asdict(effective_decoding(config))
    return Step(
        "explain", VERSIONS["explain"], {"decoding": decoding}, {"evaluation": evaluation, "calling": calling}
    )


def calling_config(config: Config) -> Config:
    """The same system where calls start at k = 1."""
    return replace(config, decoding=replace(config.decoding, k=1, by_tool=None))


def report(config: Config) -> Step:
    """The step of a report. It is never done: a report is written again each time."""
    return Step("report", 1, {"name": config.name, "root": config.paths.root})


def heldout_annotations(config: Config, training: Step | None) -> list[Step]:
    """The annotations whose held-out texts an evaluation reads: those of its training, else those that `dataset` names.

    Empty if there is no annotation yet: then the texts come from the configured corpus.
    """
    if training:
        return [*training.find_all("generate")]
    results = instantiate.finished_results(config)
    if config.dataset == LATEST and not results.runs("generate", config.name):
        return []
    return [run.step for run in named_annotations(config)]


# The runs that a configuration names


def named_annotations(config: Config) -> list[Run]:
    """The annotations that `dataset` names. UserError if there is no such one, or one is named twice."""
    results = instantiate.finished_results(config)
    references = config.dataset.split("+")
    seed = config.seed if config.filter.chance else config.sampling_seed  # as `Run.seed` has it
    runs = [results.resolve("generate", reference, config.name, seed) for reference in references]
    if len({run.id for run in runs}) < len(runs):
        raise UserError(f"dataset: {config.dataset} names a run twice; name each annotation once")
    return runs


def named_training(config: Config) -> Run | None:
    """The training that `checkpoint` names, of a system that is trained; None if it names another trainer's model.

    UserError if there is none, it was trained on other data, or from another model than the one that was named.
    """
    data = trained_on(config.system)
    if not data or local_model(config) is not config:
        return None
    reference = LATEST if config.model == LATEST else config.checkpoint
    results, facts = instantiate.finished_results(config), {"data": data} if reference == LATEST else {}
    run = results.resolve("train", reference, config.name, config.seed, **facts)
    if run.facts.get("data") != data:
        raise UserError(f"checkpoint: run {run.id[:8]} has data={run.facts.get('data')}, not {data}")
    base = str(run.setting("model", config.model))
    if config.model in (LATEST, Config().model) or _is_same_path(base, config.model):
        return run
    raise UserError(
        f"model={config.model}: checkpoint {run.id[:8]} was trained from {base}; name one that was trained from {config.model} "
        f"(checkpoint=RUN; toolformer train model={config.model} makes it), or give model={base}"
    )


def local_model(config: Config) -> Config:
    """The configuration whose `model` is the folder of another trainer's model, where `checkpoint` is one."""
    folder = Path(config.checkpoint).expanduser()
    if trained_on(config.system) and (folder / "config.json").is_file():
        return replace(config, model=str(folder))
    return config


def done(results: Results, step: Step, config: Config) -> Run | None:
    """The finished run of a step, if it needs no more work under this configuration and its files are intact."""
    from toolformer.evaluation.metrics import count_faults
    from toolformer.training.checkpoints import damaged_file

    run = results.done(step)
    if run is None or (
        run.stage == "train" and damaged_file(run.folder / str(run.facts.get("model", "model")))
    ):
        return None
    # Answers that met a fault are not kept: the same command asks for them again.
    is_faulty = run.stage == "evaluate" and not config.evaluation.accept_faults and count_faults(run.tasks)
    return None if is_faulty else run


# What the steps are made of


def _step(name: str, config: Config, inputs: dict[str, Any]) -> Step:
    return Step(name, VERSIONS[name], deciding_settings(config, name), inputs)


def deciding_settings(config: Config, step: str, without: type[Mark] | None = None) -> dict[str, Any]:
    """The settings that decide a step's result and differ from their defaults.

    What may be a secret is represented by its hash: arguments of a tool decide its results too, as far as `deciding` says.
    """
    settings = settings_of(config, step, without)
    for tool in settings.get("tool", {}).values():
        base = tool.get("implementation", {})
        tool |= {name: deciding(tool[name], base) for name in ("implementation", "inference") if name in tool}
    hidden: dict[str, Any] = masked(settings, digest=True)
    return hidden


def with_tools(config: Config, tools: Collection[str]) -> Config:
    """The configuration with these tools alone, each with the values that it takes from those of all tools."""
    kept = {}
    for key in tools:
        tool = config.tool[key]
        threshold = config.filter_threshold if tool.filter_threshold is None else tool.filter_threshold
        kept[key] = replace(tool, filter_threshold=threshold)
    return replace(config, tool=kept, tool_default=ToolSampling())


def _tool_files(config: Config, *, inference: bool) -> dict[str, Any]:
    """The versions of the code of the tools in use, and the files that their settings name (of a function: its own file).

    Args:
        inference: also of the arguments that differ at inference, which no annotation reads.
    """
    described: dict[str, Any] = {}
    for key in config.tools:
        base, more = config.tool[key].implementation, config.tool[key].inference if inference else {}
        described[key] = [{**versions(base), **versions(more, base)}, files(base) + files(more, base)]
    return described


def _is_same_path(first: str, second: str) -> bool:
    return Path(first).expanduser().resolve() == Path(second).expanduser().resolve()
