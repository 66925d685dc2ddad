"""Evaluations of tiny models: their configuration, and a train run that they may name."""

from __future__ import annotations

from pathlib import Path

from toolformer.config import Config, compose, validate
from toolformer.tracking import Tracker


def words(root: Path, *more: str) -> list[str]:
    return [
        f"paths.root={root}", "name=tiny", "heldout=demo", "heldout.limit=3", "evaluation.bootstrap=20",
        "benchmarks=[dateset]", *more,
    ]  # fmt: skip


def config(root: Path, *more: str) -> Config:
    return validate(compose("evaluate", words(root, *more)))


def trained(root: Path, folder: Path) -> str:
    """A train run that left the model of a folder; its id."""
    tags = {"data": "augmented", "model_path": str(folder)}
    with Tracker(None, root).run(stage="train", name="t", fingerprint="f", config={}, tags=tags) as run:
        return run.run_id
