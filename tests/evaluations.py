"""Evaluations of tiny models: their configuration, and a train run that they may name."""

import shutil
from pathlib import Path

from toolformer.stages.config import Config, compose, validate
from toolformer.tracking import Tracker


def words(root: Path, *more: str) -> list[str]:
    return [
        f"paths.root={root}", "name=tiny", "heldout=demo", "heldout.limit=3", "evaluation.bootstrap=20",
        "benchmarks=[dateset]", *more,
    ]  # fmt: skip


def config(root: Path, *more: str) -> Config:
    return validate(compose("evaluate", words(root, *more)))


def trained(root: Path, folder: Path) -> str:
    """A train run that left the model of a folder where a training leaves it, which is where it is looked for; its id."""
    place = (
        folder
        if folder.is_relative_to(root / "train")
        else root / "train" / f"of-{folder.parent.name}" / folder.name
    )
    if not place.exists() and folder.exists():
        shutil.copytree(folder, place)
    tags = {"experiment": "tiny", "data": "augmented", "model_path": str(place)}
    with Tracker(None, root).run(stage="train", name="t", fingerprint="f", config={}, tags=tags) as run:
        return run.run_id
