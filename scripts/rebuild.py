"""The texts that the registered experiment's models were trained on, rebuilt from what is published and from DATA.

    python scripts/rebuild.py DATA FOLDER

Writes to FOLDER a copy of docs/results/headline in which the annotations have their texts and whole results again, so that a
training can be repeated with the release that made them (docs/results.md).

The texts are those of DATA/headline/texts.jsonl with the published ids; a result is the passage that begins as published. No
model is used. A rebuilt file must have the published SHA-256. DATA is prepared as conf/setting/headline.yaml says; where a web
page has changed since, its text is missing, and the script names it.
"""

import bisect
import itertools
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scripts.answers import PUBLISHED
from scripts.headline import SHOWN
from toolformer.calls import clean_result, insert, linearise, parse
from toolformer.data import Document
from toolformer.data.parquet import read_table
from toolformer.errors import UserError
from toolformer.results.folder import record_digest
from toolformer.results.run import RESULT
from toolformer.storage import atomic_file, atomic_write, sha256
from toolformer.tools.retrieval.passages import passages_of
from toolformer.tools.search import snippet

Row = dict[str, Any]

CUT = " …"
"""What a published result ends with if it is longer."""
PASSAGE_WORDS = 100
MOST_CHOICES = 256
"""Combinations of passages with the same beginning that are tried."""
_TEXT = pa.string()
_CALL = pa.struct(
    {
        "position": pa.int64(),
        **dict.fromkeys(("tool", "input", "result"), _TEXT),
        "gain": pa.float64(),
        "written": _TEXT,
    }
)
SCHEMA = pa.schema({"text": _TEXT, "calls": pa.list_(_CALL), "url": _TEXT, "date": _TEXT, "doc_id": _TEXT})
"""Of the experiment's release; other columns would give other bytes."""


def rebuilt(rows: Sequence[Row], texts: Mapping[str, str], passages: Sequence[str]) -> Iterator[list[Row]]:
    """The rows of C* with their texts and whole results, from the published rows. UserError for texts that are not there.

    More than once where several passages begin as a result does: with each of them.

    Args:
        passages: all that search may have returned, sorted.
    """
    if missing := [row["doc_id"] for row in rows if row["doc_id"] not in texts]:
        raise UserError(f"{len(missing)} of {len(rows)} texts are not in DATA: {', '.join(missing[:10])}")
    begun = dict.fromkeys(start for row in rows for call in row["calls"] if (start := _start(call)))
    possible = [_beginning(start, passages) for start in begun]
    for chosen in itertools.islice(itertools.product(*possible), MOST_CHOICES):
        whole = dict(zip(begun, chosen, strict=True))
        yield [_with_results(row, texts[row["doc_id"]], whole) for row in rows]


def _start(call: Row) -> str:
    """The published beginning of a result that was cut; empty for any other."""
    result = call["result"] or ""
    return result.removesuffix(CUT) if result.endswith(CUT) else ""


def _beginning(start: str, passages: Sequence[str]) -> list[str]:
    """The passages that begin so. UserError if there are none."""
    first = bisect.bisect_left(passages, start)
    found = [*itertools.takewhile(lambda shown: shown.startswith(start), passages[first:])]
    if not found:
        raise UserError(f"no passage in DATA/headline/index begins with {start!r}")
    return found


def _with_results(row: Row, text: str, whole: Mapping[str, str]) -> Row:
    calls, inserted = [], []
    for call in row["calls"]:
        written = parse(call["written"])
        if start := _start(call):
            written = written.with_result(whole[start])
            call = {**call, "result": whole[start], "written": linearise(written)[1:]}
        calls.append(call)
        inserted.append((call["position"], written))
    return {**row, "text": insert(text, inserted), "calls": calls}


def passages_shown(index: Path) -> list[str]:
    """Every passage of the index as search shows it, sorted."""
    rows = (
        json.loads(line) for file in sorted(index.glob("*.jsonl")) for line in open(file, encoding="utf-8")
    )
    documents = (Document(row["id"], row["text"], title=row["title"]) for row in rows)
    return sorted(
        {clean_result(snippet(passage, SHOWN)) for passage in passages_of(documents, PASSAGE_WORDS)}
    )


def write(rows: Iterable[Row], path: Path) -> str:
    """Writes rows as the experiment's release did; returns the file's SHA-256."""
    with atomic_file(path) as temporary, pq.ParquetWriter(temporary, SCHEMA) as writer:
        writer.write_table(pa.Table.from_pylist([*rows], schema=SCHEMA))
    return sha256(path)


def main(data: Path, folder: Path) -> None:
    """Rebuilds every published annotation."""
    if folder.exists():
        raise UserError(f"{folder} exists; name a new folder")
    shutil.copytree(PUBLISHED, folder)
    with open(data / "headline" / "texts.jsonl", encoding="utf-8") as lines:
        texts = {row["id"]: row["text"] for row in map(json.loads, lines)}
    passages = passages_shown(data / "headline" / "index")
    different = 0
    for run in sorted((folder / "generate").iterdir()):
        record = json.loads((run / RESULT).read_bytes())
        rows = read_table(run / "dataset_augmented.parquet").to_pylist()
        plain = [{**row, "text": texts.get(row["doc_id"]), "calls": []} for row in rows]
        for name, tables in (
            ("dataset_augmented.parquet", rebuilt(rows, texts, passages)),
            ("dataset_plain.parquet", iter([plain])),
        ):
            wanted = record["reduced"].pop(name, record["digests"][name])
            digests = (write(table, run / name) for table in tables)
            digest = next((digest for digest in digests if digest == wanted), None)
            different += digest is None
            print(
                f"{run.name[:8]} {name}: {len(rows)} texts, {'as published' if digest else 'NOT THE PUBLISHED FILE'}"
            )
            record["digests"][name] = sha256(run / name)
        record["digest"] = record_digest(record)
        atomic_write(run / RESULT, json.dumps(record, ensure_ascii=False).encode())
    if different:
        raise UserError(f"{different} files are not what was published; their trainings may differ")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("python scripts/rebuild.py DATA FOLDER", file=sys.stderr)
        sys.exit(2)
    try:
        main(*map(Path, sys.argv[1:]))
    except (OSError, UserError) as error:
        print(f"rebuild: {error}", file=sys.stderr)
        sys.exit(2)
