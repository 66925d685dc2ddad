"""The files that decide what this project's tasks ask and how their answers are scored, by content.

An evaluation that was scored by other rules is another one. Imports neither lm-eval nor a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import TASKS_DIR


def code() -> dict[str, str]:
    """The Python files with loaders, prompts and scores: each one's place in the folder of the tasks, and its SHA-256."""
    return hashed(TASKS_DIR, [*TASKS_DIR.glob("*.py"), *TASKS_DIR.glob("loaders/*.py")])


def task_files(tasks: Sequence[str]) -> dict[str, str]:
    """The files of tasks, and those that tasks share, as `code` gives them; a task of the user's own has none here."""
    own = [file for task in tasks for file in TASKS_DIR.glob(f"*/{task}.yaml")]
    return hashed(TASKS_DIR, [*TASKS_DIR.glob("_*.yaml"), *own])


def hashed(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """Each file's place in the folder and its SHA-256, in the places' order."""
    found = {}
    for file in sorted(files):
        with file.open("rb") as opened:
            found[file.relative_to(folder).as_posix()] = hashlib.file_digest(opened, "sha256").hexdigest()
    return found
