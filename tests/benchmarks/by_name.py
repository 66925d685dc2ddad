"""Tasks as lm-eval makes them from their files."""

from __future__ import annotations

import logging
from typing import Any

from lm_eval.tasks import TaskManager

from benchmarks import TASKS_DIR


def task(name: str, **metadata: Any) -> Any:
    """The task, with its documents loaded."""
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    manager = TaskManager(include_path=TASKS_DIR, include_defaults=False, metadata=metadata)
    return manager.load([name])["tasks"][name]


def documents(name: str, **metadata: Any) -> list[dict[str, Any]]:
    """The documents of the task."""
    return [dict(row) for row in task(name, **metadata).test_docs()]
