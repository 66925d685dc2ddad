"""`toolformer lm_eval ...` and `lm_eval ...`: lm-eval's own command line with this project's model and tasks in it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks import TASKS_DIR


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    from toolformer.lm_eval_command import run

    return run(arguments)


def is_ours(arguments: Sequence[str]) -> bool:
    """Whether the words ask for the model `toolformer` or include this project's folder of tasks."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--model", "-M", default="")
    parser.add_argument("--model_args", "-a", nargs="*")  # or else an abbreviation of it is taken for --model
    parser.add_argument("--include_path", default="")
    parser.add_argument("--config", "-C", default="")
    try:
        options, _ = parser.parse_known_args(arguments)
    except argparse.ArgumentError:
        return False  # lm-eval says what is wrong
    written = _written(options.config)
    paths = options.include_path or written.get("include_path") or ""
    return "toolformer" in (options.model, written.get("model")) or any(
        _names_our_tasks(str(path)) for path in (paths if isinstance(paths, list) else [paths]) if path
    )


def _written(config: str) -> dict[str, Any]:
    """What lm-eval's `--config FILE` says; nothing where it cannot be read, which lm-eval tells itself."""
    try:
        found = yaml.safe_load(Path(config).read_text(encoding="utf-8")) if config else {}
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def _names_our_tasks(path: str) -> bool:
    if Path(path).is_dir():
        return Path(path).resolve() == TASKS_DIR.resolve()
    return path.rstrip("/") == TASKS_DIR.name
