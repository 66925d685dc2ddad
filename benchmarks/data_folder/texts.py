"""Files at public addresses and texts of the hub become rows of a data folder, for `experiment=headline` and MAWPS."""

import datetime
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from toolformer.benchmarks.loaders.sources import Placed, list_of, text_of, value_of
from toolformer.data.document import BadRow
from toolformer.data.jsonl import unpacked
from toolformer.errors import UserError, one_line

LONGEST = 2**28
"""Most bytes, unpacked, of a file that is one JSON value."""

EVIDENCE_RELATIONS = frozenset(
    "P19 P20 P27 P31 P39 P101 P103 P106 P108 P127 P136 P138 P140 P159 P176 P178 P264 P364 P407 P413 P449 P463 P495 P527 P740 "
    "P937 P1303 P1412".split()
)
"""The relations of T-REx whose sentences are in the index of the published results."""


def read_json(path: Path) -> Any:
    """The value of a file that is JSON as a whole, of at most `LONGEST` bytes unpacked; UserError if it cannot be read."""
    try:
        with open(path, "rb") as file:
            content = unpacked(file).read(LONGEST + 1)
        if len(content) > LONGEST:
            raise ValueError(f"it is longer than {LONGEST >> 20} MiB")
        return json.loads(content)
    except (OSError, EOFError, ValueError, RecursionError, zlib.error, BadRow) as error:
        raise UserError(f"{path}: the file cannot be read ({one_line(error)}); fetch it again") from error


def json_rows(path: Path) -> Iterator[Placed]:
    """The objects of a file that is one JSON array; UserError if it is anything else."""
    rows = read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: not a JSON array of objects; fetch it again")
    return ((f"{path}, row {number}", row) for number, row in enumerate(rows))


def squad_paragraphs(path: Path) -> Iterator[Placed]:
    """The paragraphs of a file in SQuAD's layout: its articles' `title`, `context`, `qas`."""
    document = read_json(path)
    if not isinstance(document, dict):
        raise UserError(f"{path}: not a JSON object; fetch it again")
    for article in list_of(document, "data", str(path), dict):
        for paragraph in list_of(article, "paragraphs", str(path), dict):
            context = text_of(paragraph, "context", str(path))
            yield str(path), {**paragraph, "title": article.get("title"), "context": context}


def mwptoolkit(rows: Iterable[Placed]) -> Iterator[Placed]:
    """MAWPS as MWPToolkit has it: `iIndex, sQuestion, lEquations, lSolutions`."""
    names = {
        "iIndex": "orig_index",
        "sQuestion": "question",
        "lEquations": "equations",
        "lSolutions": "solutions",
    }
    for number, (location, row) in enumerate(rows, start=1):
        fields = {name: value_of(row, source, location) for source, name in names.items()}
        yield location, {"id": number, **fields}


def trex_evidences(rows: Iterable[Placed]) -> Iterator[Placed]:
    """The sentences of T-REx's facts of `EVIDENCE_RELATIONS`, one row per fact, a sentence once per fact."""
    kept = ((location, row) for location, row in rows if row.get("predicate_id") in EVIDENCE_RELATIONS)
    fields = ("sub_surface", "obj_surface", "masked_sentence")
    for (relation, uuid), group in itertools.groupby(
        kept, key=lambda placed: (placed[1]["predicate_id"], placed[1].get("uuid"))
    ):
        sentences = [{name: text_of(row, name, location) for name in fields} for location, row in group]
        distinct = {tuple(sentence.values()): sentence for sentence in sentences}
        yield str(relation), {"relation": relation, "uuid": uuid, "evidences": list(distinct.values())}


def excerpts(rows: Iterable[Placed]) -> Iterator[Placed]:
    """Documents of C4, in the columns of excerpts that are cut in two."""
    for number, (location, row) in enumerate(rows):
        fields = {"id": f"c4/{number}", "prefix": text_of(row, "text", location), "continuation": ""}
        yield location, fields


def paragraphs(rows: Iterable[Placed]) -> Iterator[Placed]:
    """SQuAD's paragraphs, without their questions."""
    return ((location, {"title": row["title"], "context": row["context"]}) for location, row in rows)


def passages(rows: Iterable[Placed]) -> Iterator[Placed]:
    """Passages with title and text, with an id."""
    for number, (location, row) in enumerate(rows):
        fields = {name: text_of(row, name, location) for name in ("title", "text")}
        yield location, {"id": f"2wiki/{number}", **fields}


def gold_passages(rows: Iterable[Placed]) -> Iterator[Placed]:
    """NQ's questions, each with passages: `ctxs` of the source."""
    for number, (location, row) in enumerate(rows):
        contexts = list_of(row, "ctxs", location, dict)
        texts = [
            {name: text_of(context, name, location) for name in ("title", "text")} for context in contexts
        ]
        question = {name: value_of(row, name, location) for name in ("question", "answers")}
        yield location, {"id": f"nq-oracle-{number}", **question, "passages": texts}


def news(rows: Iterable[Placed]) -> Iterator[Placed]:
    """CC-News: `date` is `YYYY-MM-DD hh:mm:ss`, or anything else for unknown."""
    for number, (location, row) in enumerate(rows):
        fields = {"url": row.get("url"), "date": _day(row.get("date")), "title": row.get("title")}
        yield (
            location,
            {"id": f"cc_news/{number}", "text": text_of(row, "text", location), **fields, "language": "en"},
        )


def wikipedia(rows: Iterable[Placed]) -> Iterator[Placed]:
    """Articles: the title, a line break, the text."""
    for number, (location, row) in enumerate(rows):
        text = f"{text_of(row, 'title', location)}\n\n{text_of(row, 'text', location)}"
        yield location, {"id": f"wikipedia/{number}", "text": text}


def _day(date: Any) -> str | None:
    try:
        return datetime.date.fromisoformat(str(date)[:10]).isoformat()
    except ValueError:
        return None


READERS = {"json_rows": json_rows}
"""Readers of downloads, and conversions of their rows, by the names that a task file gives in `source`."""
CONVERSIONS = {"mwptoolkit": mwptoolkit}
