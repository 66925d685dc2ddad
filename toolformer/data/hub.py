"""Data sets of the Hugging Face hub, streamed; no code of a data set is run."""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolformer.data.document import BadRow, listed, value_at
from toolformer.data.files import is_saved
from toolformer.data.jsonl import LONGEST, TOO_LONG
from toolformer.data.row_corpus import RowCorpus, Rows
from toolformer.errors import UserError, one_line
from toolformer.storage import files_digest


@dataclass
class HubCorpus(RowCorpus):
    """Documents of a split of a hub data set, of a local folder in the hub's layout, or of `save_to_disk`'s output.

    A broken stream ends the run, even without `strict`, so that an error never silently truncates a corpus.
    """

    path: str
    subset: str | None = None
    """The data set's configuration, if it has several."""
    split: str = "train"

    def digest(self) -> str:
        """Digest of a folder's files; for a data set on the hub its name and commit, which later readings read, too."""
        folder = self._folder()
        if folder.is_dir():
            files = (file for file in sorted(folder.rglob("*")) if file.is_file())
            return files_digest([*files], folder)
        return f"{self.path} {self._commit}"

    @functools.cached_property
    def _commit(self) -> str:
        from huggingface_hub import HfApi

        try:
            return str(HfApi().dataset_info(self.path).sha)
        except Exception as error:  # offline, unknown, gated ...
            raise self._refusal(error) from error

    def _folder(self) -> Path:
        folder = Path(self.path).expanduser()
        if folder.is_file():
            raise UserError(f"{self.key}.path: {self.path} is a file; {self.key}=files reads it by its name")
        return folder

    def _refusal(self, error: Exception) -> UserError:
        reason = f"the data set {self.path} cannot be streamed ({one_line(error)})"
        return UserError(f"{self.key}.path: {reason}; check {self.key}.subset and {self.key}.split")

    def sources(self) -> Iterator[tuple[str, Rows]]:
        """The name and rows of the data set."""
        yield self.path, self._rows(self._open())

    def _rows(self, rows: Any) -> Rows:
        number = 0
        try:
            for number, row in enumerate(rows, start=1):
                yield f"row {number}", BadRow(TOO_LONG) if self._is_too_long(row) else row
        except Exception as error:  # storage, network and readers raise many types
            reason = f"the data set {self.path} breaks off after row {number} ({one_line(error)})"
            raise UserError(f"{self.key}.path: {reason}; {self._advice(error)}") from error

    def _advice(self, error: BaseException) -> str:
        """Only a network's failure goes away by itself: files of one data set must have the same columns and types."""
        if Path(self.path).expanduser().is_dir():
            return f"if its files differ in their columns or types, {self.key}=files reads them one by one"
        if re.search(r"cast|column|schema|type", f"{type(error).__name__} {error}", re.IGNORECASE):
            remedy = f"download it, and read it with {self.key}=files {self.key}.path=FOLDER"
            return f"if its files differ in their columns or types, {remedy}"
        return "run the same command again"

    def _is_too_long(self, row: Any) -> bool:
        cells = (value_at(row, name) for name in self.fields.named()) if isinstance(row, Mapping) else ()
        return any(isinstance(cell, str | bytes) and len(cell) > LONGEST for cell in cells)

    def _open(self) -> Any:
        from datasets import load_dataset, load_from_disk

        folder = self._folder()
        revision = None if folder.is_dir() else self._commit
        try:
            if is_saved(folder):
                rows = load_from_disk(str(folder))
                rows = (rows[self.split] if isinstance(rows, dict) else rows).with_format(None)
            else:
                rows = load_dataset(
                    self.path, self.subset, split=self.split, streaming=True, revision=revision
                )
        # Offline, unknown, gated, without this subset or split, requiring custom code ...
        except Exception as error:
            raise self._refusal(error) from error
        known = rows.column_names
        if known is None:
            return rows
        self.known.update(dict.fromkeys(known))
        used = {name if name in known else name.partition(".")[0] for name in self.fields.named()}
        if not {self.fields.text_field, self.fields.text_field.partition(".")[0]} & set(known):
            reason = f"the data set {self.path} has no field {self.fields.text_field!r}"
            raise UserError(f"{self.key}.text_field: {reason}; it has {listed(known)}")
        return rows.select_columns([name for name in known if name in used])
