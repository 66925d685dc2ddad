"""Why an evaluation's answers are right or wrong (error analysis with oracles), and where an annotation's yield is lost.

The oracle conditions that an evaluation lacks are decoded with its own configuration, model and file of answers; an
explanation that is done is not made again.
"""

import datetime
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq

from toolformer.data.parquet import read_table
from toolformer.decoding.recording import AnswerFile
from toolformer.decoding.settings import SYSTEMS
from toolformer.errors import UserError
from toolformer.evaluation.ladder.classes import CLASSES, RUNGS
from toolformer.evaluation.ladder.rungs import Ladder, usable
from toolformer.evaluation.suite import Loaded
from toolformer.jobs import evaluate as evaluation
from toolformer.jobs import instantiate, steps
from toolformer.jobs.config import Config
from toolformer.jobs.evaluation import ANSWERS, Evaluation, prepare
from toolformer.jobs.invocation import DIRECT, Invocation, already_done
from toolformer.reporting import annotation_tables, reader
from toolformer.reporting import ladder as tabled
from toolformer.reporting.candidate_stats import leaking, misses
from toolformer.reporting.table import Content
from toolformer.results import Folder, Results, Run
from toolformer.tools.base import Tool
from toolformer.tools.runtime import log_faults, usages

log = logging.getLogger(__name__)

LADDER = "ladder"
"""The folder of an explanation's files."""
_INHERITED = ("system", "policy", "k", "comparison", "wording")
"""Facts that are the evaluation's."""


def explain(config: Config, invocation: Invocation = DIRECT) -> Run:
    """Explains the evaluation that a configuration describes, which is run first if it is missing."""
    _check_system(config.system)
    return ladder(config, evaluation.evaluate(config, invocation), invocation)


def ladder(config: Config, run: Run, invocation: Invocation = DIRECT) -> Run:
    """Classes the examples of an evaluation, with its own configuration; returns the run that logs them.

    UserError if it has nothing to class, or the data has changed.
    """
    _check_system(str(run.facts.get("system", "")))
    results = instantiate.results(config)
    step = steps.explain(config, run.step)
    if done := steps.done(results, step, config):
        results.add_name(done, config.name)
        return _logged(run, done)
    # "latest" may name a newer training by now; pin the one that was evaluated.
    checkpoint = run.made_from[0] if run.made_from else config.checkpoint
    config = replace(
        config, checkpoint=checkpoint, model=Config().model if config.model == steps.LATEST else config.model
    )
    job = prepare(config)
    tools = instantiate.tools(config, inference=True)
    answers_folder = results.path(job.system.step)
    with AnswerFile(answers_folder / ANSWERS) as answers:
        oracle_run = _OracleRun(job, run, results, tools, answers)
        inherited = {name: run.facts.get(name) for name in _INHERITED}
        info = invocation.run_info(
            config, f"explain {run.name}", oracle_run.description(), [run], **inherited
        )
        with results.open(step, info) as active:
            if isinstance(active, Run):
                return _logged(run, active)
            assert active
            oracle_run.log(active)
    return results.get(step.key())


class _OracleRun:
    """The oracle conditions of an evaluation's examples."""

    def __init__(
        self, job: Evaluation, run: Run, results: Results, tools: Mapping[str, Tool], answers: AnswerFile
    ) -> None:
        self.job, self.run, self.tools, self.answers = job, run, tools, answers
        samples = _samples(results, run)
        ids = {task: [row["id"] for row in rows] for task, rows in samples.items()}
        day = run.facts.get("day")
        self.day = datetime.date.fromisoformat(day) if day else None
        # The conditions call, whatever the run did.
        questions = evaluation.ask(
            replace(job, system=job.system.calling()),
            results.path(job.system.step),
            results.path(job.system.step) / LADDER,
            list(samples),
            ids,
        )
        self.questions = replace(questions, day=self.day)
        self.loaded = self.questions.load()
        off = self.loaded.switched_off
        self.samples = {task: rows for task, rows in samples.items() if usable(task, tools, off[task])}
        if not self.samples:
            raise UserError(
                f"explain: run {run.id[:8]} has no benchmark whose right call is known and tool in use"
            )
        log.info("explain: %s", ", ".join(self.samples))
        _check_prompts(self.loaded, self.samples, run)

    def description(self) -> dict[str, object]:
        """For the description."""
        system = SYSTEMS[self.job.config.system].title
        return {"evaluation": self.run.id, "system": system, "benchmarks": ", ".join(self.samples)}

    def log(self, active: Folder) -> None:
        """Decodes what is missing, and writes the class of each example."""
        decoder = instantiate.decoder(self.job.config, self.job.system.model, self.tools)
        active.add_facts(dtype=str(decoder.language_model.dtype).removeprefix("torch."))
        oracles = Ladder(
            decoder, lambda decoder, more: self.questions.lm(decoder, self.answers, more), self.day
        )
        for task, samples in self.samples.items():
            off = self.loaded.switched_off[task]
            rows = oracles.climb(task, self.loaded.tasks["tasks"][task], off, samples)
            active.task(task, metrics_of(rows))
            active.artifact(evaluation.write_rows(active.path / LADDER / f"{task}.parquet", rows), LADDER)
            counts = Counter(row["class"] for row in rows).most_common()
            log.info("explain: %s: %s", task, ", ".join(f"{CLASSES[name]} {n}" for name, n in counts))
        log_faults(usages(self.tools))


def _logged(run: Run, done: Run) -> Run:
    log.info("explain: run %s %s, run %s", run.id[:8], already_done(done), done.id)
    return done


def find_evaluation(
    results: Results, reference: str, experiment: str | None = None, seed: int | None = None
) -> Run:
    """An evaluation or an annotation: a run id, its first characters, `latest` (Toolformer's, of this experiment and seed),
    or `latest:generate`."""
    if reference == steps.LATEST:
        return results.resolve("evaluate", reference, experiment, seed, system="toolformer")
    if reference == "latest:generate":
        return results.resolve("generate", steps.LATEST, experiment, seed)
    stages = {run.stage for run in results.all_runs() if run.id.startswith(reference)}
    if not stages and steps.LATEST in reference:
        raise UserError(f"{reference!r} is not a run; give an id, latest or latest:generate")
    run = results.resolve("generate" if stages == {"generate"} else "evaluate", reference)
    if run.stage == "evaluate":
        _check_system(str(run.facts.get("system", "")))
    return run


def explanation_content(results: Results, run: Run) -> Content:
    """The tables of an explanation, or of a generate run's lost yield and its nearest misses."""
    if run.stage == "generate":
        annotation = reader.annotation_of(results, run)
        tables = [annotation_tables.lost(annotation), annotation_tables.nearest(misses(annotation))]
        tables += [annotation_tables.leaking(leaks)] if (leaks := leaking(annotation)) else []
    else:
        tables = [tabled.ladder(run.tasks)]
    details = ", ".join(filter(None, (run.id[:8], str(run.facts.get("dtype", "")))))
    return Content(f"{run.name} ({details})", tables)


def metrics_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """n, how many examples have each class, and by condition the percent right and of how many."""
    counts = Counter(row["class"] for row in rows)
    metrics: dict[str, float] = {"n": len(rows), **{f"class/{name}": counts[name] for name in CLASSES}}
    for rung in RUNGS:
        if right := [row[f"{rung}_right"] for row in rows if row[f"{rung}_right"] is not None]:
            metrics |= {f"rung/{rung}": 100 * sum(right) / len(right), f"rung_n/{rung}": len(right)}
    return metrics


def _check_system(system: str) -> None:
    if system != "toolformer":
        raise UserError(f"explain: the ladder needs one of system=toolformer, not {system or 'none'}")


def _samples(results: Results, run: Run) -> dict[str, list[dict[str, Any]]]:
    """The samples of the benchmarks with scores, by name."""
    files = sorted(results.artifact(run, evaluation.SAMPLES).glob("*.parquet"))
    return {
        file.stem: read_table(file).to_pylist() for file in files if "score" in pq.read_schema(file).names
    }


def _check_prompts(loaded: Loaded, samples: Mapping[str, Sequence[Mapping[str, Any]]], run: Run) -> None:
    for name, rows in samples.items():
        task = loaded.tasks["tasks"][name]
        prompts = {str(doc["id"]): task.doc_to_text(doc) for doc in task.dataset[task.config.test_split]}
        if changed := [row["id"] for row in rows if prompts.get(row["id"]) != row["prompt"]]:
            raise UserError(
                f"explain: the prompt of {name} {changed[0]} has changed since run {run.id[:8]}; evaluate again"
            )
