"""Contents of a folder of results by size, and the part that may be removed: finished results never need it again.

Nothing of a process at work is removed: it holds a lock in the folder.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from toolformer.results.run import CONFIG, LOCK, METRICS, NAMES, RESULT, RUN_STEPS, STEP
from toolformer.results.store import Results
from toolformer.storage import acquired, lock_file

WORK = {"annotate": "shards of finished annotations", "answer": "answers of finished evaluations"}
"""Folders of steps whose results are not runs. Without them another τ_f is annotated, other benchmarks are answered again."""
CACHE = "tools"
"""The folder of tools' cached results."""
_RECORDS = (STEP, CONFIG, METRICS, RESULT, LOCK, NAMES)
"""Files that an unfinished run keeps."""


@dataclass(frozen=True)
class Removable:
    """Something that is not needed."""

    what: str
    folder: Path
    """Whose locks say that a process is at work."""
    paths: tuple[Path, ...]
    size: int
    """In bytes."""


def sizes(root: Path) -> dict[str, int]:
    """The bytes of each folder and file in the root, the largest first. A file with two names counts for the first of them."""
    seen: set[tuple[int, int]] = set()
    entries = sorted(_entries(root), key=lambda path: (path.name == "artifacts", path.name))
    by_name = {path.name: _size([path], seen) for path in entries}
    return dict(sorted(by_name.items(), key=lambda item: -item[1]))


def removable(results: Results) -> list[Removable]:
    """Unneeded files, the largest first."""
    return sorted(_removable(results), key=lambda item: -item.size)


def _removable(results: Results) -> Iterator[Removable]:
    runs = results.all_runs()
    is_at_work = any(run.status == "RUNNING" for run in runs)
    finished, unfinished = (
        {
            (step.name, step.key())
            for run in runs
            if (run.status == "FINISHED") == is_finished
            for step in run.step.all_steps()
            if step.name in WORK
        }
        for is_finished in (True, False)
    )
    for name, key in finished - unfinished:
        folder = results.root / name / key
        if paths := tuple(_entries(folder)):
            yield Removable(WORK[name], folder, paths, _size(paths))
    for run in runs:
        # Of a run that finished once, and was made again since, the files may still be good.
        is_ended = (run.folder / RESULT).exists()
        if run.stage in RUN_STEPS and run.status in ("FAILED", "KILLED") and not is_ended:
            paths = tuple(path for path in _entries(run.folder) if path.name not in _RECORDS)
            if paths:
                yield Removable(
                    f"files of {run.status.lower()} runs of {run.stage}", run.folder, paths, _size(paths)
                )
    cache = results.root / CACHE
    if cache.is_dir() and not is_at_work:
        yield Removable("cached results of tools", cache, (cache,), _size([cache]))


def remove(item: Removable) -> bool:
    """Removes it unless a process is at work there; whether it did."""
    with ExitStack() as held:
        for path in [item.folder / LOCK, *item.folder.rglob("*.lock")]:
            if not path.is_file():
                continue
            lock = lock_file(path)
            if not acquired(lock):
                return False
            held.callback(lock.release)
        for path in item.paths:
            # Renamed first: a reader meanwhile finds all of it or nothing.
            removed = path.with_name(f".removed-{secrets.token_hex(8)}")
            path.rename(removed)
            if removed.is_dir() and not removed.is_symlink():
                shutil.rmtree(removed)
            else:
                removed.unlink()
    return True


def _size(paths: Iterable[Path], seen: set[tuple[int, int]] | None = None) -> int:
    """The bytes of files and folders; links are not followed, and what others remove meanwhile counts nothing."""
    seen = set() if seen is None else seen
    total = 0
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            total += _size(_entries(path), seen)
            continue
        with suppress(FileNotFoundError):
            state = os.lstat(path)
            if (state.st_dev, state.st_ino) not in seen:
                seen.add((state.st_dev, state.st_ino))
                total += state.st_size
    return total


def _entries(folder: Path) -> list[Path]:
    """Entries of a folder; none if it is gone."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
