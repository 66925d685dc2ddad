"""Why an evaluation's answers are right or wrong (the ladder of oracles), and where an annotation's yield is lost.

The ladder decodes the rungs that an evaluation lacks with its own configuration, model and file of answers; an
explanation that is done is not made again.
"""

import datetime
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

import pyarrow.parquet as pq

from toolformer.benchmarks import TASKS_DIR
from toolformer.decoding.recording import AnswerFile
from toolformer.decoding.settings import SYSTEMS, under
from toolformer.errors import UserError
from toolformer.evaluation.ladder.classes import CLASSES, RUNGS
from toolformer.evaluation.ladder.rungs import Ladder, usable
from toolformer.evaluation.suite import Loaded
from toolformer.reporting import annotation_tables, reader
from toolformer.reporting import ladder as tabled
from toolformer.reporting.candidate_stats import misses
from toolformer.reporting.table import Content
from toolformer.stages import evaluate as evaluation
from toolformer.stages import instantiate
from toolformer.stages.config import Config, fingerprint
from toolformer.stages.evaluation_identity import decoding
from toolformer.storage import sha256
from toolformer.tools.runtime import log_faults, usages
from toolformer.tracking import Run, Tracker
from toolformer.results.provenance import describe

log = logging.getLogger(__name__)

LADDER = "ladder"
"""The folder of an explanation's artifacts, and of the code that makes them."""
_OF = "lineage.evaluate_run_id"
_INHERITED = ("system", "decoding.k", "comparison", "lineage.train_run_id", "lineage.dataset_run_id")
"""Tags that the evaluation has too."""


def explain(config: Config, parent: str | None = None, command: str = "", swept: str = "") -> Run:
    """Explains the evaluation that a configuration describes, which is run first where it is missing."""
    _refuse_others(config.system)
    return ladder(config, evaluation.evaluate(config, parent, command, swept), parent, command)


def finished(config: Config) -> str | None:
    """The id of the run that explained this evaluation, if one did."""
    if not (evaluated := evaluation.finished(config)):
        return None
    done = instantiate.tracker(config).done("explain", _fingerprint(evaluated, config))
    return done[0].run_id if done else None


def ladder(config: Config, run: Run, parent: str | None = None, command: str = "") -> Run:
    """Classes the examples of an evaluation, with its own configuration; returns the run that logs them.

    UserError if it has nothing to class, or the data has changed.
    """
    _refuse_others(run.tags.get("system", ""))
    tracker = instantiate.tracker(config)
    key = _fingerprint(run.run_id, config)
    if done := _done(tracker, run, key):
        return done
    # `latest` is another training by now.
    config.checkpoint = run.tags["lineage.train_run_id"]
    config.model = "" if config.model == evaluation.LATEST else config.model
    job = evaluation.prepare(config, tracker, command)
    assert job.trained
    folder = evaluation.model_folder(tracker, job.trained)
    tools = instantiate.tools(config, inference=True)
    samples = _samples(tracker, run)
    with ExitStack() as stack:
        answers = stack.enter_context(AnswerFile(job.folder / evaluation.ANSWERS))
        if answers.waited and (done := _done(tracker, run, key)):
            return done
        ids = {task: [row["id"] for row in rows] for task, rows in samples.items()}
        # The rungs call, whatever the run did.
        calling = replace(config, decoding=under(config.decoding, "topk", 1))
        day = datetime.date.fromisoformat(run.tags["day"]) if "day" in run.tags else None
        asked = replace(evaluation.asks(calling, job, folder, LADDER, list(samples), ids), day=day)
        loaded = asked.load()
        tasks = [task for task in samples if usable(task, tools, loaded.switched_off[task])]
        if not tasks:
            raise UserError(
                f"explain: run {run.run_id[:8]} has no benchmark whose right call is known and tool in use"
            )
        log.info("explain: %s", ", ".join(tasks))
        _check_asked(loaded, {task: samples[task] for task in tasks}, run)
        facts = {"evaluation": run.run_id, "system": SYSTEMS[config.system], "benchmarks": ", ".join(tasks)}
        tags: dict[str, object] = {name: run.tags[name] for name in _INHERITED if name in run.tags}
        tracked = tracker.run(
            stage="explain", name=f"explain {run.name}", fingerprint=key,
            config=asdict(config), tags={"experiment": config.name, **tags, _OF: run.run_id}, parent=parent,
            description=describe(command, facts, [run]),
        )  # fmt: skip
        active = stack.enter_context(tracked)
        decoder = instantiate.decoder(config, str(folder), tools)
        active.tags({"dtype": str(decoder.language_model.dtype).removeprefix("torch.")})
        climbing = Ladder(decoder, lambda decoder, more: asked.lm(decoder, answers, more), day)
        for task in tasks:
            off = loaded.switched_off[task]
            rows = climbing.climb(task, loaded.tasks["tasks"][task], off, samples[task])
            active.metrics({f"{task}/{name}": value for name, value in figures(rows).items()})
            path = job.folder / LADDER / f"{task}.parquet"
            active.artifact(evaluation.written(path, rows), LADDER)
            counts = Counter(row["class"] for row in rows).most_common()
            shown = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in counts)
            log.info("explain: %s: %s", task, shown)
        log_faults(usages(tools))
    return tracker.get(active.run_id)


def _done(tracker: Tracker, run: Run, key: str) -> Run | None:
    """The run that explained an evaluation, if one did and its files are intact."""
    done = next(iter(tracker.done("explain", key)), None)
    if done:
        log.info("explain: run %s already done by run %s", run.run_id[:8], done.run_id)
    return done


def find(tracker: Tracker, reference: str, **tags: str) -> Run:
    """An evaluation or an annotation: a run id, its first characters, `latest` (Toolformer's, with these tags), or
    `latest:generate`."""
    if reference == "latest":
        return tracker.resolve("evaluate", reference, None, False, system="toolformer", **tags)
    if reference == "latest:generate":
        return tracker.resolve("generate", "latest", None, False, **tags)
    stages = {run.stage for run in tracker.all_runs() if run.run_id.startswith(reference)}
    return tracker.resolve("generate" if stages == {"generate"} else "evaluate", reference)


def content(tracker: Tracker, run: Run) -> Content:
    """The tables of an explanation, or of a generate run's lost yield and its nearest misses."""
    if run.stage == "generate":
        annotation = reader.annotation_of(tracker, run)
        tables = [annotation_tables.lost(annotation), annotation_tables.nearest(misses(annotation))]
    else:
        tasks = {name.partition("/")[0] for name in run.metrics if "/" in name}
        tables = [tabled.ladder({task: reader.below(task, run) for task in tasks})]
    about = ", ".join(filter(None, (run.run_id[:8], run.tags.get("dtype"))))
    return Content(f"{run.name} ({about})", tables)


def figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """n, how many examples have each class, and by rung the percent right and of how many."""
    counts = Counter(row["class"] for row in rows)
    found: dict[str, float] = {"n": len(rows), **{f"class/{name}": counts[name] for name in CLASSES}}
    for rung in RUNGS:
        if right := [row[f"{rung}_right"] for row in rows if row[f"{rung}_right"] is not None]:
            found |= {f"rung/{rung}": 100 * sum(right) / len(right), f"rung_n/{rung}": len(right)}
    return found


def _fingerprint(run_id: str, config: Config) -> str:
    code = {file.name: sha256(file) for file in sorted((TASKS_DIR / LADDER).glob("*.py"))}
    return fingerprint("explain", run_id, decoding(config), config.tools, code)


def _refuse_others(system: str) -> None:
    if system != "toolformer":
        raise UserError(f"explain: the ladder needs one of system=toolformer, not {system or 'none'}")


def _samples(tracker: Tracker, run: Run) -> dict[str, list[dict[str, Any]]]:
    """The samples of the benchmarks with scores, by name."""
    files = sorted(tracker.artifact_path(run, evaluation.SAMPLES).glob("*.parquet"))
    return {
        file.stem: pq.read_table(file).to_pylist() for file in files if "score" in pq.read_schema(file).names
    }


def _check_asked(loaded: Loaded, samples: Mapping[str, Sequence[Mapping[str, Any]]], run: Run) -> None:
    for name, rows in samples.items():
        task = loaded.tasks["tasks"][name]
        prompts = {str(doc["id"]): task.doc_to_text(doc) for doc in task.dataset[task.config.test_split]}
        if changed := [row["id"] for row in rows if prompts.get(row["id"]) != row["prompt"]]:
            raise UserError(
                f"explain: {name} {changed[0]} is asked otherwise than in run {run.run_id[:8]}; evaluate again"
            )
