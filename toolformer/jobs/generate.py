"""Stage 1: a corpus becomes C*, the texts with the calls that help (paper, section 2).

Two steps. *Annotate* samples, executes and scores calls, in shards of a few documents: any number of processes work on the
missing shards, in any order. *Merge* applies the thresholds τ_f to the finished shards, so that a higher τ_f needs no model.
"""

import json
import logging
from collections.abc import Mapping, Sequence
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
from toolformer.jobs import instantiate, steps
from toolformer.jobs.annotate import HELD_OUT, Speed, Texts, annotate
from toolformer.jobs.cluster import check_cluster
from toolformer.jobs.config import Config
from toolformer.jobs.filtering import rules, thresholds
from toolformer.jobs.invocation import DIRECT, Invocation, already_done
from toolformer.results import Folder, Results, Run, RunInfo
from toolformer.results.provenance import model_name
from toolformer.step import Step
from toolformer.tools.runtime import log_faults
from toolformer.tools.runtime import metrics as tool_metrics

log = logging.getLogger(__name__)


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
    if not rows:
        ids = " and ".join(run.id[:8] for run in annotations)
        raise UserError(
            f"heldout: generate run {ids} held no text out of its corpus; name held-out texts: corpus@heldout=jsonl heldout.path=FILE"
        )
    texts = {row["text"]: row["doc_id"] for row in reversed(rows)}
    return [Document(doc_id, text) for text, doc_id in reversed(texts.items())]


def generate(config: Config, invocation: Invocation = DIRECT) -> Run:
    """Annotates the corpus; continues where an interrupted run with the same configuration stopped.

    Equal commands share the work: the first one has the run, and another takes its place if it dies.
    """
    check_cluster(config.engine)
    rules(config)
    results, step = instantiate.results(config), steps.generate(config)
    if done := results.done(step):
        results.add_name(done, config.name)
        return _logged(already_done(done), done)
    instantiate.log_departures(config)
    store = ShardStore(results.path(step.inputs["annotation"]))
    store.require_floor(scoring_floor(thresholds(config), config.score.floor))
    texts = Texts(config)
    sizes = texts.sizes()
    work = _Work(config, step, store, texts, sizes)
    info = work.run_info(invocation)
    for wait in (False, True):
        with results.open(step, info, wait) as run:
            if isinstance(run, Run):
                return _logged(already_done(run) if not wait else "done by another process", run)
            work.do(run)
        if run:
            break
    return _logged("done", results.get(step.key()))


@dataclass(frozen=True)
class _Work:
    """An annotation, shared by all processes that were started with the same command."""

    config: Config
    step: Step
    store: ShardStore
    texts: Texts
    sizes: Mapping[str, int]
    """The number of documents of each shard, by its name."""

    @property
    def total(self) -> int:
        return sum(self.sizes.values())

    def run_info(self, invocation: Invocation) -> RunInfo:
        config = self.config
        model, corpus = model_name(config.model), instantiate.corpus_name(config.corpus)
        facts = {"model": model, "corpus": corpus, "tools": ", ".join(config.tools), "documents": self.total}
        name = f"generate {config.name}: {model} {corpus}"
        return invocation.run_info(config, name, facts, corpus=corpus)

    def do(self, run: Folder | None) -> None:
        """Does the missing shards, and merges all if the run's folder is ours."""
        log.info("generate: %d documents in %d shards", self.total, len(self.sizes))
        if held_out := self.texts.skipped().get(HELD_OUT):
            log.info(
                "generate: %d further documents are held out for perplexity (heldout_share=%g)",
                *(held_out, self.config.heldout_share),
            )

        def on_speed(documents: int, per_second: float) -> None:
            if run:
                run.metrics({"shard/documents_per_second": per_second}, step=documents)

        speed = annotate(self.config, self.store.folder, self.texts, self.sizes, on_speed)
        if run:
            self._merge(run, speed)

    def _merge(self, run: Folder, speed: Speed) -> None:
        """Applies the thresholds to the finished shards, and logs the result."""
        from toolformer.lm.loading import dtype_name  # PyTorch, which is slow to import

        config, corpus = self.config, self.step.inputs["corpus"]
        if steps.documents(config) != corpus:
            raise UserError("corpus: its files have changed since this command began; give the command again")
        run.datasets(instantiate.dataset(config.corpus, corpus.key(), "annotation", self.total))
        funnel, seconds, used = write_results(
            run.path, self.store, self.sizes, rules(config), self.texts.heldout
        )
        metrics: dict[str, float] = {
            "documents": self.total,
            "texts_kept": pq.read_metadata(run.path / "dataset_augmented.parquet").num_rows,
            "calls_kept": sum(counts["kept"] for counts in funnel.values()),
            "annotation_seconds": seconds,
            **rows_skipped(self.texts.skipped()),
            **tool_metrics(used),
        }
        if speed.documents:
            metrics["documents_per_second"] = speed.documents / speed.seconds
            metrics["tokens_per_second"] = speed.tokens / speed.seconds
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
