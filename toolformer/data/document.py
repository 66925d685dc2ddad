"""A document, and how a row of a corpus becomes one. Knows no file format."""

import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from toolformer.data.url_date import date_from_url

SOURCE_ID = "source_id"


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


@dataclass
class Fields:
    """Under which names the rows of a corpus hold what a document needs; `source_id` has no other."""

    text_field: Annotated[str, Field(min_length=1)] = "text"
    """The field or column that holds the text."""
    url_field: str | None = "url"
    """The field of the URL, whose date the calendar answers with; null: none is read."""
    date_field: str | None = "date"
    """The field of the day of writing (YYYY-MM-DD), for URLs without a date; null: none is read."""
    id_field: str | None = "id"
    """The field of the document's name; null, and where a row has none: a name made from the text."""
    title_field: str | None = "title"
    """The field that search shows before the text, in an index made of the corpus; null, and where a row has none:
    the text's first words."""

    def named(self) -> list[str]:
        """All names, the text's first."""
        names = (self.text_field, self.url_field, self.date_field, self.id_field, SOURCE_ID, self.title_field)
        return list(dict.fromkeys(name for name in names if name))


class BadRow(Exception):
    """A row, or several, that is no document: the reason under which it is counted, and details that are only logged."""

    def __init__(self, reason: str, detail: str = "", count: int = 1) -> None:
        super().__init__(f"{reason} ({detail})" if detail else reason)
        self.reason = reason
        self.count = count


def document_from_row(
    row: Any, fields: Fields | None = None, latest_date: datetime.date | None = None
) -> Document:
    """The document that a row holds.

    The date in the URL speaks first, as in the paper; a date field serves corpora whose URLs carry none. A row without
    an id is named by its text. BadRow if it has no text, or a field that is not what it should be.
    """
    fields = fields or Fields()
    text = _decoded(row.get(fields.text_field)) if isinstance(row, Mapping) else None
    if text is None:
        raise BadRow(f"no text in field `{fields.text_field}`")
    if not text.strip():
        raise BadRow("empty text")
    url = _text(row, fields.url_field)
    date = date_from_url(url, latest_date) or _date(row.get(fields.date_field), fields.date_field)
    return Document(
        doc_id=_identifier(row, fields.id_field) or content_id(text),
        text=text,
        url=url,
        date=date,
        source_id=_text(row, SOURCE_ID),
        title=_title(row.get(fields.title_field)),
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


def _identifier(row: Mapping[str, Any], name: str | None) -> str | None:
    value = row.get(name) if name else None
    return str(value) if type(value) is int else _text(row, name)


def _title(value: Any) -> str | None:
    """Many corpora have some other thing under that name: then there is no title, and the row is as good."""
    return _decoded(value) if isinstance(value, str) and value.strip() else None


def _date(value: Any, name: str | None) -> datetime.date | None:
    if value is None or value == "":
        return None
    if isinstance(value, datetime.date):  # and datetime.datetime
        return datetime.date(value.year, value.month, value.day)
    value = _decoded(value)
    if not isinstance(value, str):
        raise BadRow(f"`{name}` is no text")
    try:
        return datetime.date.fromisoformat(value[:10])
    except ValueError:
        raise BadRow(f"`{name}` is not YYYY-MM-DD", repr(value[:20])) from None
