"""A file of a data folder: its source, its fields, and whether it is the file of the published results."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from toolformer.benchmarks import TASKS
from toolformer.benchmarks.declared import data_files
from toolformer.benchmarks.loaders.published import Conversion
from toolformer.benchmarks.loaders.sources import Placed, Row

Reader = Callable[[Path], Iterator[Placed]]


@dataclass(frozen=True)
class Hub:
    """A split of a data set of the Hugging Face hub: `pin` as in a task's `metadata.hub` (`sources.from_hub`)."""

    pin: Mapping[str, Any]

    def __str__(self) -> str:
        if "data_files" in self.pin:
            return ", ".join(self.pin["data_files"].values())
        subset = self.pin.get("config") or self.pin.get("data_dir")
        return f"{self.pin['path']}{f' ({subset})' if subset else ''}"


@dataclass(frozen=True)
class Address:
    """A file at a public address."""

    url: str
    read: Reader
    """The rows of the downloaded file."""
    sha256: str = ""
    """SHA-256 of the downloaded file; empty where none is known."""

    def __str__(self) -> str:
        address = urlsplit(self.url)
        return "/".join([address.netloc, *address.path.split("/")[1:3]])


@dataclass(frozen=True)
class DataFile:
    """A file of a data folder."""

    name: str
    """Name for `toolformer data get`; for a benchmark, its task."""
    paths: tuple[str, ...]
    """The paths that it may have in the folder."""
    licence: str
    source: Hub | Address
    convert: Conversion
    fields: tuple[str, ...]
    """The fields of a row that loaders or scripts need."""
    rows: int | None = None
    """Rows of the published set; None where it is not known."""
    measured: str = ""
    """`digest` of the file that the published results were measured with; empty if they used none."""
    note: str = ""
    """How the file differs from that one, and where to ask for that one."""

    @property
    def path(self) -> str:
        """The path in the folder that is written."""
        return next(path for path in self.paths if path.endswith(".gz"))

    @property
    def tasks(self) -> list[str]:
        """The benchmarks that read it."""
        return [task for task in TASKS if self.paths in data_files(task)]

    def find(self, folder: Path) -> Path | None:
        """The file in a folder, or None."""
        return next((folder / path for path in self.paths if (folder / path).is_file()), None)

    def digest(self, rows: Iterable[Row]) -> str:
        """SHA-256 of the needed fields of all rows, in their order: a JSON array per line."""
        total = hashlib.sha256()
        for row in rows:
            values = json.dumps([row.get(name) for name in self.fields], sort_keys=True)
            total.update(f"{values}\n".encode())
        return total.hexdigest()
