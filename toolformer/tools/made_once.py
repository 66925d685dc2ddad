"""A folder that is made once: under a lock, in a scratch folder beside its place, and moved there when it is whole.

Processes may ask for it at once and be killed at any time: what a killed one left is removed by the next that makes it.
Knows nothing of what is in the folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

log = logging.getLogger(__name__)


def made_once(
    place: Path,
    make: Callable[[Path], None],
    workshop: Path,
    is_whole: Callable[[Path], bool] = Path.is_dir,
    replaces: bool = False,
) -> None:
    """Makes the folder, unless it is whole already.

    Args:
        make: fills the empty folder that it is given; if it raises, nothing is left.
        workshop: the folder for locks and scratch folders, on the same file system as `place`.
        is_whole: whether the folder is what `make` makes.
        replaces: what stands in its place and is not whole goes; otherwise that is an error.

    Raises:
        OSError: nothing can be written, or something else is in its place.
    """
    if is_whole(place):
        return
    with lock(workshop / ".locks" / f"{place.name}.lock"):
        if is_whole(place):  # another process may have been first
            return
        scratch = scratch_of(place, workshop)
        shutil.rmtree(scratch, ignore_errors=True)  # of a killed process: nobody else is here under the lock
        made = scratch / "made"
        made.mkdir(parents=True)
        try:
            make(made)
            place.parent.mkdir(parents=True, exist_ok=True)
            if replaces and place.exists():
                os.replace(place, scratch / "old")
            os.replace(made, place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def scratch_of(place: Path, workshop: Path) -> Path:
    """Where a folder is made: no other thing's, and no name that a user's own folder has."""
    told = os.fsencode(place.absolute())
    return workshop / f".making-{place.name}-{hashlib.sha256(told).hexdigest()[:16]}"


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Holds a lock file that processes agree by; the system lets go of it when a process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(path)
    try:
        held.acquire(timeout=0.2)
    except Timeout:
        log.info("%s: another process is at it; waiting for it to finish", path.name.strip("."))
        held.acquire()
    try:
        yield
    finally:
        held.release()
