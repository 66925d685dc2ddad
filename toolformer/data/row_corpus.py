"""Corpora of rows; what is left out is counted by reason, the first of each kind logged by file and line."""

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
from toolformer.errors import UserError, near, one_line

log = logging.getLogger(__name__)

SHOWN = 3
"""Rows of one kind in one file that are logged; the others are only counted."""

MANY = 1000
"""Names of fields that are remembered: rows may have names without end."""
ABSENT = object()

Rows = Generator[tuple[str, Any]]
"""The rows of a file, each behind its place there (`line 7`); a `BadRow` stands for what cannot be read."""


@dataclass(kw_only=True)
class RowCorpus(ABC):
    """Documents made of rows, streamed anew at each iteration.

    A row that is no document is left out, counted by reason in `skipped` and logged by file and line; so is a field that
    cannot be read, in `unread`, of a row that is kept. With `strict` the first of them ends the run with a UserError.
    """

    path: str | Path
    fields: Fields = field(default_factory=Fields)
    strict: bool = False
    latest_date: date | None = None
    """Dates in URLs after it are not believed; None is the day of the reading, in UTC."""
    key: str = "corpus"
    """What it is called in the configuration, for messages."""
    skipped: Counter[str] = field(default_factory=Counter, init=False)
    """What the newest reading left out, as far as it went: rows by reason."""
    unread: Counter[str] = field(default_factory=Counter, init=False)
    """Fields that it could not read in rows that it kept, by reason."""
    known: dict[str, None] = field(default_factory=dict, init=False)
    """The names that it found fields under."""
    _first: str = field(default="", init=False)
    _absent: dict[str, str] = field(default_factory=dict, init=False)

    @abstractmethod
    def sources(self) -> Iterator[tuple[str, Rows]]:
        """(name, rows) of each file."""

    def __iter__(self) -> Iterator[Document]:
        self.skipped, self.unread, self.known, self._first = Counter(), Counter(), {}, ""
        # A default is a guess; a name that the user gave is an order.
        named = {side: getattr(self.fields, side) for side in SIDE_FIELDS}
        self._absent = {side: name for side, name in named.items() if name and name != getattr(Fields, side)}
        try:
            for name, rows in self.sources():
                shown: Counter[str] = Counter()
                with closing(rows):
                    for place, row in rows:
                        try:
                            document, faults = self._document(row)
                        except BadRow as error:
                            self._count(error, f"{name}, {place}", self.skipped, shown)
                            continue
                        for fault in faults:
                            self._count(fault, f"{name}, {place}", self.unread, shown)
                        yield document
        finally:  # also where a limit ends the reading
            for counts, kept in ((self.skipped, "skipped"), (self.unread, "kept without a field")):
                if total := counts.total():
                    reasons = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
                    log.warning(
                        "%s: %d row%s %s: %s", self.path, total, "" if total == 1 else "s", kept, reasons
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

    def _count(self, fault: BadRow, place: str, counts: Counter[str], shown: Counter[str]) -> None:
        """Counts a fault and logs it, if it is one of the first of its kind in its file; UserError with `strict`."""
        line = f"{place}: {fault}"
        if self.strict:
            raise UserError(f"{line}; fix it or set {self.key}.strict=false to go on without it") from fault
        self._first = self._first or (line if counts is self.skipped else "")
        counts[fault.reason] += fault.count
        shown[fault.reason] += 1
        if shown[fault.reason] <= SHOWN:
            log.warning("%s, %s", line, "skipped" if counts is self.skipped else "left out")

    def check(self, documents: int) -> None:
        """UserError if a reading came to no document, or if no row has a field that the user named."""
        if not documents:
            reason = f"rows skipped: {self.skipped.total()}, the first: {self._first}"
            reason = reason if self._first else "name another"
            raise UserError(f"{self.key}: it holds no document with text; {reason}")
        for side, name in self._absent.items():
            found = f"the rows have {listed(self.known)}{near(name, self.known)}"
            advice = f"name another, or {self.key}.{side}=null for none"
            raise UserError(f"{self.key}.{side}: no row has a field {name!r}; {found}; {advice}")


def broken_off(path: Path, error: BaseException, reason: str = "broken off", count: int = 1) -> BadRow:
    """What stands for the rest of a file whose content is broken; UserError if it cannot be opened or read at all."""
    # What cannot be unpacked has no error number, neither from gzip nor from pyarrow.
    if getattr(error, "errno", None) is not None:
        raise UserError(
            f"{path}: the file cannot be read ({one_line(error)}); check its place and permissions"
        ) from error
    return BadRow(reason, one_line(error), count)
