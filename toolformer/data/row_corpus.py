"""Corpora of rows; skipped rows are counted by reason, and the first few of each reason logged by file and line."""

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from toolformer.data.document import (
    SIDE_FIELDS,
    BadRow,
    Document,
    Fields,
    document_from_row,
    listed,
    names_of,
    value_at,
)
from toolformer.data.url_date import date_from_url
from toolformer.errors import UserError, near, one_line

log = logging.getLogger(__name__)

MOST_LOGGED = 3
"""Rows per reason and file that are logged; the others are only counted."""

MANY = 1000
"""Names of fields that are remembered at most."""
ABSENT = object()

Rows = Generator[tuple[str, Any]]
"""(position such as `line 7`, row) pairs of a file; a `BadRow` for a row that cannot be read."""


@dataclass(kw_only=True)
class RowCorpus(ABC):
    """Documents of rows, streamed at each iteration.

    A row that is not a document is skipped, counted by reason in `skipped` and logged by file and line; a field that cannot
    be read is counted in `unread`. With `strict` the first of either ends the run with a UserError.
    """

    path: str | Path
    fields: Fields = field(default_factory=Fields)
    strict: bool = False
    latest_date: date | None = None
    """Later dates are ignored; None is the day of the reading, in UTC: a text is not written after it is read."""
    key: str = "corpus"
    """Its name in the configuration and in messages."""
    skipped: Counter[str] = field(default_factory=Counter, init=False)
    """Rows that the latest reading skipped, by reason."""
    unread: Counter[str] = field(default_factory=Counter, init=False)
    """Fields that it could not read in other rows, by reason."""
    known: dict[str, None] = field(default_factory=dict, init=False)
    """The names of fields in the rows."""
    _first: str = field(default="", init=False)
    _says_dates: bool = field(default=True, init=False)
    _absent: dict[str, str] = field(default_factory=dict, init=False)
    _level: int = field(default=logging.WARNING, init=False)
    """Level of log lines about rows: only the first reading is heard."""

    @abstractmethod
    def digest(self) -> str:
        """Digest that distinguishes the rows from others: their content, or its version; reads no row."""

    @abstractmethod
    def sources(self) -> Iterator[tuple[str, Rows]]:
        """(name, rows) of each file."""

    def __iter__(self) -> Iterator[Document]:
        self.skipped, self.unread, self.known, self._first = Counter(), Counter(), {}, ""
        # Default names may be missing; names that the user gave must exist.
        named = {side: getattr(self.fields, side) for side in SIDE_FIELDS}
        self._absent = {side: name for side, name in named.items() if name and name != getattr(Fields, side)}
        try:
            for name, rows in self.sources():
                logged: Counter[str] = Counter()
                with closing(rows):
                    for position, row in rows:
                        try:
                            document, faults = self._document(row)
                        except BadRow as error:
                            self._count(error, f"{name}, {position}", self.skipped, logged)
                            continue
                        for fault in faults:
                            self._count(fault, f"{name}, {position}", self.unread, logged)
                        if self._says_dates and document.date and not date_from_url(document.url):
                            self._says_dates = False
                            log.log(
                                min(self._level, logging.INFO),
                                "%s, %s: no date in the URL, so the field `%s` counts as the day of writing; if it holds the day of "
                                "crawling, set %s.date_field=null", name, position, self.fields.date_field, self.key,
                            )  # fmt: skip
                        yield document
        finally:  # also if a limit ends the reading
            for counts, kept in ((self.skipped, "skipped"), (self.unread, "kept without a field")):
                if total := counts.total():
                    reasons = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
                    log.log(
                        self._level,
                        "%s: %d row%s %s: %s",
                        self.path,
                        total,
                        "" if total == 1 else "s",
                        kept,
                        reasons,
                    )

    def _document(self, row: Any) -> tuple[Document, list[BadRow]]:
        if isinstance(row, BadRow):
            raise row
        if isinstance(row, Mapping) and (self._absent or not self.known):
            self._absent = {
                side: name for side, name in self._absent.items() if value_at(row, name, ABSENT) is ABSENT
            }
            if len(self.known) < MANY:
                self.known.update(dict.fromkeys(names_of(row)))
        return document_from_row(row, self.fields, self.latest_date, self.key)

    def _count(self, fault: BadRow, position: str, counts: Counter[str], logged: Counter[str]) -> None:
        """Counts a fault; logs the first `MOST_LOGGED` per reason and file. UserError with `strict`."""
        line = f"{position}: {fault}"
        if self.strict:
            raise UserError(f"{line}; fix it, or set {self.key}.strict=false to skip it") from fault
        self._first = self._first or (line if counts is self.skipped else "")
        counts[fault.reason] += fault.count
        logged[fault.reason] += 1
        if logged[fault.reason] <= MOST_LOGGED:
            log.log(self._level, "%s, %s", line, "skipped" if counts is self.skipped else "left out")

    def check(self, documents: int) -> None:
        """UserError if a reading found no document, or no row has a field that the user named."""
        self._level = logging.DEBUG
        if not documents:
            reason = f"rows skipped: {self.skipped.total()}, the first: {self._first}"
            reason = reason if self._first else "choose another corpus"
            raise UserError(f"{self.key}: no document has text; {reason}")
        for side, name in self._absent.items():
            present = f"the rows have {listed(self.known)}{near(name, self.known)}"
            advice = f"name another, or {self.key}.{side}=null for none"
            raise UserError(f"{self.key}.{side}: no row has a field {name!r}; {present}; {advice}")


def broken_off(path: Path, error: BaseException, reason: str = "broken off", count: int = 1) -> BadRow:
    """Represents the rest of a file with broken content; UserError if the file cannot be opened or read."""
    # Failed decompression has no error number, in gzip and in pyarrow.
    if getattr(error, "errno", None) is not None:
        raise UserError(
            f"{path}: the file cannot be read ({one_line(error)}); check its path and permissions"
        ) from error
    return BadRow(reason, one_line(error), count)


def unreadable(path: Path, fault: BadRow) -> UserError:
    """Error for a file that cannot be read at all, which is more than a lost row."""
    reason = f"{fault.reason} ({fault.detail})" if fault.detail else fault.reason
    return UserError(f"{path}: the file cannot be read: {reason}; or leave it out of the folder")
