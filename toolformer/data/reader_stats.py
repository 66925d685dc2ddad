"""Corpora of rows; what is left out is counted by reason, the first of each kind logged by file and line."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from toolformer.data.document import BadRow, Document, Fields, document_from_row
from toolformer.errors import UserError

log = logging.getLogger(__name__)

SHOWN = 3
"""Rows of one kind in one file that are logged; the others are only counted."""
_logged: set[str] = set()
"""A corpus may be read more than once by a process: what is wrong with it is logged once."""


class Skipped:
    """The rows that one reading of a corpus left out; with `strict` the first of them ends the run."""

    def __init__(self, strict: bool = False, key: str = "corpus") -> None:
        self.strict = strict
        self.key = key
        """What the corpus is called in the configuration."""
        self.counts: Counter[str] = Counter()
        """Rows by reason."""
        self._rows: Counter[tuple[str, str]] = Counter()

    def row(self, file: str, place: str, reason: str, count: int = 1, detail: str = "") -> None:
        """Rows are left out of `file` at `place` (`line 7`); `detail` is logged but not counted apart.

        Raises:
            UserError: the corpus is read strictly.
        """
        line = f"{file}, {place}: {reason}{f' ({detail})' if detail else ''}"
        if self.strict:
            raise UserError(f"{line}; fix it or set {self.key}.strict=false to go on without it")
        self.counts[reason] += count
        self._rows[file, reason] += 1
        if self._rows[file, reason] <= SHOWN:
            more = "; further ones in this file are only counted" if self._rows[file, reason] == SHOWN else ""
            _log_once(f"{line}, skipped{more}")

    def log_summary(self, name: str) -> None:
        """Logs the counts of a whole reading: `3 rows skipped: 2 malformed JSON, 1 empty text`."""
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.counts.most_common())
        total = self.counts.total()
        if total:
            _log_once(f"{name}: {total} row{'' if total == 1 else 's'} skipped: {reasons}")


@dataclass(kw_only=True)
class RowCorpus(ABC):
    """Documents made of rows, streamed anew at each iteration.

    A row that is no document is left out, counted by reason in `skipped` and logged by file and line; with `strict` the
    first of them ends the run with a UserError.
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

    @abstractmethod
    def sources(self, skipped: Skipped) -> Iterator[tuple[str, Iterator[tuple[str, Any]]]]:
        """(name, rows) of each file, a row with its place in it; what cannot be read goes to `skipped`."""

    def __iter__(self) -> Iterator[Document]:
        skipped = Skipped(self.strict, self.key)
        self.skipped = skipped.counts
        for name, rows in self.sources(skipped):
            for place, row in rows:
                try:
                    document = document_from_row(row, self.fields, self.latest_date)
                except BadRow as error:
                    skipped.row(name, place, error.reason, detail=error.detail)
                else:
                    yield document
        skipped.log_summary(str(self.path))


def _log_once(line: str) -> None:
    if line not in _logged:
        _logged.add(line)
        log.warning("%s", line)
