"""Corpora on disk: one file, or a folder of files, JSON Lines and Parquet, alone or mixed; and the demo's own.

The files of a folder are read one after the other in the order of their names.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from toolformer.data.document import Document, document_from_row
from toolformer.data.jsonl import read_jsonl
from toolformer.data.parquet import read_parquet
from toolformer.data.row_corpus import RowCorpus, Rows
from toolformer.errors import UserError

JSONL, PARQUET, MIXED = "jsonl", "parquet", "files"
SUFFIXES = {JSONL: (".jsonl", ".json", ".ndjson"), PARQUET: (".parquet", ".pq")}
PACKED = (".gz", ".zst", ".zstd")
DEMO_SPLITS = ("train", "heldout", "sums")
"""Texts of all kinds, others of the same kinds, and short ones with a worked sum or two."""


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
        folder = Path(self.path).expanduser()
        if not folder.is_dir():
            if not folder.exists():
                raise UserError(f"{self.key}.path: there is no file {self.path}; name a file or a folder")
            return [folder]
        if self.pattern and (self.pattern.startswith("/") or ".." in self.pattern.split("/")):
            raise UserError(
                f"{self.key}.pattern={self.pattern} leads out of {self.key}.path; write a glob below it"
            )
        kinds = (JSONL, PARQUET) if self.format == MIXED else (self.format,)
        names = [
            path.relative_to(folder)
            for path in folder.glob(self.pattern or "**/*")
            if path.is_file() and (self.pattern or _kind(path) in kinds)
        ]
        names = [name for name in names if not any(part.startswith(".") for part in name.parts)]
        if not names:
            suffixes = f"is named {', '.join(suffix for kind in kinds for suffix in SUFFIXES[kind])}"
            wanted = f"matches {self.key}.pattern={self.pattern}" if self.pattern else suffixes
            raise UserError(
                f"{self.key}.path: no file in {folder} {wanted}; name another folder or {self.key}.pattern"
            )
        return [folder / name for name in sorted(names, key=Path.as_posix)]

    def sources(self) -> Iterator[tuple[str, Rows]]:
        """Each file with its rows."""
        for path in self.files():
            kind = self.format if self.format != MIXED else _kind(path)
            if kind is None:
                reason = f"{path} is neither JSON Lines nor Parquet by its name"
                raise UserError(f"{self.key}.path: {reason}; say {self.key}=jsonl or {self.key}=parquet")
            rows = read_parquet(path, self.fields, self.key) if kind == PARQUET else read_jsonl(path)
            yield str(path), rows


def _kind(path: Path) -> str | None:
    """jsonl or parquet by the name, whatever it is packed with."""
    name = path.name.lower()
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    return next((kind for kind, suffixes in SUFFIXES.items() if name.endswith(suffixes)), None)


def demo_corpus(split: str = "train") -> Iterator[Document]:
    """The documents of one of the `DEMO_SPLITS` of the small corpus written for this project."""
    path = Path(__file__).with_name("corpora") / "demo.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["split"] == split:
            yield document_from_row(row)
