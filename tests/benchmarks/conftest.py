"""A hub that holds what a test puts there: data sets of the schemas of the real ones."""

from __future__ import annotations

from typing import Any

import datasets
import pytest


class Hub:
    """Stands in for `datasets.load_dataset`: by path, split and configuration; keeps what it was asked for."""

    def __init__(self) -> None:
        self.sets: dict[tuple[str, str, str | None], datasets.Dataset] = {}
        self.asked: list[dict[str, Any]] = []

    def add(
        self,
        path: str,
        split: str,
        rows: list[dict[str, Any]],
        config: str | None = None,
        features: datasets.Features | None = None,
    ) -> None:
        self.sets[path, split, config] = datasets.Dataset.from_list(rows, features=features)

    def load_dataset(
        self,
        path: str,
        name: str | None = None,
        *,
        split: str,
        data_dir: str | None = None,
        data_files: dict[str, str] | None = None,
        revision: str | None = None,
    ) -> datasets.Dataset:
        asked = {"path": path, "name": name, "split": split, "data_dir": data_dir, "revision": revision}
        self.asked.append({**asked, "data_files": data_files})
        return self.sets[path, split, name or data_dir]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub()
    monkeypatch.delenv("TOOLFORMER_DATA_DIR", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", made.load_dataset)
    return made
