"""Stage 1: a corpus becomes C*, the texts with the calls that help (paper, section 2).

Work is cut into shards named by their documents and by the configuration that decides their rows, and an engine does
those that are missing: the same command again goes on where it stopped, and given twice at once it shares the work.
Thresholds τ_f are applied to the finished shards, so that another τ_f needs no model.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from toolformer import build, engine
from toolformer.annotation.funnel import log_funnel, rows_skipped
from toolformer.annotation.merge import KeptCall, keep, merge
from toolformer.annotation.shards import (
    CANDIDATES,
    BrokenShard,
    ShardStore,
    acquired,
    into_place,
    write_whole,
)
from toolformer.config import Config, fingerprint
from toolformer.descriptions import describe, model_name
from toolformer.documents.drawing import Draw
from toolformer.errors import UserError
from toolformer.tools.runtime import figures, log_faults
from toolformer.tracking.store import StoreFault

if TYPE_CHECKING:
    from toolformer.tracking import Run, Tracker

log = logging.getLogger(__name__)

FILES = (
    "candidates.parquet",
    "dataset_augmented.parquet",
    "dataset_plain.parquet",
    "documents_without_calls.parquet",
)
RESULTS = (*FILES, "funnel.json")
READ_BY_TRAINING = FILES[1:3]
TEXTS_TO_READ = 5000
"""Texts that had candidates and kept none are held for the reader of candidates: an even sample, drawn by their ids."""
CHARACTERS_TO_READ = 100_000_000
"""Of these texts together."""
ATTEMPTS = 3
"""How often shards that broke between being written and being read are done again."""
ROW_GROUP = 10_000
"""Rows of the results that are written together."""
_CALL = pa.struct(
    [
        ("position", pa.int64()),
        ("tool", pa.string()),
        ("input", pa.string()),
        ("result", pa.string()),
        ("gain", pa.float64()),
    ]
)
DATASET = pa.schema(
    [
        ("text", pa.string()),
        ("calls", pa.list_(_CALL)),
        ("url", pa.string()),
        ("date", pa.string()),
        ("doc_id", pa.string()),
    ]
)


@dataclass(frozen=True)
class Generated:
    """A finished annotation."""

    run_id: str
    folder: Path
    documents: int
    texts: int
    """Texts that kept a call: the rows of C*."""
    funnel: dict[str, dict[str, Any]]


def finished(config: Config) -> str | None:
    """The id of the run that did this annotation, if one did; its results may be gone. Reads the corpus, loads no model."""
    run = build.tracker(config.paths.root, config.tracking).find_finished("generate", _job(config).finger)
    return run.run_id if run else None


def results(tracker: Tracker, run: Run, names: Sequence[str] = RESULTS) -> Path | None:
    """The folder of a run's results; None if they are no longer there.

    Raises:
        UserError: the tracking store does not answer.
    """
    try:
        return [tracker.artifact_path(run, name).parent for name in names][0]
    except StoreFault:
        raise
    except UserError:
        return None


def _job(config: Config, parent: str | None = None, command: str = "") -> _Job:
    """What is to be done, told from any other work by its fingerprints."""
    build.apply_paths(config)
    engine.check(config)
    settings = {key: build.tool_settings(config, key) for key in config.tools}
    # τ_f decides which candidates are kept, not what they are.
    deciding = {
        "seed": config.seed,
        "model": build.model_identity(config.model),
        "lm": asdict(config.lm),
        "tools": {
            key: [{**build.tool_identity(config.tool[key]), "filter_threshold": None}, one.prompt.fill("")]
            for key, one in settings.items()
        },
        "propose": asdict(config.propose),
        "score": asdict(config.score),
        **asdict(config.generate),
    }
    work = Path(config.paths.root) / "generate" / fingerprint("generate", deciding)
    corpus = build.documents(config.corpus)
    plan = {name: len(batch) for name, batch in engine.shards(config, corpus)}
    if not plan:
        raise UserError(
            "corpus: it holds no document with text; give another corpus or corpus.path, or name the field in corpus.text_field"
        )
    thresholds = {key: one.filter_threshold for key, one in settings.items()}
    key = fingerprint("generate", deciding, list(plan), thresholds, config.filter.baseline)
    # The same work under another experiment's name is a run of its own, that finds its shards done.
    finger = fingerprint(key, config.name)
    skipped = corpus.skipped()
    return _Job(
        config, parent, ShardStore(work / "shards"), plan, work / key, thresholds, finger, skipped, command
    )


def generate(config: Config, parent: str | None = None, command: str = "") -> Generated:
    """Annotates the corpus; goes on where an interrupted run with the same configuration stopped."""
    job = _job(config, parent, command)
    lead = job.store.lock(f"run-{job.finger}")
    if not acquired(lead):
        log.info("generate: another process leads this run; this one shares the work")
        engine.annotate(config, job.store, job.plan)
        log.info("generate: every shard is done; waiting for the leading process")
        # It is let go of when that process ends, however it ends; then the run is finished, or ours to finish.
        while not acquired(lead, wait=True):
            pass
    try:
        tracker = build.tracker(config.paths.root, config.tracking)
        done = tracker.find_finished("generate", job.finger)
        folder = results(tracker, done) if done else None
        if done is None or folder is None:
            if done:
                log.warning("generate: the results of run %s are gone; they are made again", done.run_id)
            return _lead(job, tracker)
        log.info("generate: already done by run %s", done.run_id)
        return _load(folder, done.run_id, sum(job.plan.values()))
    finally:
        lead.release()


@dataclass(frozen=True)
class _Job:
    """What is to be done, by this process and any that were started with the same command."""

    config: Config
    parent: str | None
    store: ShardStore
    plan: dict[str, int]
    """The shards' names, each with its number of documents."""
    folder: Path
    """Where the results go."""
    thresholds: dict[str, float]
    finger: str
    skipped: dict[str, int]
    """Rows that reading the corpus left out, by reason."""
    command: str
    """What was typed, for the run's description."""


def _lead(job: _Job, tracker: Tracker) -> Generated:
    """The tracked run: all shards, then the results from them."""
    config, total = job.config, sum(job.plan.values())
    if any(not job.store.is_there(name) for name in job.plan):
        # What cannot work is said before a run is begun.
        from toolformer.loading import check

        check(config.model)
        build.tools(config)
    log.info("generate: %d documents in %d shards", total, len(job.plan))
    model = model_name(config.model)
    facts = {
        "model": model,
        "corpus": config.corpus.source,
        "tools": ", ".join(config.tools),
        "documents": total,
    }
    with tracker.run(
        stage="generate", name=f"generate {model} {config.corpus.source}", fingerprint=job.finger, config=asdict(config),
        tags={"experiment": config.name}, parent=job.parent, description=describe(job.command, facts),
    ) as run:  # fmt: skip

        def on_shard(outcome: engine.Outcome, documents: int, so_far: engine.Work) -> None:
            run.metrics({"shard/documents_per_second": documents / outcome.seconds}, step=so_far.documents)

        for _ in range(ATTEMPTS):
            done = engine.annotate(config, job.store, job.plan, on_shard)
            try:
                funnel = _write(job)
                break
            except BrokenShard as fault:
                log.warning("generate: %s: it is done again", fault)
        else:
            raise UserError(f"{job.store.folder}: shards break as soon as they are written; look at the disk")
        log_funnel(funnel)
        texts = pq.read_metadata(job.folder / "dataset_augmented.parquet").num_rows
        run.metrics(rows_skipped(job.skipped))
        run.metrics(
            {"documents": total, "texts_kept": texts, "calls_kept": sum(f["kept"] for f in funnel.values())}
        )
        if done.documents:
            run.metrics(
                {
                    "documents_per_second": done.documents / done.seconds,
                    "tokens_per_second": done.tokens / done.seconds,
                }
            )
        if (seconds := job.store.seconds(job.plan)) is not None:
            run.metrics({"annotation_seconds": seconds})
        for tool, counts in funnel.items():
            run.metrics({f"{tool}/{name}": value for name, value in counts.items() if isinstance(value, int)})
        if dtype := job.store.begun_with("dtype", None):
            run.tag("dtype", dtype)
        run.metrics(figures(done.tools))
        log_faults(done.tools)
        for file in RESULTS:
            run.artifact(job.folder / file)
        log.info("generate: %d of %d texts kept a call; run %s", texts, total, run.run_id)
        return Generated(run.run_id, job.folder, total, texts, funnel)


def _write(job: _Job) -> dict[str, dict[str, Any]]:
    """The candidates, C*, C, texts without calls and the funnel from finished shards, a shard in memory at a time."""
    folder = job.folder
    funnel: dict[str, dict[str, Any]] = {}
    temporary = [folder / f".{name}.part" for name in FILES]
    lock = job.store.lock(f"write-{folder.name}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A run under another experiment's name may be writing the same bytes.
        while not acquired(lock, wait=True):
            pass
        with (
            Rows(temporary[0], CANDIDATES) as candidates,
            Rows(temporary[1], DATASET) as augmented,
            Rows(temporary[2], DATASET) as plain,
            Rows(temporary[3], DATASET) as without,
        ):
            to_read: Draw[dict[str, Any]] = Draw(TEXTS_TO_READ, CHARACTERS_TO_READ)
            for name, batch in engine.wanted(job.config, job.plan.keys()):
                table = job.store.read(name)
                candidates.add(table.replace_schema_metadata(None))
                dropped: dict[str, Counter[str]] = {}
                kept = keep(table.to_pylist(), job.thresholds, job.config.filter.baseline, dropped)
                _add(funnel, json.loads((table.schema.metadata or {})[b"funnel"]), kept, dropped)
                with_calls = [document for document in batch if document.doc_id in kept]
                rows = [merge(document, kept[document.doc_id]) for document in with_calls]
                augmented.add(pa.Table.from_pylist(rows, schema=DATASET))
                plain.add(
                    pa.Table.from_pylist([merge(document, ()) for document in with_calls], schema=DATASET)
                )
                tried = set(table["doc_id"].to_pylist()) - kept.keys()
                for document in batch:
                    if document.doc_id in tried:
                        to_read.add(document.doc_id, len(document.text), merge(document, ()))
            without.add(pa.Table.from_pylist(to_read.held(), schema=DATASET))
        for name, path in zip(FILES, temporary, strict=True):
            into_place(path, folder / name)
        write_whole(folder / "funnel.json", json.dumps(funnel, indent=1, sort_keys=True).encode())
        return funnel
    except OSError as error:
        raise UserError(
            f"{folder}: cannot write ({error.strerror or error}); finished shards are kept: make room or name another "
            "paths.root, and give the same command again"
        ) from error
    finally:
        for path in temporary:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        lock.release()


class Rows:
    """A Parquet file written in large row groups: the file's own list of them is held in memory by all who open it."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(path, schema)
        self._tables: list[pa.Table] = []
        self._rows = 0

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._flush()
        self._writer.close()

    def add(self, table: pa.Table) -> None:
        # Most shards of a large corpus keep nothing: without their tables, what is held is bounded by the rows.
        if len(table):
            self._tables.append(table)
            self._rows += len(table)
        if self._rows >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._tables:
            self._writer.write_table(pa.concat_tables(self._tables))
        self._tables, self._rows = [], 0


def _add(
    total: dict[str, dict[str, Any]],
    shard: dict[str, dict[str, Any]],
    kept: dict[str, list[KeptCall]],
    dropped: dict[str, Counter[str]],
) -> None:
    """Adds a shard's counts, and how many of its calls were kept, and why the other scored ones were not."""
    calls = Counter(one.tool for of_document in kept.values() for one in of_document)
    for tool, counts in shard.items():
        sums = total.setdefault(tool, {"kept": 0})
        sums["kept"] += calls[tool]
        for name, value in {**counts, "filter_reasons": dict(dropped.get(tool, {}))}.items():
            if isinstance(value, dict):
                sums[name] = dict(Counter(sums.get(name, {})) + Counter(value))
            else:
                sums[name] = sums.get(name, 0) + value


def _load(folder: Path, run_id: str, total: int) -> Generated:
    funnel = json.loads((folder / "funnel.json").read_text())
    texts = pq.read_metadata(folder / "dataset_augmented.parquet").num_rows
    return Generated(run_id, folder, total, texts, funnel)
