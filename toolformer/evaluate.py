"""Stage 3: benchmarks with one of the systems (paper, section 4).

    model                 M, as it is
    model_cc              M + CC: finetuned on C, the texts without calls
    toolformer_disabled   finetuned on C*, the start token forbidden
    toolformer            finetuned on C*, with its tools
    baseline              any other model, as it is: the paper's larger ones
    endpoint              a model served elsewhere

Tasks, data, samples and tools are checked before a model is loaded. Answers are written down batch by batch, so that
an interrupted evaluation goes on with the missing ones.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer import build, evaluation_faults, registry
from toolformer.config import SYSTEMS, Config, fingerprint
from toolformer.credentials import key_from
from toolformer.descriptions import describe, model_name
from toolformer.errors import UserError
from toolformer.evaluation_files import (
    Ids,
    data_files,
    first_day,
    metadata,
    sample_ids,
    weights,
    write_samples,
)
from toolformer.tools.keys import ANNOTATING, PATIENCE
from toolformer.tools.runtime import figures as tool_figures
from toolformer.tools.runtime import log_faults, usages

if TYPE_CHECKING:
    import datetime

    from toolformer.decoding.answers import AnswerFile
    from toolformer.decoding.recording import RecordingLM
    from toolformer.tools.base import Tool
    from toolformer.tracking import Run, Tracker

log = logging.getLogger(__name__)

TRAINED_ON = {"model_cc": "plain", "toolformer_disabled": "augmented", "toolformer": "augmented"}
SAMPLES = "samples"
LATEST = "latest"


@dataclass(frozen=True)
class Evaluated:
    """A finished evaluation."""

    run_id: str
    metrics: dict[str, float]


def checkpoint(tracker: Tracker, reference: str, data: str) -> tuple[Run, Path]:
    """The train run that `reference` names (`latest`, an id, or `models:/NAME/VERSION`) and its model folder.

    Raises:
        UserError: there is no such run, or its model is gone.
    """
    run = _trained(tracker, reference, data)
    return run, model_folder(tracker, run)


def _trained(tracker: Tracker, reference: str, data: str) -> Run:
    if reference.startswith(registry.SCHEME):
        run = registry.resolve(tracker, reference)
    else:
        run = tracker.resolve("train", reference, data=data)
    if run.tags.get("data") != data:
        raise UserError(
            f"checkpoint: run {run.run_id} was trained with data={run.tags.get('data')}, not data={data}"
        )
    return run


def model_folder(tracker: Tracker, run: Run) -> Path:
    """The model that a train run left.

    Raises:
        UserError: it is gone.
    """
    folder = Path(run.tags.get("model_path", ""))
    if not folder.is_dir():
        # The runs' folder may have been moved as a whole, or the command be given elsewhere.
        folder = tracker.root / "train" / folder.parent.name / folder.name
    if not (folder / "config.json").is_file():
        raise UserError(
            f"checkpoint: the model of train run {run.run_id} is no longer at {folder}; train it again"
        )
    return folder


@dataclass(frozen=True)
class _Job:
    """An evaluation, told from any other by its fingerprint."""

    tasks: list[str]
    ids: Ids | None
    trained: Run | None
    """The train run whose model is evaluated."""
    uses_tools: bool
    decoding: dict[str, Any]
    decides: dict[str, Any]
    """What `identity` says."""
    work: Path
    """Answers are shared by evaluations of other benchmarks with the same system."""
    key: str
    finger: str
    scoring: str
    """Tells the code by which answers are scored."""


def _job(config: Config, tracker: Tracker) -> _Job:
    from benchmarks import own, rules, suite

    tasks = _possible(config, suite.task_names(config.benchmarks, config.paths.tasks_dir))
    ids = sample_ids(config.evaluation.samples)
    trained: Run | None = None
    if config.system in TRAINED_ON:
        # `model` names a checkpoint too: the newest, or one of the registry.
        named = config.model == LATEST or config.model.startswith(registry.SCHEME)
        reference = config.model if named else config.checkpoint
        trained = _trained(tracker, reference, TRAINED_ON[config.system])
    uses_tools = calls(config)
    decides = identity(config, config.model, trained, uses_tools)
    decoding = {**asdict(config.decoding), "k": config.decoding.k if uses_tools else 0}
    del decoding["batch_size"]  # a row's answer is its own, whatever is decoded beside it
    heldout = (
        build.content_hash(build.documents(config.heldout, "heldout"))
        if "heldout_perplexity" in tasks
        else None
    )
    evaluation = {**asdict(config.evaluation), "samples": ids}
    scoring = rules.code()
    # Prompts and scores; answers are shared by prompt, so that under other rules only scoring is done again.
    files = [scoring, rules.task_files(tasks), own.files_of(tasks, config.paths.tasks_dir)]
    wanted = [
        tasks,
        evaluation,
        heldout,
        data_files(config.paths.data_dir, config.paths.root),
        config.seed,
        files,
    ]
    # What an endpoint writes is its own, however its tokens are counted here.
    asked: Any = decides
    given_by: Any = [config.endpoint.url, config.endpoint.model]
    if config.system != "endpoint":
        # As it is written: what `auto` comes to is the machine's affair, and tells answers apart, not evaluations.
        asked = given_by = {**decides, "dtype": f"torch.{config.lm.dtype}"}
    key = fingerprint("evaluate", config.system, asked, decoding, wanted)
    work = Path(config.paths.root) / "evaluate" / fingerprint("answers", config.system, given_by, decoding)
    finger = fingerprint(key, config.name)
    return _Job(tasks, ids, trained, uses_tools, decoding, decides, work, key, finger, fingerprint(scoring))


def calls(config: Config) -> bool:
    """Whether the system calls tools."""
    return config.system == "toolformer" and config.decoding.k > 0


def finished(config: Config) -> str | None:
    """The id of the run that did this evaluation, if one did; its model need not be there any more."""
    build.apply_paths(config)
    tracker = build.tracker(config.paths.root, config.tracking)
    run = _finished(tracker, _job(config, tracker).finger)
    return run.run_id if run else None


def _finished(tracker: Tracker, finger: str) -> Run | None:
    return evaluation_faults.counting(tracker.runs("evaluate", fingerprint=finger))


def evaluate(config: Config, parent: str | None = None, command: str = "") -> Evaluated:
    """Runs the benchmarks; an evaluation that is already there is not run again."""
    from benchmarks import suite
    from benchmarks.figures import figures, speed
    from toolformer.decoding.answers import AnswerFile

    build.apply_paths(config)
    tracker = build.tracker(config.paths.root, config.tracking)
    job = _job(config, tracker)
    tasks, ids, work, decoding = job.tasks, job.ids, job.work, job.decoding
    if done := _done(config, job, tracker):
        return done

    model, decides = config.model, job.decides
    if job.trained:
        # Another run of the same settings trains into the same folder, once it is deleted. An evaluation that is done stays
        # done without its model, so that the weights tell answers apart, not evaluations.
        folder = model_folder(tracker, job.trained)
        model, decides = str(folder), {**decides, "weights": weights(folder)}
    elif config.system != "endpoint":
        from toolformer.loading import check

        check(model)  # before the rows are read, which may take long
    tools = build.tools(config, inference=True) if job.uses_tools else {}
    work.mkdir(parents=True, exist_ok=True)
    loaded = suite.load(tasks, metadata(config, tasks, work / job.key), ids, config.paths.tasks_dir)
    based_on = job.trained.params.get("model", "") if job.trained else config.model
    shown = _baseline(config) or model_name(based_on)
    words = [
        _shown(config),
        "" if _baseline(config) else shown,
        f"k={decoding['k']}" if job.uses_tools else "",
    ]
    facts = {
        "system": SYSTEMS[config.system],
        "model": shown,
        "k": decoding["k"],
        "benchmarks": ", ".join(tasks),
    }
    with ExitStack() as stack:
        answers = stack.enter_context(AnswerFile(work / "answers.jsonl", wait=True))
        if answers.waited and (done := _done(config, job, tracker)):
            return done
        # A wrong key or tokenizer begins no run.
        served = _served(config, answers) if config.system == "endpoint" else None
        # Answers are shared, and so is the day on which they are given where an example has none of its own.
        day = first_day(work) if job.uses_tools and clocks(config) else None
        run = stack.enter_context(
            tracker.run(
                stage="evaluate",
                name=" ".join(word for word in words if word),
                fingerprint=job.finger,
                config=asdict(config),
                tags={**_tags(config, decoding["k"], job.trained, day), "scoring": job.scoring},
                parent=parent,
                description=describe(command, facts, [job.trained]),
            )
        )
        lm = served or _model(config, model, tools, answers, decides, day, loaded.switched_off)
        if language_model := getattr(lm, "language_model", None):
            run.tag("dtype", str(language_model.dtype).removeprefix("torch."))
        results = suite.run(lm, loaded, bootstrap_iters=config.evaluation.bootstrap, seed=config.seed)
        metrics: dict[str, float] = speed([sample for one in results.values() for sample in one.samples])
        names = {config.tool[tool].name: tool for tool in config.tools}
        for task, result in results.items():
            metrics.update({f"{task}/{figure}": value for figure, value in figures(result, names).items()})
            run.artifact(write_samples(work / job.key, task, result), SAMPLES)
        metrics.update(_size(lm))
        used = usages(tools)
        run.metrics({**metrics, **tool_figures(used)})
        log_faults(used)
    log.info("evaluate: %s, run %s", _shown(config), run.run_id)
    if evaluation_faults.met(metrics):
        evaluation_faults.tell(metrics, _finished(tracker, job.finger), command)
    return Evaluated(run.run_id, metrics)


def _done(config: Config, job: _Job, tracker: Tracker) -> Evaluated | None:
    done = _finished(tracker, job.finger)
    if done is None:
        return None
    log.info("evaluate: %s already done by run %s", SYSTEMS[config.system], done.run_id)
    evaluation_faults.tell(done.metrics, done)
    return Evaluated(done.run_id, dict(done.metrics))


def _size(lm: RecordingLM) -> dict[str, float]:
    """The number of parameters, the x axis of Figure 4; an endpoint does not tell."""
    language_model = getattr(lm, "language_model", None)
    return {"parameters": language_model.model.num_parameters()} if language_model else {}


def _shown(config: Config) -> str:
    """The system's name, with the model where the name alone does not say which it is."""
    return " ".join(part for part in (SYSTEMS[config.system], _baseline(config)) if part)


def _baseline(config: Config) -> str:
    """What a model to compare with is called in reports; empty for the paper's systems."""
    if config.system == "baseline":
        return model_name(config.model)
    return str(config.endpoint.model) if config.system == "endpoint" else ""


def _tags(config: Config, k: int, trained: Run | None, day: datetime.date | None) -> dict[str, object]:
    tags: dict[str, object] = {"experiment": config.name, "system": config.system, "decoding.k": k}
    if _baseline(config):
        tags["baseline"] = _baseline(config)
    if day:
        tags["day"] = day.isoformat()
    if trained:
        tags["lineage.train_run_id"] = trained.run_id
        tags["lineage.dataset_run_id"] = trained.tags.get("lineage.dataset_run_id", "")
    return tags


def identity(config: Config, model: str, trained: Run | None, uses_tools: bool) -> dict[str, Any]:
    """What decides an answer besides the question, the decoding and the number format, which the model knows."""
    if config.system == "endpoint":
        endpoint = config.endpoint
        return {"model": [endpoint.url, endpoint.model, endpoint.tokenizer, endpoint.max_length]}
    return {
        # A training that was configured alike may have come to other weights; its run is another one.
        "model": {"train": trained.run_id} if trained else build.model_identity(model),
        "tools": {key: _tool_identity(config, key) for key in config.tools} if uses_tools else {},
    }


def _tool_identity(config: Config, key: str) -> dict[str, Any]:
    told = build.tool_identity(config.tool[key])
    return {name: value for name, value in told.items() if name not in (*ANNOTATING, *PATIENCE)}


def clocks(config: Config) -> list[str]:
    """The tools, by key, that answer with a day where an example has no date of its own."""
    return [
        key
        for key in config.tools
        if {**config.tool[key].implementation, **config.tool[key].inference}.get("use_clock")
    ]


def _possible(config: Config, tasks: list[str]) -> list[str]:
    """The tasks that the system can do: without a tokenizer, an endpoint's log-probabilities mean nothing."""
    if config.system != "endpoint" or config.endpoint.tokenizer:
        return tasks
    left_out = [task for task in tasks if task.endswith("_perplexity")]
    why = "perplexity of an endpoint needs endpoint.tokenizer, the served model's tokenizer (a folder or hub name)"
    if len(left_out) == len(tasks):
        raise UserError(f"benchmarks: nothing is left to do: {why}")
    if left_out:
        log.warning("evaluate: %s left out: %s", " and ".join(left_out), why)
    return [task for task in tasks if task not in left_out]


def _served(config: Config, answers: AnswerFile) -> RecordingLM:
    """An endpoint as lm-eval asks it."""
    from toolformer.decoding.endpoint import Endpoint, EndpointLM

    served = config.endpoint
    assert served.url and served.model  # validated
    try:
        key = key_from(served.key_variable)
    except ValueError as error:
        raise UserError(f"endpoint.key_variable: {error}") from None
    endpoint = Endpoint(
        served.url,
        served.model,
        key,
        served.tokenizer,
        served.concurrency,
        served.timeout,
        served.tries,
        served.max_length,
    )
    return EndpointLM(endpoint, answers)


def _model(
    config: Config,
    model: str,
    tools: Mapping[str, Tool],
    answers: AnswerFile,
    decides: dict[str, Any],
    day: datetime.date | None,
    switched_off: Mapping[str, frozenset[str]],
) -> RecordingLM:
    """A model of this machine as lm-eval asks it."""
    from toolformer.decoding.lm_eval_model import ToolformerLM

    decoder = build.decoder(config, model, tools)
    told = clocks(config) if tools else ()
    return ToolformerLM(decoder, answers, decides, clocks=told, day=day, switched_off=switched_off)
