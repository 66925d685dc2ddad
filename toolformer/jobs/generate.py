"""Stage 1: a corpus becomes C*, the texts with the calls that help (paper, section 2).

Two steps. *Annotate* samples, executes and scores calls, in shards of a few documents: any number of processes work on the
missing shards, in any order. *Merge* applies the thresholds τ_f to the finished shards, so that a higher τ_f needs no model.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq

from toolformer.annotation.candidates import scoring_floor
from toolformer.annotation.funnel import log_funnel, rows_skipped
from toolformer.annotation.results import RESULTS, write_heldout, write_results
from toolformer.errors import UserError
from toolformer.jobs import corpora, instantiate
from toolformer.jobs.annotate import HELD_OUT, Annotating, Speed, Texts, annotate
from toolformer.jobs.cluster import check_cluster
from toolformer.jobs.job import Job
from toolformer.results import Folder, Results, Run
from toolformer.results.provenance import git_commit, model_name
from toolformer.tools.runtime import log_faults
from toolformer.tools.runtime import metrics as tool_metrics

log = logging.getLogger(__name__)

_NEEDED = {
    "calendar": ("date", "corpus.url_field, whose address has a day, or corpus.date_field"),
    "article": ("source_id", "it is called source_id"),
}
"""By selector, what of a text it needs besides its words, and how the corpus's field is named."""


class Work:
    """Annotates a corpus, and merges what was annotated."""

    shards: Annotating
    sizes: Mapping[str, int]
    """The number of documents of each shard, by its name."""
    speed: Speed
    processes = 1

    def __init__(self, job: Job, results: Results) -> None:
        self.job, self.config = job, job.config
        folders = map(results.path, job.step.inputs["annotation"])
        self.folders = dict(zip(sorted(self.config.tools), folders, strict=True))
        self.texts = Texts(self.config)
        self.model, self.corpus = model_name(self.config.model), corpora.corpus_name(self.config.corpus)

    @property
    def name(self) -> str:
        return f"generate seed={self.config.sampling_seed}: {self.model}, {self.corpus}, {self.config.name}"

    @property
    def title(self) -> str:
        return f"{self.model} annotates {self.corpus} with calls of {', '.join(self.config.tools)}"

    @property
    def details(self) -> dict[str, object]:
        tools = ", ".join(self.config.tools)
        return {"model": self.model, "corpus": self.corpus, "tools": tools, "documents": self.total}

    @property
    def facts(self) -> dict[str, Any]:
        return {"corpus": self.corpus, "implementations": instantiate.implementations(self.config)}

    @property
    def total(self) -> int:
        """Documents."""
        return sum(self.sizes.values())

    def check(self) -> None:
        check_cluster(self.config.engine)
        instantiate.log_departures(self.config)
        rules = instantiate.keep_rules(self.config)
        self.shards = Annotating(self.config, self.folders, self.texts, rules)
        for key, threshold in rules.thresholds.items():
            floor = scoring_floor({key: threshold}, self.config.score.floor)
            self.shards.stores[key].require_floor(floor)
        self.sizes = self.texts.sizes()
        self._check_fields()
        if self.shards.is_missing(self.sizes.keys()):  # else no model is needed
            self.shards = self.shards.ready()

    def _check_fields(self) -> None:
        """Says which tools can be tried in no text, since none has a date or is an article.

        UserError if no other tool is left, or each is to find a number of examples.
        """
        config = self.config
        for key in config.tools:
            named, fields = _NEEDED.get(config.tool[key].selector, ("", ""))
            if not named or named in self.texts.known or not self.total:
                continue
            reason = (
                f"tool.{key} is tried in texts with a {named}, and none of the corpus's {self.total:,} has one: name its field "
                f"({fields}), or leave {key} out of tools"
            )
            if config.generate.limit_per_tool or len(config.tools) == 1:
                raise UserError(reason)
            log.warning("generate: %s", reason)

    def share(self, folder: Folder | None) -> None:
        """Does the shards that are missing."""
        log.info("generate: %d documents in %d shards", self.total, len(self.sizes))
        if held_out := self.texts.skipped().get(HELD_OUT):
            log.info(
                "generate: %d further documents are held out for perplexity (heldout_share=%g)",
                *(held_out, self.config.heldout_share),
            )

        def on_speed(documents: int, per_second: float) -> None:
            if folder:
                folder.metrics({"shard/documents_per_second": per_second}, step=documents)

        self.speed = annotate(self.shards, self.sizes, on_speed)

    def finish(self, run: Folder) -> None:
        """Applies the thresholds to the finished shards, and logs the result."""
        config, corpus, speed = self.config, self.job.step.inputs["corpus"], self.speed
        if corpora.documents(config) != corpus:
            raise UserError("corpus: its files have changed since this command began; give the command again")
        run.datasets(corpora.dataset(config.corpus, corpus.key(), "annotation", self.total))
        merged = write_results(run.path, self.shards.stores, self.texts, self.shards.rules)
        write_heldout(run.path, self.texts.heldout)
        metrics: dict[str, float] = {
            "documents": self.total,
            "texts_kept": pq.read_metadata(run.path / "dataset_augmented.parquet").num_rows,
            "calls_kept": sum(counts["kept"] for counts in merged.funnel.values()),
            "annotation_seconds": merged.seconds,
            **rows_skipped(self.texts.skipped()),
            **tool_metrics(merged.used),
        }
        if speed.documents:
            metrics["documents_per_second"] = speed.documents / speed.seconds
            metrics["tokens_per_second"] = speed.tokens / speed.seconds
        for tool, counts in merged.funnel.items():
            metrics |= {f"{tool}/{name}": value for name, value in counts.items() if isinstance(value, int)}
        run.metrics(metrics)
        run.add_facts(dtype=" and ".join(sorted(merged.dtypes)))
        log_faults(merged.used)
        _note_commits(run, merged.commits)
        for file in RESULTS:
            run.artifact(run.path / file)

    def log(self, how: str, run: Run) -> None:
        """Logs the result of an annotation."""
        log_funnel(json.loads((run.folder / "funnel.json").read_bytes()))
        log.info(
            "generate: %s, run %s: %.0f of %.0f texts kept a call, %.0f calls in all",
            how, run.id[:8], *(run.metrics[name] for name in ("texts_kept", "documents", "calls_kept")),
        )  # fmt: skip


def _note_commits(run: Folder, commits: Mapping[str, int]) -> None:
    """Records which code made the shards, and says so if it was not this one."""
    run.add_facts(annotated_by=dict(commits))
    if others := {commit: count for commit, count in commits.items() if commit != git_commit()}:
        listed = ", ".join(f"{count} by {commit[:8] or 'unknown'}" for commit, count in others.items())
        log.info("generate: of %d shards, other code made %s", sum(commits.values()), listed)
