"""`toolformer lm_eval ...` and `lm_eval ...`: lm-eval's own command line with this project's model and tasks in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import TASKS_DIR


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    from toolformer.lm_eval_command import run

    return run(arguments)


def is_ours(arguments: Sequence[str]) -> bool:
    """Whether the words ask for the model `toolformer` or include this project's folder of tasks."""
    flag = ""
    for word in arguments:
        name, equals, value = word.partition("=")
        flag, value = (name, value) if equals and name.startswith("-") else (flag, word)
        if flag in ("--model", "-M") and value == "toolformer":
            return True
        if flag == "--include_path" and _names_our_tasks(value):
            return True
        flag = word if word.startswith("-") else ""
    return False


def _names_our_tasks(path: str) -> bool:
    if Path(path).is_dir():
        return Path(path).resolve() == TASKS_DIR.resolve()
    return path.rstrip("/") == TASKS_DIR.name
