"""Stage 1: a corpus becomes C*, the texts with the calls that help (paper, section 2).

Two steps. *Annotate* samples, executes and scores calls, in shards of a few documents: any number of processes work on the
missing shards, in any order. *Merge* applies the thresholds τ_f to the finished shards, so that a higher τ_f needs no model.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from toolformer.annotation.candidates import scoring_floor
from toolformer.annotation.funnel import log_funnel, rows_skipped
from toolformer.annotation.results import HELDOUT, RESULTS, check_complete, write_results
from toolformer.annotation.shards import ShardStore
from toolformer.data import Document
from toolformer.data.parquet import MOST_BYTES, MOST_ROWS, read_table
from toolformer.errors import UserError
from toolformer.jobs import engine, instantiate, steps
from toolformer.jobs.config import Config
from toolformer.jobs.filtering import rules, thresholds
from toolformer.jobs.invocation import DIRECT, Invocation, already_done
from toolformer.results import Folder, Results, Run
from toolformer.results.provenance import model_name
from toolformer.step import Step
from toolformer.tools.runtime import log_faults
from toolformer.tools.runtime import metrics as tool_metrics

log = logging.getLogger(__name__)

HEAD_START = 2.0
"""Seconds for which the corpus is read before annotation begins."""


def read_dataset(results: Results, run: Run, name: str) -> list[dict[str, Any]]:
    """The rows of C* (`dataset_augmented.parquet`) or C (`dataset_plain.parquet`) of a finished annotation.

    UserError if it is gone or damaged.
    """
    path = results.artifact(run, name)
    try:
        check_complete(path)
        # A large annotation has more rows than other results, but no more than its files can hold.
        size = path.stat().st_size
        table = read_table(path, None, max(MOST_ROWS, size // 4), max(MOST_BYTES, 32 * size))
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OSError, ValueError) as error:
        line = str(error).partition("\n")[0]
        raise UserError(
            f"{path} cannot be read ({line:.200}); run its command again: {run.command}"
        ) from error
    return rows


def read_heldout(results: Results, annotations: Sequence[Run]) -> list[Document]:
    """The texts that these annotations held out of their corpora, each once. UserError if they are gone or damaged."""
    rows = [row for run in annotations for row in read_dataset(results, run, HELDOUT)]
    texts = {row["text"]: row["doc_id"] for row in reversed(rows)}
    return [Document(doc_id, text) for text, doc_id in reversed(texts.items())]


def generate(config: Config, invocation: Invocation = DIRECT) -> Run:
    """Annotates the corpus; continues where an interrupted run with the same configuration stopped."""
    engine.check_engine(config.engine)
    rules(config)
    results = instantiate.results(config)
    shard_size = steps.shard_size(config)
    work = _Work(config, results, engine.Plan(config, shard_size), invocation)
    if work.plan.is_complete and (run := results.done(work.step)):
        results.add_name(run, config.name)
        return _logged(already_done(run), run)
    work.store.require_floor(scoring_floor(thresholds(config), config.score.floor))
    work.store.keep_shard_size(shard_size)
    if shard_size != config.generate.shard_size:
        log.info(
            "generate.shard_size: the shards of this annotation have %d documents, and keep them", shard_size
        )
    with work.plan.reading(work.store), ExitStack() as stack:
        work.plan.wait(HEAD_START)
        active: Folder | Run | None = None
        for progress in stack.enter_context(closing(engine.annotate(config, work.store.folder, work.plan))):
            if work.plan.is_complete and active is None:
                active = stack.enter_context(work.opened(wait=False))
            if isinstance(active, Run):
                return _logged(already_done(active), active)
            if active and progress.per_second:
                active.metrics({"shard/documents_per_second": progress.per_second}, step=progress.documents)
        active = active or stack.enter_context(work.opened(wait=True))
        if isinstance(active, Run):
            return _logged("done by another process", active)
        assert active
        _merge(work, active, progress)
    return _logged("done", work.results.get(work.step.key()))


@dataclass(frozen=True)
class _Work:
    """An annotation, shared by all processes that were started with the same command."""

    config: Config
    results: Results
    plan: engine.Plan
    invocation: Invocation

    @property
    def step(self) -> Step:
        """Known when the plan is complete: its key depends on every shard."""
        return steps.generate(self.config, [*self.plan.documents], self.plan.heldout_hash)

    @property
    def store(self) -> ShardStore:
        return ShardStore(self.results.path(steps.annotate(self.config)))

    @contextmanager
    def opened(self, wait: bool) -> Iterator[Folder | Run | None]:
        """The run's folder, as `Results.open`; None while another process has it."""
        model, corpus = model_name(self.config.model), instantiate.corpus_name(self.config.corpus)
        facts = {
            "model": model, "corpus": corpus, "tools": ", ".join(self.config.tools), "documents": self.plan.total
        }  # fmt: skip
        name = f"generate {self.config.name}: {model} {corpus}"
        info = self.invocation.run_info(self.config, name, facts, corpus=corpus)
        with self.results.open(self.step, info, wait) as run:
            if isinstance(run, Folder):
                log.info("generate: %d documents in %d shards", self.plan.total, len(self.plan.documents))
                if held_out := self.plan.skipped.get(engine.HELD_OUT):
                    log.info(
                        "generate: %d further documents are held out for perplexity (heldout_share=%g)",
                        *(held_out, self.config.heldout_share),
                    )
            yield run


def _merge(work: _Work, run: Folder, done: engine.Progress) -> None:
    """Applies the thresholds to the finished shards, and logs what they come to."""
    from toolformer.lm.loading import dtype_name  # PyTorch, which is slow to import

    config, plan = work.config, work.plan
    run.datasets(instantiate.dataset(config.corpus, work.step.inputs["shards"], "annotation", plan.total))
    heldout = plan.heldout or (steps.split_off(config) if plan.heldout_hash else [])
    funnel, seconds, used = write_results(run.path, work.store, plan.documents, rules(config), heldout)
    metrics: dict[str, float] = {
        "documents": plan.total,
        "texts_kept": pq.read_metadata(run.path / "dataset_augmented.parquet").num_rows,
        "calls_kept": sum(counts["kept"] for counts in funnel.values()),
        "annotation_seconds": seconds,
        **rows_skipped(plan.skipped),
        **tool_metrics(used),
    }
    if done.documents:
        metrics["documents_per_second"] = done.documents / done.seconds
        metrics["tokens_per_second"] = done.tokens / done.seconds
    for tool, counts in funnel.items():
        metrics |= {f"{tool}/{name}": value for name, value in counts.items() if isinstance(value, int)}
    run.metrics(metrics)
    run.add_facts(dtype=dtype_name(config.lm.dtype, config.lm.device))
    log_faults(used)
    for file in RESULTS:
        run.artifact(run.path / file)


def _logged(how: str, run: Run) -> Run:
    """Logs the result of an annotation, and returns its run."""
    log_funnel(json.loads((run.folder / "funnel.json").read_bytes()))
    log.info(
        "generate: %s, run %s: %.0f of %.0f texts kept a call, %.0f calls in all",
        how, run.id[:8], *(run.metrics[name] for name in ("texts_kept", "documents", "calls_kept")),
    )  # fmt: skip
    return run
