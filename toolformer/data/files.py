"""Corpora on disk: a file, or a folder of JSON Lines, Parquet (or both) or plain texts; and the demo corpus.

The files of a folder are read in the order of their names.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from toolformer.data.document import Document, document_from_row
from toolformer.data.jsonl import read_jsonl, read_text
from toolformer.data.parquet import read_parquet
from toolformer.data.row_corpus import RowCorpus, Rows
from toolformer.errors import UserError, one_line
from toolformer.storage import files_digest

JSONL, PARQUET, TEXT, MIXED = "jsonl", "parquet", "text", "files"
SUFFIXES = {JSONL: (".jsonl", ".json", ".ndjson"), PARQUET: (".parquet", ".pq"), TEXT: (".txt",)}
PACKED = (".gz", ".bz2", ".zst", ".zstd")
_NAMES = {JSONL: "JSON Lines", PARQUET: "Parquet", TEXT: "plain text"}
DEMO_SPLITS = ("train", "heldout", "sums")
"""Texts of many kinds, held-out ones of the same kinds, and short ones with one or two worked sums."""


@dataclass
class FileCorpus(RowCorpus):
    """Documents of a file or of a folder's files; the rest of a truncated file, or one without texts, is skipped."""

    path: str | Path
    format: str = MIXED
    """jsonl, parquet, text (one document per file), or files: the format by file name."""
    pattern: str | None = None
    """The files of a folder, as a glob (`**/en_head_*.json.gz`); None is all with a known suffix."""

    def __post_init__(self) -> None:
        self.files()

    def files(self) -> list[Path]:
        """The files in the order in which they are read; UserError if there are none."""
        try:
            return self._files(Path(self.path).expanduser())
        except (OSError, RuntimeError, ValueError) as error:  # an invalid pattern, home or name
            pattern = f" with {self.key}.pattern={self.pattern}" if self.pattern else ""
            raise UserError(
                f"{self.key}.path: {self.path}{pattern} cannot be searched ({one_line(error)}); check both keys"
            ) from error

    def _files(self, folder: Path) -> list[Path]:
        if not folder.is_dir():
            if not folder.exists():
                raise UserError(f"{self.key}.path: there is no file {self.path}; name a file or a folder")
            if not folder.is_file():
                raise UserError(
                    f"{self.key}.path: {self.path} is a pipe or a device, which cannot be read twice; save its texts to a file "
                    "(compressed files are read as they are)"
                )
            return [folder]
        if self.pattern and (self.pattern.startswith("/") or ".." in self.pattern.split("/")):
            raise UserError(
                f"{self.key}.pattern={self.pattern} leads out of {self.key}.path; write a glob below it"
            )
        if is_saved(folder) and not self.pattern:
            raise UserError(
                f"{self.key}.path: {folder} was written by save_to_disk; use {self.key}=hub to read it"
            )
        # Folders of JSON Lines or Parquet may contain other files, such as a README.txt.
        kinds = (JSONL, PARQUET) if self.format == MIXED else (self.format,)
        names = [
            path.relative_to(folder)
            for path in folder.glob(self.pattern or "**/*")
            if self.pattern or _kind(path) in kinds
        ]
        names = [name for name in names if not any(part.startswith(".") for part in name.parts)]
        links = (folder / name for name in names if (folder / name).is_symlink())
        if lost := sorted(link for link in links if not link.exists()):
            raise UserError(
                f"{self.key}.path: {lost[0]} links to a missing file ({len(lost)} in all); fix or remove it"
            )
        names = [name for name in names if (folder / name).is_file()]
        if not names:
            suffixes = f"is named {', '.join(suffix for kind in kinds for suffix in SUFFIXES[kind])}"
            criterion = f"matches {self.key}.pattern={self.pattern}" if self.pattern else suffixes
            has_texts = TEXT not in kinds and any(_kind(path) == TEXT for path in folder.glob("**/*"))
            has_tables = any(map(_is_table, folder.glob("**/*")))
            advice = f"use {self.key}=text for its .txt files, or name" if has_texts else "name"
            advice = f"use {self.key}=hub for its .csv files, or name" if has_tables else advice
            raise UserError(
                f"{self.key}.path: no file in {folder} {criterion}; {advice} another folder or {self.key}.pattern"
            )
        return [folder / name for name in sorted(names, key=Path.as_posix)]

    def digest(self) -> str:
        """Digest of the files' names below their common folder and of their content: a copy of a corpus is the same
        corpus."""
        files = self.files()
        return files_digest(files, Path(os.path.commonpath([file.parent for file in files])))

    def sources(self) -> Iterator[tuple[str, Rows]]:
        """The name and rows of each file."""
        for path in self.files():
            kind = self.format if self.format != MIXED else _kind(path)
            if _is_table(path):
                raise UserError(
                    f"{self.key}.path: {path} is a table (CSV) by its name; {self.key}=hub reads a folder of such files: "
                    f"{self.key}=hub {self.key}.path={path.parent}"
                )
            if kind is None:
                reason = f"{path} is neither JSON Lines nor Parquet nor text by its name"
                formats = ", ".join(f"{self.key}={kind}" for kind in SUFFIXES)
                raise UserError(f"{self.key}.path: {reason}; use one of {formats}")
            named = _kind(path)
            if named not in (None, kind) and (kind, named) != (JSONL, TEXT):
                raise UserError(
                    f"{self.key}.path: {path} is {_NAMES[named]} by its name, and {self.key}={kind} reads {_NAMES[kind]}; "
                    f"use {self.key}={named}"
                )
            if kind == PARQUET:
                rows = read_parquet(path, self.fields, self.key, self.known)
            else:
                rows = read_jsonl(path) if kind == JSONL else read_text(path, self.fields.text_field)
            yield str(path), rows


def _is_table(path: Path) -> bool:
    name = path.name.lower()
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    return name.endswith((".csv", ".tsv"))


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` of the library datasets wrote a folder."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def _kind(path: Path) -> str | None:
    """jsonl, parquet or text by the name, without the suffix of a compression."""
    name = path.name.lower()
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    return next((kind for kind, suffixes in SUFFIXES.items() if name.endswith(suffixes)), None)


def demo_file() -> Path:
    """The file of the small corpus written for this project."""
    return Path(__file__).with_name("corpora") / "demo.jsonl"


def demo_corpus(split: str = "train") -> Iterator[Document]:
    """The documents of one of the `DEMO_SPLITS` of the small corpus written for this project."""
    for line in demo_file().read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["split"] == split:
            yield document_from_row(row)[0]
