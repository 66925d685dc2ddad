"""Documents and where they come from: JSON Lines files, the demo corpus, the date in a URL.

Ground floor. Knows nothing of tools or models. Corpora are streamed: no reader holds more than one document.
"""

from __future__ import annotations

import datetime
import functools
import gzip
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from toolformer.errors import UserError

log = logging.getLogger(__name__)

_DATE_IN_URL = re.compile(
    r"(?<!\d)(?P<y>(?:19|20)\d\d)(?P<s>[/\-_.])(?P<m>\d{1,2})(?P=s)(?P<d>\d{1,2})(?!\d)"
    r"|(?<!\d)(?P<y2>(?:19|20)\d\d)(?P<m2>\d\d)(?P<d2>\d\d)(?!\d)"
)


@dataclass(frozen=True)
class Document:
    """A text of the corpus C, and what is known about it."""

    doc_id: str
    text: str
    url: str | None = None
    date: datetime.date | None = None
    """The day it was written: what the calendar answers while annotating (paper, appendix A.1)."""
    source_id: str | None = None
    """The encyclopedia article that the text is, so that search does not hand it its own continuation."""


def date_from_url(url: str | None, today: datetime.date | None = None) -> datetime.date | None:
    """The date that stands in a URL, or None (paper, appendix A.1, calendar).

    Understands /2020/08/14/, /2020-08-14- and 20200814. Impossible dates and dates after `today` are refused.
    """
    for match in _DATE_IN_URL.finditer(url or ""):
        year, month, day = (match[a] or match[b] for a, b in (("y", "y2"), ("m", "m2"), ("d", "d2")))
        try:
            date = datetime.date(int(year), int(month), int(day))
        except ValueError:
            continue
        if date <= (today or datetime.date.today()):
            return date
    return None


def demo_corpus(split: str = "train") -> Iterator[Document]:
    """The small corpus written for this project; `split` is `train` or `heldout`."""
    path = resources.files("toolformer") / "corpora" / "demo.jsonl"
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["split"] == split:
                yield _document(row, row["id"])


@dataclass
class JsonlCorpus:
    """Documents of a JSON Lines file (plain or .gz), a JSON object a line with `text` and optional `url`, `date`, `id`.

    A row that is no such object is skipped, counted and logged with its line; with `strict` it ends the run.
    """

    path: str | Path
    strict: bool = False
    text_field: str = "text"

    def __post_init__(self) -> None:
        self.skipped: dict[str, int] = {}
        if not Path(self.path).expanduser().is_file():
            raise UserError(
                f"corpus.path: there is no file {self.path}; give a JSON Lines file with a `text` field"
            )

    def __iter__(self) -> Iterator[Document]:
        path = Path(self.path).expanduser()
        self.skipped = {}
        opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as lines:
            try:
                for number, line in enumerate(lines, start=1):
                    if not line.strip():
                        continue
                    document = self._read(path, number, line)
                    if document is not None:
                        yield document
            except (OSError, EOFError) as error:
                raise UserError(f"{path}: the file cannot be read ({error}); write it again") from error
        if self.skipped:
            total = sum(self.skipped.values())
            _warn_once(f"{path}: {total} rows skipped ({self.skipped})")

    def _read(self, path: Path, number: int, line: bytes) -> Document | None:
        try:
            row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except (ValueError, RecursionError):
            self._skip(path, number, "malformed JSON")
            return None
        if not isinstance(row, dict) or not isinstance(row.get(self.text_field), str):
            self._skip(path, number, f"no text in field `{self.text_field}`")
            return None
        if not row[self.text_field].strip():
            self._skip(path, number, "empty text")
            return None
        if self.text_field != "text":
            row = {**row, "text": row[self.text_field]}
        try:
            return _document(row, str(row["id"]) if "id" in row else _content_id(row["text"]))
        except (ValueError, TypeError) as error:
            self._skip(path, number, f"bad field ({error})")
            return None

    def _skip(self, path: Path, number: int, reason: str) -> None:
        if self.strict:
            raise UserError(
                f"{path}, line {number}: {reason}; mend the row or set corpus.strict=false to skip it"
            )
        _warn_once(f"{path}, line {number}: {reason}, row skipped")
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


@functools.cache
def _warn_once(message: str) -> None:
    """A corpus is read several times over; what is wrong with it is said once."""
    log.warning("%s", message)


def _document(row: dict[str, Any], doc_id: str) -> Document:
    url = row.get("url")
    if url is not None and not isinstance(url, str):
        raise TypeError("`url` is no text")
    # Lone surrogates (legal in JSON escapes) cannot be written as UTF-8 again.
    text = row["text"].encode("utf-8", "replace").decode("utf-8")
    # The URL speaks first, as in the paper; a `date` field serves corpora whose URLs carry none.
    date = date_from_url(url) or (_iso_date(row["date"]) if row.get("date") else None)
    return Document(doc_id=doc_id, text=text, url=url, date=date, source_id=row.get("source_id"))


def _iso_date(value: Any) -> datetime.date:
    if not isinstance(value, str):
        raise TypeError("`date` is no text")
    try:
        return datetime.date.fromisoformat(value[:10])
    except ValueError:
        raise ValueError(f"`date` {value[:20]!r} is not YYYY-MM-DD") from None


def _content_id(text: str) -> str:
    """An id that does not depend on the order of the corpus: sampling is keyed by it."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
