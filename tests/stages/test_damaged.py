"""Results that were damaged or deleted after they were finished: said in one line, and made again by the same command."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Capture, Refused, smoke_words
from toolformer.cli import main
from toolformer.tracking import Tracker


def flip(path: Path) -> None:
    """One bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def test_a_dataset_with_a_flipped_bit_is_made_again(root: Path, refused: Refused) -> None:
    tracker = Tracker(None, root)
    (run,) = tracker.runs("generate")
    path = tracker.artifact_path(run, "dataset_augmented.parquet")
    whole = path.read_bytes()
    flip(path)
    line = refused("train", *smoke_words(root), "data=augmented", "trainer.max_steps=2")
    said = f"dataset_augmented.parquet of generate run {run.run_id[:8]} is damaged; give its command again: "
    assert f"{said}toolformer generate experiment=smoke" in line
    assert main(["generate", *smoke_words(root)]) == 0
    assert path.read_bytes() == whole
    assert [made.run_id for made in tracker.runs("generate")] == [run.run_id], "what names it finds it"


def test_the_experiment_makes_damaged_candidates_again(root: Path) -> None:
    tracker = Tracker(None, root)
    (run,) = tracker.runs("generate")
    path = tracker.artifact_path(run, "candidates.parquet")
    whole = path.read_bytes()
    flip(path)
    assert main(["run", *smoke_words(root), "system=model"]) == 0
    assert path.read_bytes() != whole, "nothing of this experiment reads it"
    assert main(["run", *smoke_words(root), "system=toolformer"]) == 0
    assert path.read_bytes() == whole


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_samples_are_made_again_from_the_answers(
    root: Path, damage: Callable[[Path], None], counted: list[str], refused: Refused
) -> None:
    tracker = Tracker(None, root)
    (run,) = tracker.runs("evaluate", system="toolformer")
    path = tracker.artifact_path(run, "samples/dateset.parquet")
    whole = path.read_bytes()
    damage(path)
    line = refused("compare", "latest:model", run.run_id, "name=smoke", f"paths.root={root}")
    assert f"samples/dateset.parquet of evaluate run {run.run_id[:8]} is damaged" in line
    assert main(["evaluate", *smoke_words(root), "system=toolformer"]) == 0
    assert path.read_bytes() == whole and not counted
    assert len(tracker.runs("evaluate", system="toolformer")) == 1


def test_a_report_names_a_cut_ladder_and_the_command_makes_it_again(
    root: Path, counted: list[str], capsys: Capture
) -> None:
    place = f"paths.root={root}"
    assert main(["explain", "latest", "name=smoke", place]) == 0
    tracker = Tracker(None, root)
    (run,) = tracker.runs("explain")
    path = tracker.artifact_path(run, "ladder/dateset.parquet")
    whole = path.read_bytes()
    cut(path)
    counted.clear()
    assert main(["report", "name=smoke", place]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        f"ladder/dateset.parquet of explain run {run.run_id[:8]} is damaged; give its command again" in shown
    )
    assert main(["explain", "latest", "name=smoke", place]) == 0
    assert path.read_bytes() == whole and not counted and len(tracker.runs("explain")) == 1
