"""Corpora on disk: one file, or a folder of files, JSON Lines and Parquet, alone or mixed.

The files of a folder are read one after the other in the order of their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolformer.data.jsonl import read_jsonl
from toolformer.data.parquet import read_parquet
from toolformer.data.reader_stats import RowCorpus, Skipped
from toolformer.errors import UserError

JSONL, PARQUET, MIXED = "jsonl", "parquet", "files"
SUFFIXES = {
    JSONL: (".jsonl", ".json", ".ndjson"),
    PARQUET: (".parquet", ".pq"),
}
PACKED = (".gz", ".zst", ".zstd")


@dataclass
class FileCorpus(RowCorpus):
    """Documents of a file or of a folder's files; a file that breaks off or lacks the text's column is left out."""

    path: str | Path
    format: str = MIXED
    """jsonl, parquet, or files: each file's format by its name."""
    pattern: str | None = None
    """Which files of a folder, as a glob below it (`**/en_head_*.json.gz`); None is all with a fitting name."""

    def __post_init__(self) -> None:
        self.files()

    def files(self) -> list[Path]:
        """The files in the order in which they are read; without any, a UserError."""
        path = Path(self.path).expanduser()
        if path.is_dir():
            return self._of_folder(path)
        if not path.exists():
            raise UserError(
                f"{self.key}.path: there is no file {self.path}; name a file or a folder of files"
            )
        return [path]

    def sources(self, skipped: Skipped) -> Iterator[tuple[str, Iterator[tuple[str, Any]]]]:
        """Each file with its rows."""
        for path in self.files():
            kind = self.format if self.format != MIXED else _kind(path)
            if kind is None:
                raise UserError(
                    f"{self.key}.path: {path} is neither JSON Lines nor Parquet by its name; give it a suffix of "
                    f"{_suffixes(MIXED)}, or say {self.key}=jsonl or {self.key}=parquet"
                )
            rows = read_parquet(path, self.fields, skipped) if kind == PARQUET else read_jsonl(path, skipped)
            yield str(path), rows

    def _of_folder(self, folder: Path) -> list[Path]:
        kinds = (JSONL, PARQUET) if self.format == MIXED else (self.format,)
        files = [
            path.relative_to(folder)
            for path in folder.glob(self.pattern or "**/*")
            if path.is_file() and (self.pattern or _kind(path) in kinds)
        ]
        files = [path for path in files if not any(part.startswith(".") for part in path.parts)]
        if not files:
            named = f"is named {_suffixes(self.format)}"
            wanted = f"matches {self.key}.pattern={self.pattern}" if self.pattern else named
            raise UserError(
                f"{self.key}.path: no file in {folder} {wanted}; name another folder or {self.key}.pattern"
            )
        return [folder / path for path in sorted(files, key=Path.as_posix)]


def _kind(path: Path) -> str | None:
    """jsonl or parquet by the name, whatever it is packed with."""
    name = path.name.lower()
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    return next((kind for kind, suffixes in SUFFIXES.items() if name.endswith(suffixes)), None)


def _suffixes(format: str) -> str:
    return ", ".join(SUFFIXES[JSONL] + SUFFIXES[PARQUET] if format == MIXED else SUFFIXES[format])
