"""Corpora on disk: one file, or a folder of files, JSON Lines and Parquet, alone or mixed.

The files of a folder are read one after the other in the order of their names.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolformer.documents.document import BadRow, Document, Fields, document_from_row
from toolformer.documents.jsonl import read_jsonl
from toolformer.documents.parquet import read_parquet
from toolformer.documents.skipped import Skipped
from toolformer.errors import UserError

JSONL, PARQUET, MIXED = "jsonl", "parquet", "files"
SUFFIXES = {
    JSONL: (".jsonl", ".json", ".ndjson"),
    PARQUET: (".parquet", ".pq"),
}
PACKED = (".gz", ".zst", ".zstd")


@dataclass
class FileCorpus:
    """Documents of a file or of a folder's files, streamed anew at each iteration.

    A row that is no document, a file that breaks off and a file without the text's column are left out, counted by
    reason in `skipped` and logged by file and line; with `strict` the first of them ends the run with a UserError.
    """

    path: str | Path
    format: str = MIXED
    """jsonl, parquet, or files: each file's format by its name."""
    fields: Fields = Fields()
    strict: bool = False
    pattern: str | None = None
    """Which files of a folder, as a glob below it (`**/en_head_*.json.gz`); None is all with a fitting name."""
    latest_date: datetime.date | None = None
    """Dates in URLs after it are not believed; None is the day of the reading, in UTC."""
    key: str = "corpus"
    """What it is called in the configuration, for messages."""

    def __post_init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        """What the newest reading left out, as far as it went: rows by reason."""
        self.files()

    def files(self) -> list[Path]:
        """The files in the order in which they are read.

        Raises:
            UserError: there are none.
        """
        path = Path(self.path).expanduser()
        if path.is_dir():
            return self._of_folder(path)
        if not path.exists():
            raise UserError(
                f"{self.key}.path: there is no file {self.path}; name a file or a folder of files"
            )
        return [path]

    def __iter__(self) -> Iterator[Document]:
        skipped = Skipped(self.strict, self.key)
        self.skipped = skipped.counts
        for path in self.files():
            for place, row in self._rows(path, skipped):
                try:
                    document = document_from_row(row, self.fields, self.latest_date)
                except BadRow as error:
                    skipped.row(str(path), place, error.reason, detail=error.detail)
                    continue
                yield document
        skipped.say(str(self.path))

    def _rows(self, path: Path, skipped: Skipped) -> Iterator[tuple[str, Any]]:
        kind = self.format if self.format != MIXED else _kind(path)
        if kind == PARQUET:
            return read_parquet(path, self.fields, skipped)
        if kind == JSONL:
            return read_jsonl(path, skipped)
        raise UserError(
            f"{self.key}.path: {path} is neither JSON Lines nor Parquet by its name; give it a suffix of "
            f"{', '.join(SUFFIXES[JSONL] + SUFFIXES[PARQUET])}, or say {self.key}=jsonl or {self.key}=parquet"
        )

    def _of_folder(self, folder: Path) -> list[Path]:
        found = [
            path
            for path in folder.glob(self.pattern or "**/*")
            if path.is_file()
            and not any(part.startswith(".") for part in path.relative_to(folder).parts)
            and (
                self.pattern or _kind(path) in ((JSONL, PARQUET) if self.format == MIXED else (self.format,))
            )
        ]
        if not found:
            wanted = (
                f"matches {self.key}.pattern={self.pattern}" if self.pattern else f"is {_named(self.format)}"
            )
            raise UserError(
                f"{self.key}.path: no file in {folder} {wanted}; name another folder or {self.key}.pattern"
            )
        return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def _kind(path: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    last = suffixes[-1] if suffixes else ""
    return next((kind for kind, known in SUFFIXES.items() if last in known), None)


def _named(format: str) -> str:
    known = SUFFIXES[JSONL] + SUFFIXES[PARQUET] if format == MIXED else SUFFIXES[format]
    return f"named {', '.join(known)}"
