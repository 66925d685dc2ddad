"""The folder that an export becomes: whole, or marked as unfinished by what it holds; never one that holds something else."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from toolformer.errors import UserError
from toolformer.results import Run
from toolformer.storage import acquired, atomic_write, content_digest, into_place, lock_file, writing

CARD = "README.md"
UNFINISHED = ".unfinished"
"""Inside the folder, until it is whole: a kill leaves nothing beside it, and the next export takes its place."""


@contextmanager
def export_folder(folder: Path, run: Run, **options: Any) -> Iterator[Path | None]:
    """Yields a folder to fill, a card among its files, which are those of `folder` once the block ends without an exception.

    None if `folder` holds this export of the run already, with the same options.

    Raises:
        UserError: `folder` holds something else, another process exports there, or it cannot be written.
    """
    source = [run.id, sorted(run.digests.items()), sorted(options.items())]
    key = hashlib.sha256(json.dumps(source, default=str).encode()).hexdigest()[:16]
    unfinished, is_new = folder / UNFINISHED, not folder.exists()
    with writing(folder):
        if not is_new and (not folder.is_dir() or any(folder.iterdir())) and not unfinished.exists():
            if folder.is_dir() and _seal(folder, key) in _text(folder / CARD):
                yield None
                return
            raise UserError(f"export: {folder} exists and is not an empty folder; name a new one")
        unfinished.mkdir(parents=True, exist_ok=True)
    lock = lock_file(unfinished / "lock")
    if not acquired(lock):
        raise UserError(f"export: another process exports to {folder}; wait for it, or name another folder")
    try:
        with writing(folder):
            made = unfinished / "made"
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            yield made
            text = f"{_text(made / CARD)}\n{_seal(made, key)}\n"
            atomic_write(made / CARD, text.encode())
            for path in sorted(
                made.iterdir(), key=lambda path: path.name == CARD
            ):  # the card says that all is there
                target = folder / path.name
                if target.is_dir():  # of an export that was killed here
                    shutil.rmtree(target)
                into_place(path, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        lock.release()
        with suppress(OSError):  # nothing was made
            folder.rmdir()


def _seal(folder: Path, key: str) -> str:
    """The last line of a card: what was exported, and a hash of all other files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CARD)
    digests: Mapping[str, str] = {
        path.relative_to(folder).as_posix(): content_digest(path)
        for path in files
        if UNFINISHED not in path.relative_to(folder).parts
    }
    content = hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:16]
    return f"<!-- toolformer export {key}, files {content} -->"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
