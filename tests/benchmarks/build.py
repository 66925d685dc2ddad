"""Tasks as lm-eval makes them from their files, a hub that holds what a test puts there, and a model that answers by a function."""

import logging
from typing import Any

import datasets
from lm_eval.tasks import TaskManager

from toolformer.benchmarks import TASKS_DIR


class Hub:
    """Stands in for `datasets.load_dataset`: by path, split and configuration; keeps what it was asked for."""

    def __init__(self) -> None:
        self.sets: dict[tuple[str, str, str | None], datasets.Dataset] = {}
        self.asked: list[dict[str, Any]] = []

    def add(self, path: str, split: str, rows: list[dict[str, Any]], config: str | None = None) -> None:
        self.sets[path, split, config] = datasets.Dataset.from_list(rows)

    def load_dataset(
        self, path: str, name: str | None = None, *, split: str, data_dir: str | None = None,
        data_files: dict[str, str] | None = None, revision: str | None = None,
    ) -> datasets.Dataset:  # fmt: skip
        self.asked.append({"name": name, "split": split, "data_dir": data_dir, "revision": revision})
        return self.sets[path, split, name or data_dir]


def task(name: str, **metadata: Any) -> Any:
    """The task, with its documents loaded."""
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    manager = TaskManager(include_path=TASKS_DIR, include_defaults=False, metadata=metadata)
    return manager.load([name])["tasks"][name]


def documents(name: str, **metadata: Any) -> list[dict[str, Any]]:
    """The documents of the task."""
    return [dict(row) for row in task(name, **metadata).test_docs()]
