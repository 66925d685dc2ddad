"""Stage 1: a corpus becomes C*, the texts with the calls that help (paper, section 2).

Work is cut into shards named by their documents and by the configuration that decides their rows. A shard is written
whole and then renamed, or is absent: the same command again does only what is missing. Thresholds τ_f are applied to
the finished shards, so that another τ_f needs no model.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from toolformer import build
from toolformer.annotation.funnel import log_funnel, rows_skipped
from toolformer.annotation.merge import KeptCall, keep, merge
from toolformer.config import Config, fingerprint
from toolformer.documents import Document
from toolformer.errors import UserError

log = logging.getLogger(__name__)

CANDIDATES = pa.schema(
    [
        ("doc_id", pa.string()),
        ("tool", pa.string()),
        ("position", pa.int64()),
        ("token_position", pa.int64()),
        ("start_probability", pa.float64()),
        ("sample", pa.int64()),
        ("call", pa.string()),
        ("call_input", pa.string()),
        ("result", pa.string()),
        ("status", pa.string()),
        ("loss_result", pa.float64()),
        ("loss_no_result", pa.float64()),
        ("loss_none", pa.float64()),
        ("gain", pa.float64()),
    ]
)
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


def generate(config: Config, parent: str | None = None) -> Generated:
    """Annotates the corpus; goes on where an interrupted run with the same configuration stopped."""
    build.apply_paths(config)
    settings = {key: build.tool_settings(config, key) for key in config.tools}
    # τ_f decides which candidates are kept, not what they are.
    deciding = {
        "seed": config.seed,
        "model": build.model_identity(config.model),
        "lm": asdict(config.lm),
        "tools": {
            key: [{**asdict(config.tool[key]), "filter_threshold": None}, one.prompt.fill("")]
            for key, one in settings.items()
        },
        "propose": asdict(config.propose),
        "score": asdict(config.score),
        **asdict(config.generate),
    }
    work = Path(config.paths.root) / "generate" / fingerprint("generate", deciding)
    corpus = build.documents(config.corpus)
    names, total = [], 0
    for number, batch in enumerate(_shards(config, corpus)):
        names.append(f"{number:06d}-{build.content_hash(batch)}.parquet")
        total += len(batch)
    if not total:
        raise UserError("corpus: it holds no document with text; give another corpus or corpus.path")
    thresholds = {key: one.filter_threshold for key, one in settings.items()}
    key = fingerprint("generate", deciding, names, thresholds, config.filter.baseline)
    # The same work under another experiment's name is a run of its own, that finds its shards done.
    finger = fingerprint(key, config.name)
    tracker = build.tracker(config.paths.root, config.tracking)
    finished = tracker.find_finished("generate", finger)
    if finished:
        log.info("generate: already done by run %s", finished.run_id)
        return _load(tracker.artifact_path(finished, "candidates.parquet").parent, finished.run_id, total)

    missing = [name for name in names if not (work / "shards" / name).is_file()]
    log.info("generate: %d documents in %d shards, %d shards to do", total, len(names), len(missing))
    with tracker.run(
        stage="generate", name=f"generate {config.corpus.source}", fingerprint=finger, config=asdict(config),
        tags={"experiment": config.name}, parent=parent,
    ) as run:  # fmt: skip
        started = time.monotonic()
        done, tokens = _annotate(config, work / "shards", names, set(missing), total, run)
        seconds = time.monotonic() - started
        folder = work / key
        funnel = _write(config, folder, [work / "shards" / name for name in names], thresholds)
        log_funnel(funnel)
        texts = pq.read_metadata(folder / "dataset_augmented.parquet").num_rows
        run.metrics(
            {"documents": total, "texts_kept": texts, "calls_kept": sum(f["kept"] for f in funnel.values())}
        )
        run.metrics(rows_skipped(corpus.skipped()))
        if done:
            run.metrics({"documents_per_second": done / seconds, "tokens_per_second": tokens / seconds})
        for tool, counts in funnel.items():
            run.metrics({f"{tool}/{name}": value for name, value in counts.items() if isinstance(value, int)})
        for file in (
            "candidates.parquet",
            "dataset_augmented.parquet",
            "dataset_plain.parquet",
            "funnel.json",
        ):
            run.artifact(folder / file)
        log.info("generate: %d of %d texts kept a call; run %s", texts, total, run.run_id)
        return Generated(run.run_id, folder, total, texts, funnel)


def _shards(config: Config, corpus: Iterable[Document] | None = None) -> Iterator[list[Document]]:
    batch: list[Document] = []
    for document in corpus or build.documents(config.corpus):
        batch.append(document)
        if len(batch) == config.generate.shard_size:
            yield batch
            batch = []
    if batch:
        yield batch


def _annotate(
    config: Config, folder: Path, names: Sequence[str], missing: set[str], total: int, run: Any
) -> tuple[int, int]:
    """Annotates the missing shards; returns how many documents and text tokens that were."""
    folder.mkdir(parents=True, exist_ok=True)
    if not missing:
        return 0, 0
    from toolformer.annotation.pipeline import Annotator
    from toolformer.text_generator import load

    annotator = Annotator(
        load(config.model, config.lm.dtype, config.lm.device),
        [build.tool_settings(config, key) for key in config.tools],
        build.tools(config),
        seed=config.seed,
        score_dtype=config.score.dtype,
    )
    done = tokens = 0
    with tqdm(total=total, unit="doc", desc="generate", smoothing=0.1) as bar:
        for name, batch in zip(names, _shards(config), strict=True):
            if name in missing:
                started = time.monotonic()
                annotation = annotator.annotate(batch)
                _write_shard(folder / name, annotation.rows, annotation.funnel)
                done += len(batch)
                tokens += annotation.tokens
                run.metrics(
                    {"shard/documents_per_second": len(batch) / (time.monotonic() - started)}, step=done
                )
            else:
                bar.initial += len(batch)
            bar.update(len(batch))
    return done, tokens


def _write_shard(path: Path, rows: Sequence[dict[str, object]], funnel: dict[str, Any]) -> None:
    metadata = {b"funnel": json.dumps(funnel, sort_keys=True).encode()}
    table = pa.Table.from_pylist(list(rows), schema=CANDIDATES.with_metadata(metadata))
    _whole(path, lambda temporary: pq.write_table(table, temporary))


def _whole(path: Path, write: Any) -> None:
    """Writes a file beside its place and renames it: it is whole or absent."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UserError(
            f"{path.parent}: cannot write {path.name} ({error.strerror or error}); finished shards are kept"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _write(
    config: Config, folder: Path, shards: Sequence[Path], thresholds: dict[str, float]
) -> dict[str, dict[str, Any]]:
    """candidates.parquet, C*, C and the funnel from finished shards, a shard in memory at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    funnel: dict[str, dict[str, Any]] = {}
    files = ("candidates.parquet", "dataset_augmented.parquet", "dataset_plain.parquet")
    temporary = [folder / f".{name}.{os.getpid()}" for name in files]
    try:
        with (
            pq.ParquetWriter(temporary[0], CANDIDATES) as candidates,
            pq.ParquetWriter(temporary[1], DATASET) as augmented,
            pq.ParquetWriter(temporary[2], DATASET) as plain,
        ):
            for path, batch in zip(shards, _shards(config), strict=True):
                table = pq.read_table(path)
                candidates.write_table(table.replace_schema_metadata(None))
                dropped: dict[str, Counter[str]] = {}
                kept = keep(table.to_pylist(), thresholds, config.filter.baseline, dropped)
                _add(funnel, json.loads((table.schema.metadata or {})[b"funnel"]), kept, dropped)
                with_calls = [document for document in batch if document.doc_id in kept]
                rows = [merge(document, kept[document.doc_id]) for document in with_calls]
                augmented.write_table(pa.Table.from_pylist(rows, schema=DATASET))
                plain.write_table(
                    pa.Table.from_pylist([merge(document, ()) for document in with_calls], schema=DATASET)
                )
        for name, path in zip(files, temporary, strict=True):
            path.replace(folder / name)
    except OSError as error:
        raise UserError(
            f"{folder}: cannot write ({error.strerror or error}); finished shards are kept"
        ) from error
    finally:
        for path in temporary:
            path.unlink(missing_ok=True)
    _whole(folder / "funnel.json", lambda path: path.write_text(json.dumps(funnel, indent=1, sort_keys=True)))
    return funnel


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
