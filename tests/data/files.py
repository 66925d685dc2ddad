"""Files of texts as the tests write and read them."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toolformer.stages import instantiate
from toolformer.stages.config import compose, validate

ROWS = [
    {"text": f"Text {n} of the corpus.", "url": f"https://example.org/2020/08/{n % 28 + 1:02d}/{n}"}
    for n in range(300)
]


def lines(rows: Sequence[object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def zstandard(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


PACKED = {"c.jsonl": lambda data: data, "c.jsonl.gz": gzip.compress, "c.jsonl.zst": zstandard}


def texts(corpus: Any) -> list[str]:
    return [document.text for document in corpus]


def corpus(*overrides: str) -> instantiate.Corpus:
    return instantiate.Corpus(validate(compose("generate", list(overrides))).corpus)


def parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path
