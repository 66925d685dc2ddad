"""A document, and the conversion of a corpus row to one, for any file format."""

import datetime
import hashlib
import re
import reprlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from numbers import Number
from typing import Annotated, Any, TypeVar

from pydantic import Field

from toolformer.data.url_date import date_from_url
from toolformer.step import NOTHING

SOURCE_ID = "source_id"
PLACEHOLDERS = frozenset(
    map(
        datetime.date.fromisoformat,
        ("0001-01-01", "1601-01-01", "1753-01-01", "1899-12-30", "1899-12-31", "1900-01-01", "1904-01-01", "1969-12-31", "1970-01-01",
         "9999-12-31"),
    )
)  # fmt: skip
"""Days that databases, spreadsheets and time stamps of 0 give where none is known."""
_SECONDS = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_DAY = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d(?=[TZ ]|\Z)|\d{8})(?:[T ]?(?P<time>[\d:.,]+))? ?(?:Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)
"""A day, alone or with its time, all of the text: what is left (a second day, a further figure) would say another thing."""
SIDE_FIELDS = ("url_field", "date_field", "id_field", "title_field")
MOST_NAMES = 8
T = TypeVar("T")


@dataclass(frozen=True)
class Document:
    """A text of the corpus C with its metadata."""

    doc_id: str
    text: str
    url: str | None = None
    date: datetime.date | None = None
    """The day it was written: what the calendar answers while annotating (paper, appendix A.1)."""
    source_id: str | None = None
    """The encyclopedia article that the text is, so that search does not return its continuation."""
    title: str | None = None
    """Shown before the text by search over an index of the corpus; annotation does not depend on it."""


@dataclass
class Fields:
    """The names of the fields in a corpus's rows; that of `source_id` is fixed.

    `meta.url` is the field `url` of the object `meta`.
    """

    text_field: Annotated[str, Field(min_length=1)] = "text"
    """The field or column that holds the text."""
    url_field: str | None = "url"
    """The field of the URL, from which the calendar takes the date; null reads no URL."""
    date_field: str | None = "date"
    """The field of the day of writing (YYYY-MM-DD, or seconds or milliseconds since 1970), for texts without a date in the
    URL. Days in the future and placeholders (0001-01-01, 1970-01-01, 9999-12-31) count as unknown. null reads no date."""
    id_field: str | None = "id"
    """The field of the document's name. If null or missing, the name is derived from the text."""
    title_field: Annotated[str | None, NOTHING] = "title"
    """The field with the title that search shows before a text, in an index made of the corpus. If null or missing, the text's
    first words are shown."""

    def named(self) -> list[str]:
        """All names, the text's first."""
        names = (self.text_field, self.url_field, self.date_field, self.id_field, SOURCE_ID, self.title_field)
        return list(dict.fromkeys(name for name in names if name))


class BadRow(Exception):
    """Rows, or a field of a row, that cannot be read: the reason that is counted, and details that are only logged."""

    def __init__(self, reason: str, detail: str = "", count: int = 1) -> None:
        super().__init__(f"{reason} ({detail})" if detail else reason)
        self.reason = reason
        self.detail = detail
        self.count = count


def document_from_row(
    row: Any, fields: Fields | None = None, latest_date: datetime.date | None = None, key: str = "corpus"
) -> tuple[Document, list[BadRow]]:
    """A row's document, and a `BadRow` for each other field than the text that cannot be read and is left out.

    The date is that of the URL, as in the paper, or else that of the date field. The id of a row without one is a hash of
    its text. Raises BadRow if there is no text. `key` is the name of the corpus in messages.
    """
    fields = fields or Fields()
    if not isinstance(row, Mapping):
        raise BadRow("not a JSON object")
    text = _decoded(value_at(row, fields.text_field))
    if text is None:
        detail = f"the row has {listed(names_of(row))}; name the field with {key}.text_field"
        raise BadRow(f"no text in field `{fields.text_field}`", detail)
    if not text.strip():
        raise BadRow("empty text")
    faults: list[BadRow] = []

    def read(side: str, convert: Callable[[Any], T], kind: str) -> T | None:
        name = getattr(fields, side, SOURCE_ID)
        value = value_at(row, name) if name else None
        if value is None or value != value:  # NaN is pandas' missing value
            return None
        try:
            return convert(value)
        except _NoDate as error:
            faults.append(BadRow(f"`{name}` {error}", reprlib.repr(value)))
            return None
        except (ValueError, BadRow):
            advice = (
                f"; name another field with {key}.{side}, or null for none" if side in SIDE_FIELDS else ""
            )
            faults.append(BadRow(f"`{name}` is not {kind}", reprlib.repr(value) + advice))
            return None

    url = read("url_field", _text, "a text")
    latest = latest_date or _today()
    in_url = date_from_url(url, latest)
    date = (in_url if in_url not in PLACEHOLDERS else None) or read(
        "date_field", lambda value: _known(_date(value), latest), "a date YYYY-MM-DD"
    )
    document = Document(
        doc_id=read("id_field", _name, "a text or number") or content_id(text),
        text=text,
        url=url,
        date=date,
        source_id=read(SOURCE_ID, _name, "a text or number"),
        title=_title(value_at(row, fields.title_field) if fields.title_field else None),
    )
    return document, faults


def content_id(text: str) -> str:
    """An id that does not depend on the order of the corpus, since sampling is keyed by it."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def value_at(row: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """A field's value; without a field named `meta.url`, that of `url` in the object `meta`."""
    if name in row:
        return row[name]
    outer, dot, inner = name.partition(".")
    inside = row.get(outer) if dot else None
    return value_at(inside, inner, default) if isinstance(inside, Mapping) else default


def names_of(row: Mapping[str, Any]) -> list[str]:
    """The names of a row's fields, including those inside objects, as `value_at` takes them."""
    inner = {name: value for name, value in row.items() if isinstance(value, Mapping) and value}
    return [
        full
        for name in row
        for full in ([f"{name}.{part}" for part in inner[name]] if name in inner else [name])
    ]


def listed(names: Collection[str]) -> str:
    """The first few names, for a message of one line."""
    return ", ".join(" ".join(name.split())[:80] for name in list(names)[:MOST_NAMES]) or "no field"


def _decoded(value: Any) -> str | None:
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError:
            raise BadRow("not UTF-8") from None
    # Lone surrogates (legal in JSON escapes) cannot be encoded as UTF-8.
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


def _text(value: Any) -> str:
    text = _decoded(value)
    if text is None:
        raise ValueError
    return text


def _name(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():  # pandas: a column with missing integers
        value = int(value)
    is_number = isinstance(value, Number) and not isinstance(value, bool)
    return str(value) if is_number else _text(value)


def _title(value: Any) -> str | None:
    """None for other types: many corpora use that name for something else."""
    return _decoded(value) if isinstance(value, str) and value.strip() else None


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


class _NoDate(ValueError):
    """A date that is none: why."""


def _known(date: datetime.date | None, latest: datetime.date) -> datetime.date | None:
    if date in PLACEHOLDERS:
        raise _NoDate("stands for an unknown date")
    if date and date > latest:
        raise _NoDate(f"is after {'today' if latest == _today() else 'latest_date'}")
    return date


def _date(value: Any) -> datetime.date | None:
    if isinstance(value, datetime.date):  # and datetime.datetime
        return datetime.date(value.year, value.month, value.day)
    text = _name(value).strip()
    if not text:
        return None
    number = float(text) if _SECONDS.fullmatch(text) else 0.0
    for unit in (1, 1e3, 1e6, 1e9):
        # From 1979 to 2030: no digits of a date (20200814, 2020081410, 202008141030) are in any of these ranges.
        if 3e8 <= number / unit < 1.9e9:
            return datetime.datetime.fromtimestamp(number / unit, datetime.UTC).date()
    parts = _DAY.fullmatch(text)
    if not parts:
        raise ValueError
    if parts["time"]:
        datetime.time.fromisoformat(parts["time"])
    return datetime.date.fromisoformat(parts["day"])
