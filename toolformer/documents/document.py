"""A document, and how a row of a corpus becomes one. Knows no file format."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolformer.documents.url_date import date_from_url


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
    title: str | None = None
    """What search shows before the text of an index made of it; decides no annotation."""


@dataclass(frozen=True)
class Fields:
    """Under which names the rows of a corpus hold what a document needs; None is a field that is not read."""

    text: str = "text"
    url: str | None = "url"
    date: str | None = "date"
    id: str | None = "id"
    source_id: str | None = "source_id"
    title: str | None = "title"

    def named(self) -> list[str]:
        """All names, the text's first."""
        names = (self.text, self.url, self.date, self.id, self.source_id, self.title)
        return list(dict.fromkeys(name for name in names if name))


class BadRow(Exception):
    """A row that is no document: the reason under which it is counted, and what is said of this one beside it."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


def document_from_row(
    row: Any, fields: Fields | None = None, latest_date: datetime.date | None = None
) -> Document:
    """The document that a row holds.

    The date in the URL speaks first, as in the paper; a date field serves corpora whose URLs carry none. A row without
    an id is named by its text.

    Raises:
        BadRow: it has no text, or a field that is not what it should be.
    """
    fields = fields or Fields()
    if not isinstance(row, Mapping):
        raise BadRow(f"no text in field `{fields.text}`")
    text = _decoded(row.get(fields.text))
    if text is None:
        raise BadRow(f"no text in field `{fields.text}`")
    if not text.strip():
        raise BadRow("empty text")
    url = _text(row, fields.url)
    date = date_from_url(url, latest_date) or _date(row.get(fields.date), fields.date)
    return Document(
        doc_id=_identifier(row.get(fields.id), fields.id) or content_id(text),
        text=text,
        url=url,
        date=date,
        source_id=_text(row, fields.source_id),
        title=_title(row.get(fields.title)),
    )


def content_id(text: str) -> str:
    """An id that does not depend on the order of the corpus: sampling is keyed by it."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _decoded(value: Any) -> str | None:
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError:
            raise BadRow("not UTF-8") from None
    # Lone surrogates (legal in JSON escapes) cannot be written as UTF-8 again.
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


def _text(row: Mapping[str, Any], name: str | None) -> str | None:
    value = row.get(name) if name else None
    if value is not None and not isinstance(value, str | bytes):
        raise BadRow(f"`{name}` is no text")
    return _decoded(value)


def _title(value: Any) -> str | None:
    """Many corpora have some other thing under that name: then there is no title, and the row is as good."""
    return _decoded(value) if isinstance(value, str) and value.strip() else None


def _identifier(value: Any, name: str | None) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is not None and not isinstance(value, str | bytes):
        raise BadRow(f"`{name}` is no text and no whole number")
    return _decoded(value)


def _date(value: Any, name: str | None) -> datetime.date | None:
    if value is None or value == "":
        return None
    if isinstance(value, datetime.datetime):
        return value.date()
    if isinstance(value, datetime.date):
        return value
    if isinstance(value, bytes):
        value = _decoded(value)
    if not isinstance(value, str):
        raise BadRow(f"`{name}` is no text")
    try:
        return datetime.date.fromisoformat(value[:10])
    except ValueError:
        raise BadRow(f"`{name}` is not YYYY-MM-DD", repr(value[:20])) from None
