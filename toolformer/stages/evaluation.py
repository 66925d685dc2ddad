"""What an evaluation is: its system, its questions, the training that it reads, and the steps that name its results.

Two steps. *Answer* is one system asked anything: its folder holds the answers, which evaluations of further benchmarks
share. *Evaluate* is these questions, put to it and scored.
"""

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from toolformer.benchmarks import PAPER
from toolformer.data import content_hash
from toolformer.decoding import examples
from toolformer.decoding.settings import (
    CALLING,
    SYSTEMS,
    TRAINED_ON,
    TUNED,
    cache_key_fields,
    policy_label,
    with_policy,
)
from toolformer.errors import UserError
from toolformer.results import Results, Run
from toolformer.results.provenance import model_name
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.identity import deciding, model_identity, tool_files
from toolformer.stages.stored_policy import tuned
from toolformer.stages.train import model_folder
from toolformer.stages.versions import VERSIONS
from toolformer.step import Step, settings_of
from toolformer.storage import write_whole

LATEST = "latest"
ANSWERS = "answers.jsonl"
COMPARED = (
    *("system", "model", "training", "chat", "endpoint", "seed", "benchmarks", "wording", "examples"),
    *("decoding.policy", "decoding.k", "decoding.bias", "decoding.threshold", "decoding.by_tool"),
    *("decoding.stand_in", "decoding.name_bias", "evaluation.bootstrap", "evaluation.gold_nats"),
)
"""What evaluations that share a table may differ in: they are its rows, columns and samples."""


@dataclass(frozen=True)
class Evaluation:
    """A configured evaluation."""

    config: Config
    """With the policy that is stored with the model in place of `decoding.policy=tuned`."""
    tasks: list[str]
    trained: Run | None
    """The train run whose model is evaluated."""
    samples: dict[str, list[str]] | list[str] | None
    """The ids of `evaluation.samples`."""
    answers: Step
    step: Step

    @property
    def model(self) -> str:
        """The model's name, or the folder of the trained one."""
        return str(model_folder(self.trained)) if self.trained else self.config.model


def calls(config: Config) -> bool:
    """Whether the system calls tools."""
    chats = config.system == "endpoint" and config.endpoint.api == "chat"
    return (config.system in CALLING or chats) and config.decoding.k > 0


def decoding(config: Config) -> dict[str, Any]:
    """The decoding settings that decide an answer; k is 0 for a system that calls no tools."""
    k = config.decoding.k if calls(config) else 0
    return cache_key_fields({**asdict(config.decoding), "k": k}, config.tools)


def prepare(config: Config, results: Results, command: str = "") -> Evaluation:
    """An evaluation as configured. UserError if there is no such benchmark, train run or file of samples."""
    from toolformer.evaluation import suite

    tasks = possible_tasks(config, suite.task_names(config.benchmarks, config.paths.tasks_dir))
    trained: Run | None = None
    if config.system in TRAINED_ON:
        preferred = preferred_training(config.seed, config.model, command)
        trained = train_run(results, config.checkpoint, TRAINED_ON[config.system], config.name, preferred)
        check_base(trained, config.model, command)
    if config.decoding.policy == TUNED and trained and calls(config):
        config = replace(config, decoding=tuned(config.decoding, model_folder(trained)))
    samples = sample_ids(config.evaluation.samples)
    answers = answering(config, trained)
    return Evaluation(config, tasks, trained, samples, answers, _step(config, tasks, samples, answers))


def possible_tasks(config: Config, tasks: list[str]) -> list[str]:
    """The tasks that the system can do: without a tokenizer, an endpoint's log-probabilities mean nothing.

    UserError if none is left.
    """
    endpoint = config.endpoint
    if config.system != "endpoint" or (endpoint.tokenizer and endpoint.api == "completions"):
        return tasks
    possible = [task for task in tasks if not task.endswith("_perplexity")]
    if not possible:
        raise UserError(
            "benchmarks: no task is left: perplexity of an endpoint needs endpoint.tokenizer, the served model's tokenizer "
            "(a folder or hub name), and endpoint.api=completions"
        )
    return possible


def answering(config: Config, trained: Run | None) -> Step:
    """The system that answers, whatever it is asked."""
    settings = deciding(config, "answer")
    settings["decoding"] = decoding(config)
    inputs: dict[str, Any] = {}
    tools = list(config.tools) if calls(config) else []
    if not tools:
        del settings["tool"]
    else:
        inputs["tools"] = tool_files(config, tools)
    for system in ("chat", "endpoint"):
        if config.system != system:
            del settings[system]
    if config.system == "endpoint":
        del settings["lm"]
    elif trained:
        inputs["training"] = trained.step
        if trained.facts.get("ended_by_max_hours") is not None:  # with more time the same step goes on
            inputs["model"] = trained.facts["model"]
    else:
        inputs["model"] = model_identity(config.model)
    if config.system == "prompted":
        inputs["examples"] = {key: list(examples.of_tool(key, config.tool[key].name)) for key in tools}
    return Step("answer", VERSIONS["answer"], settings, inputs)


def _step(config: Config, tasks: list[str], samples: Any, answers: Step) -> Step:
    from toolformer.evaluation import suite

    settings = {**settings_of(config, "evaluate"), "benchmarks": tasks}
    if config.system != "endpoint":
        del settings["endpoint"]
    inputs: dict[str, Any] = {
        "answers": answers,
        "samples": samples,
        "data": suite.data_state(tasks, config.paths.data_dir, config.paths.root),
        "tasks": suite.user_files(tasks, config.paths.tasks_dir),
    }
    if "heldout_perplexity" in tasks:
        inputs["heldout"] = content_hash(instantiate.corpus(config.heldout, "heldout"))
    return Step("evaluate", VERSIONS["evaluate"], settings, inputs)


def comparison(config: Config) -> str:
    """A hash that evaluations share which may be in one table."""
    data_dir = config.paths.data_dir
    # Tools as configured, for all systems, and data by its place: a machine without a tool's files compares its models too.
    settings = settings_of(config, "evaluate") | deciding(config, "answer")
    inputs = {
        "samples": sample_ids(config.evaluation.samples),
        "data": str(Path(data_dir).expanduser().resolve()) if data_dir else None,
        "heldout": asdict(config.heldout),
        "answer": VERSIONS["answer"],
    }
    return Step("evaluate", VERSIONS["evaluate"], settings, inputs).key(without=COMPARED)


def facts(job: Evaluation) -> dict[str, Any]:
    """What a report has to know of an evaluation besides its metrics."""
    config = job.config
    policy = policy_label(decoding(config))
    known: dict[str, Any] = {
        "system": config.system,
        "policy": policy,
        "k": int(policy) if policy.isdecimal() else None,
        "comparison": comparison(config),
        "wording": config.wording,
    }
    if name := _baseline(config, policy):
        known["baseline"] = name
    return known


def _baseline(config: Config, policy: str) -> str:
    """What a model to compare with is called in reports; empty for the paper's systems."""
    is_served = config.system == "endpoint"
    name = str(config.endpoint.model) if is_served else model_name(config.model)
    if config.system == "chat" or (is_served and config.endpoint.api == "chat"):
        return f"{name}, chat" + ("" if calls(config) else ", no tools")
    if config.system == "prompted":
        return f"{name}, prompted, {f'k = {policy}' if policy.isdecimal() else policy}"
    return name if config.system in ("baseline", "endpoint") else ""


def described(job: Evaluation) -> dict[str, str]:
    """The facts of the run's name and description."""
    config = job.config
    model = job.trained.setting("model", "") if job.trained else config.model
    return {
        "system": SYSTEMS[config.system],
        "model": str(config.endpoint.model) if config.system == "endpoint" else model_name(str(model)),
        "k": policy_label(decoding(config)),
        "benchmarks": ", ".join(job.tasks),
    }


def title(job: Evaluation) -> str:
    """The system, the model, k and the wording, as far as they say something."""
    about, config = described(job), job.config
    k = f"k={about['k']}" if config.system in CALLING else ""
    wording = "" if config.wording == PAPER else f"wording={config.wording}"
    return " ".join(filter(None, (about["system"], about["model"], k, wording)))


# The training that is read


def train_run(
    results: Results, reference: str, data: str, experiment: str | None, preferred: Mapping[str, Any]
) -> Run:
    """The train run that `reference` names: `latest` (as `Results.resolve`) or an id.

    UserError if there is none, or it was trained on other data.
    """
    facts: dict[str, Any] = {"data": data} if reference == LATEST else {}
    run = results.resolve("train", reference, experiment, preferred=preferred, **facts)
    if run.facts.get("data") != data:
        raise UserError(f"checkpoint: run {run.id[:8]} has data={run.facts.get('data')}, not {data}")
    return run


def preferred_training(seed: int, model: str, command: str) -> dict[str, Any]:
    """The settings of the training that `latest` is where there is one: of a model that the command names, and this seed."""
    return ({"model": model} if _names_model(command) else {}) | {"seed": seed}


def _names_model(command: str) -> bool:
    return re.search(r"(^|[ '+])model=", command) is not None


def check_base(run: Run, model: str, command: str) -> None:
    """Refuses a `model=` in the command that is not the model which the train run began with: it would be ignored.

    If the command names no model, any is accepted.
    """
    base = str(run.setting("model", model))
    is_same = Path(base).expanduser().resolve() == Path(model).expanduser().resolve()
    if not is_same and _names_model(command):
        raise UserError(
            f"model={model}: checkpoint {run.id[:8]} was trained from {base}; name one that was trained from {model} "
            f"(checkpoint=RUN; toolformer train model={model} makes it), or leave model= out"
        )


# What is asked


def clocks(config: Config) -> list[str]:
    """The tools, by key, that answer with a day where an example has no date of its own."""
    tools = {key: config.tool[key] for key in config.tools}
    return [key for key, tool in tools.items() if {**tool.implementation, **tool.inference}.get("use_clock")]


def first_day(folder: Path) -> datetime.date:
    """The day on which answers in this folder were first asked for: all of them are of one day."""
    path = folder / "day"
    if not path.exists():
        write_whole(path, f"{datetime.date.today().isoformat()}\n".encode())
    return datetime.date.fromisoformat(path.read_text(encoding="utf-8").strip())


def calling(config: Config) -> Config:
    """The same with calls, whatever the decoding policy."""
    return replace(config, decoding=with_policy(config.decoding, "topk", 1))


def sample_ids(samples: Any) -> dict[str, list[str]] | list[str] | None:
    """`evaluation.samples` as ids: a list, a mapping from benchmark to list, or a file that holds either.

    UserError if there are none.
    """
    if samples is None:
        return None
    content, key = samples, "evaluation.samples"
    try:
        if isinstance(samples, str):
            key = f"{key}: {samples}"
            text = Path(samples).expanduser().read_text(encoding="utf-8").strip()
            content = json.loads(text) if text[:1] in ("[", "{") else [*map(str.strip, text.splitlines())]
        adapter: TypeAdapter[Any] = TypeAdapter(dict[str, list[str | int]] | list[str | int])
        ids = adapter.validate_python(content)
    except ValidationError as error:
        raise UserError(f"{key} must be a list of ids, one by benchmark, or a file of ids") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{key} cannot be read as ids ({error}); name a file, or list the ids") from error
    if not ids:
        raise UserError(f"{key} holds no ids; leave it out (null) for all examples")
    if isinstance(ids, list):
        return _sorted(ids)
    return {task: _sorted(task_ids) for task, task_ids in ids.items()}


def _sorted(ids: Sequence[str | int]) -> list[str]:
    return sorted({str(name) for name in ids} - {""})
