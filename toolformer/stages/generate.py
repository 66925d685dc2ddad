"""Stage 1: a corpus becomes C*, the texts with the calls that help (paper, section 2).

Work is cut into shards named by their documents and by the configuration that decides their rows, and an engine does
those that are missing: the same command again goes on where it stopped, and given twice at once it shares the work.
Thresholds τ_f are applied to the finished shards, so that another τ_f needs no model.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from filelock import FileLock

from toolformer.annotation.candidates import Screen, scoring_floor
from toolformer.annotation.funnel import log_funnel, rows_skipped
from toolformer.annotation.results import RESULTS, check, write_results
from toolformer.annotation.shards import ShardStore
from toolformer.errors import UserError
from toolformer.stages import engine, instantiate
from toolformer.stages.config import Config, fingerprint
from toolformer.stages.identity import model_identity, tool_identity
from toolformer.storage import acquired
from toolformer.tools.runtime import figures, log_faults
from toolformer.tracking import ActiveRun, Run, StoreFault, Tracker
from toolformer.tracking.provenance import describe, model_name
from toolformer.tracking.run import REPLICATE

log = logging.getLogger(__name__)

HEAD_START = 2.0
"""Seconds for which the corpus is read before work begins on what is known of it."""
READ_BY_TRAINING = ("dataset_augmented.parquet", "dataset_plain.parquet")


def finished(config: Config) -> str | None:
    """The id of the run that did this annotation, if one did; its results may be gone, but not damaged.

    Loads no model, writes nothing.
    """
    job, plan = _job(config), engine.Plan(config)
    if not plan.is_complete:
        plan.read()
    tracker = instantiate.tracker(config)
    run = tracker.latest("generate", fingerprint=job.finger(plan.documents))
    return run.run_id if run and tracker.is_intact(run, or_gone=True) else None


def results(tracker: Tracker, run: Run, names: Sequence[str] = RESULTS) -> Path | None:
    """The folder of a run's results; None if one of them is gone or broken. StoreFault if the store does not answer."""
    try:
        paths = [tracker.artifact_path(run, name) for name in names]
        for path in paths:
            check(path)
        return paths[0].parent
    except StoreFault:
        raise
    except (UserError, OSError, ValueError):
        return None


def read_dataset(tracker: Tracker, run: Run, name: str) -> list[dict[str, Any]]:
    """The rows of C* (`dataset_augmented.parquet`) or C (`dataset_plain.parquet`) of a finished annotation.

    UserError if it is gone or damaged.
    """
    path = tracker.artifact_path(run, name)
    try:
        check(path)
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        line = str(error).partition("\n")[0]
        raise UserError(
            f"{path} cannot be read ({line:.200}); give its command again: {run.command}"
        ) from error
    return rows


@dataclass(frozen=True)
class _Job:
    """What is to be done with whatever the corpus holds, by this process and any that were started with the same command."""

    config: Config
    deciding: dict[str, Any]
    """What decides the rows of a shard besides its documents."""
    thresholds: dict[str, float]
    floor: float
    """The lowest τ_f that the losses must serve."""
    store: ShardStore

    def key(self, shards: Iterable[str], **instead: None) -> str:
        """A name for the results from these shards; with `seed=None` the same for every seed."""
        deciding = self.deciding | instead
        return fingerprint("generate", deciding, list(shards), self.thresholds, self.config.filter.baseline)

    def finger(self, shards: Iterable[str]) -> str:
        """The same work under another experiment's name is a run of its own, that finds its shards done."""
        return fingerprint(self.key(shards), self.config.name)


def _job(config: Config) -> _Job:
    instantiate.apply_paths(config)
    engine.check(config)
    settings = {key: instantiate.tool_settings(config, key) for key in config.tools}
    thresholds = {key: tool.filter_threshold for key, tool in settings.items()}
    floor = scoring_floor(thresholds, config.score.floor)
    # τ_f decides which candidates are kept, not what they are.
    tools = {
        key: [{**tool_identity(config.tool[key]), "filter_threshold": None}, tool.prompt.fill("")]
        for key, tool in settings.items()
    }
    deciding = {
        "seed": config.seed,
        "model": model_identity(config.model),
        "lm": asdict(config.lm),
        "tools": tools,
        "propose": asdict(config.propose),
        "score": {"dtype": config.score.dtype},
        **asdict(config.generate),
    }
    if config.score.floor is not None:
        deciding["score"]["floor"] = config.score.floor
    if config.propose.temperature == 1:  # as annotations were named before there was another
        del deciding["propose"]["temperature"]
    if config.corpus.paragraphs != "blank_line":
        deciding["paragraphs"] = config.corpus.paragraphs
    if config.screen != Screen():
        deciding["screen"] = asdict(config.screen)
    work = Path(config.paths.root) / "generate" / fingerprint("generate", deciding)
    return _Job(config, deciding, thresholds, floor, ShardStore(work / "shards"))


def generate(config: Config, parent: str | None = None, command: str = "", swept: str = "") -> Run:
    """Annotates the corpus; goes on where an interrupted run with the same configuration stopped.

    Args:
        parent: the id of the run above it, `command` what was typed, `swept` what tells it from others of its sweep.
    """
    job, plan = _job(config), engine.Plan(config)
    tracker = instantiate.tracker(config)
    if plan.is_complete and (done := _done(job, plan, tracker)):
        return done
    job.store.require_floor(job.floor)
    with plan.reading(job.store), ExitStack() as stack:
        plan.wait(HEAD_START)
        run: ActiveRun | Run | None = None
        lead: FileLock | None = None

        def begin(lock: FileLock) -> ActiveRun | Run:
            stack.callback(lock.release)
            done = _done(job, plan, tracker)
            return done or stack.enter_context(_run(job, plan, tracker, parent, command, swept))

        for work in stack.enter_context(closing(engine.annotate(config, job.store, plan))):
            if plan.is_complete and lead is None:
                lead = job.store.lock(f"run-{job.finger(plan.documents)}")
                if acquired(lead):
                    run = begin(lead)
                else:
                    log.info("generate: another process leads this run; this one shares the work")
            if isinstance(run, Run):
                return run
            if run and work.per_second:
                run.metrics({"shard/documents_per_second": work.per_second}, step=work.documents)
        assert lead
        if run is None:
            log.info("generate: every shard is done; waiting for the leading process")
            # The lock is released when that process ends, however it ends; then the run is finished, or ours to finish.
            while not acquired(lead, wait=True):
                pass
            run = begin(lead)
        if isinstance(run, Run):
            return run
        _results(job, plan, run, work)
        run_id = run.run_id
    return _logged("done", tracker, tracker.get(run_id))


def _done(job: _Job, plan: engine.Plan, tracker: Tracker) -> Run | None:
    """The run that did all of this; None without one, or if its results are gone."""
    run = tracker.latest("generate", fingerprint=job.finger(plan.documents))
    if run and results(tracker, run) is None:
        log.warning("generate: results of run %s are gone or broken; making them again", run.run_id[:8])
        return None
    return run and _logged("already done", tracker, run)


def _logged(how: str, tracker: Tracker, run: Run) -> Run:
    """Logs what an annotation came to, and returns its run."""
    log_funnel(json.loads(tracker.artifact_path(run, "funnel.json").read_bytes()))
    log.info(
        "generate: %s, run %s: %.0f of %.0f texts kept a call, %.0f calls in all",
        how, run.run_id[:8], *(run.metrics[name] for name in ("texts_kept", "documents", "calls_kept")),
    )  # fmt: skip
    return run


def _run(
    job: _Job, plan: engine.Plan, tracker: Tracker, parent: str | None, command: str, swept: str
) -> AbstractContextManager[ActiveRun]:
    """The tracked run, which begins when the plan is complete: its fingerprint names every shard."""
    config = job.config
    log.info("generate: %d documents in %d shards", plan.total, len(plan.documents))
    model, corpus = model_name(config.model), instantiate.corpus_name(config.corpus)
    facts = {"model": model, "corpus": corpus, "tools": ", ".join(config.tools), "documents": plan.total}
    return tracker.run(
        stage="generate", name=f"generate {config.name}: {model} {corpus} {swept}", fingerprint=job.finger(plan.documents),
        config=asdict(config), parent=parent, description=describe(command, facts),
        tags={"experiment": config.name, "corpus": corpus, REPLICATE: job.key(plan.documents, seed=None)},
    )  # fmt: skip


def _results(job: _Job, plan: engine.Plan, run: ActiveRun, done: engine.Work) -> None:
    """Writes and logs the results, once every shard is there."""
    from toolformer.lm.loading import number_format

    digest = hashlib.sha256("".join(plan.documents).encode()).hexdigest()
    run.datasets(instantiate.dataset(job.config.corpus, digest, "annotation", plan.total))
    folder = job.store.folder.parent / job.key(plan.documents)
    baseline = job.config.filter.baseline
    funnel, seconds = write_results(folder, job.store, plan.documents, job.thresholds, baseline)
    metrics: dict[str, float] = {
        "documents": plan.total,
        "texts_kept": pq.read_metadata(folder / "dataset_augmented.parquet").num_rows,
        "calls_kept": sum(counts["kept"] for counts in funnel.values()),
        "annotation_seconds": seconds,
        **rows_skipped(plan.skipped),
        **figures(done.tools),
    }
    if done.documents:
        metrics["documents_per_second"] = done.documents / done.seconds
        metrics["tokens_per_second"] = done.tokens / done.seconds
    for tool, counts in funnel.items():
        metrics |= {f"{tool}/{name}": value for name, value in counts.items() if isinstance(value, int)}
    run.metrics(metrics)
    run.tags({"dtype": number_format(job.config.lm.dtype, job.config.lm.device)})
    log_faults(done.tools)
    for file in RESULTS:
        run.artifact(folder / file)
