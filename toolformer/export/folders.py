"""The folder that an export becomes: whole or absent, and never one that holds something."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolformer.errors import UserError
from toolformer.storage import into_place, writing


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yields a folder to fill, which becomes `folder` when the block ends without an exception.

    UserError if `folder` is not empty, or cannot be written.
    """
    with writing(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"export: {folder} exists and is not an empty folder; name a new one")
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        with writing(folder):
            made = unfinished / "made"
            made.mkdir()
            yield made
            if folder.exists():
                folder.rmdir()
            into_place(made, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
