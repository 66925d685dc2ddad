"""Corpora of rows; what is left out is counted by reason, the first of each kind logged by file and line."""

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from toolformer.data.document import BadRow, Document, Fields, document_from_row
from toolformer.errors import UserError, one_line

log = logging.getLogger(__name__)

SHOWN = 3
"""Rows of one kind in one file that are logged; the others are only counted."""

Rows = Generator[tuple[str, Any]]
"""The rows of a file, each behind its place there (`line 7`); a `BadRow` stands for what cannot be read."""


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
    def sources(self) -> Iterator[tuple[str, Rows]]:
        """(name, rows) of each file."""

    def __iter__(self) -> Iterator[Document]:
        skipped: Counter[str] = Counter()
        self.skipped = skipped
        for name, rows in self.sources():
            shown: Counter[str] = Counter()
            with closing(rows):
                for place, row in rows:
                    try:
                        if isinstance(row, BadRow):
                            raise row
                        document = document_from_row(row, self.fields, self.latest_date)
                    except BadRow as error:
                        line = f"{name}, {place}: {error}"
                        if self.strict:
                            raise UserError(
                                f"{line}; fix it or set {self.key}.strict=false to go on without it"
                            ) from error
                        skipped[error.reason] += error.count
                        shown[error.reason] += 1
                        if shown[error.reason] <= SHOWN:
                            log.warning("%s, skipped", line)
                    else:
                        yield document
        if total := skipped.total():
            reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.most_common())
            log.warning("%s: %d row%s skipped: %s", self.path, total, "" if total == 1 else "s", reasons)


def broken_off(path: Path, error: BaseException, reason: str = "broken off", count: int = 1) -> BadRow:
    """What stands for the rest of a file whose content is broken; UserError if it cannot be opened or read at all."""
    # What cannot be unpacked has no error number, neither from gzip nor from pyarrow.
    if getattr(error, "errno", None) is not None:
        raise UserError(
            f"{path}: the file cannot be read ({one_line(error)}); check its place and permissions"
        ) from error
    return BadRow(reason, one_line(error), count)
