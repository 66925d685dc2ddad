"""Data sets of the Hugging Face hub, streamed: nothing is stored, and no code of a data set is run."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toolformer.documents.document import BadRow, Document, Fields, document_from_row
from toolformer.documents.skipped import Skipped
from toolformer.errors import UserError


@dataclass
class HubCorpus:
    """Documents of one split of a hub data set (or of a local folder in the hub's layout), streamed.

    Bad rows are treated as in files. A stream that breaks ends the run, even without `strict`: a network's fault must
    not make a corpus shorter.
    """

    path: str
    subset: str | None = None
    """The data set's configuration, where it has several."""
    split: str = "train"
    fields: Fields = Fields()
    strict: bool = False
    latest_date: datetime.date | None = None
    """Dates in URLs after it are not believed; None is the day of the reading, in UTC."""
    key: str = "corpus"
    """What it is called in the configuration, for messages."""

    def __post_init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        """What the newest reading left out, as far as it went: rows by reason."""

    def __iter__(self) -> Iterator[Document]:
        skipped = Skipped(self.strict, self.key)
        self.skipped = skipped.counts
        number = 0
        rows = iter(self._open())
        while True:
            try:
                row = next(rows)
            except StopIteration:
                break
            except Exception as error:  # whatever the storage, the network or the format's reader raises
                raise UserError(
                    f"{self.key}.path: the data set {self.path} breaks off after row {number} ({_line(error)}); start "
                    "the same command again, finished work is kept"
                ) from error
            number += 1
            try:
                document = document_from_row(row, self.fields, self.latest_date)
            except BadRow as error:
                skipped.row(self.path, f"row {number}", error.reason, detail=error.detail)
                continue
            yield document
        skipped.say(self.path)

    def _open(self) -> Any:
        from datasets import load_dataset

        try:
            rows = load_dataset(self.path, self.subset, split=self.split, streaming=True)
        except (
            Exception
        ) as error:  # offline, unknown, gated, without this subset or split, needing code of its own
            raise UserError(
                f"{self.key}.path: the data set {self.path} cannot be streamed ({_line(error)}); check {self.key}.path, "
                f"{self.key}.subset and {self.key}.split"
            ) from error
        known = rows.column_names
        if known is not None and self.fields.text not in known:
            raise UserError(
                f"{self.key}.text_field: the data set {self.path} has no field {self.fields.text!r}; "
                f"it has {', '.join(known[:8])}"
            )
        return rows.select_columns([name for name in self.fields.named() if name in known]) if known else rows


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:200]
