"""Results that were damaged or deleted after they were finished: reported in one line, made again by the same command."""

from pathlib import Path

from tests.build import Capture, Refused, smoke_words
from toolformer.cli import main
from toolformer.results import Results


def flip(path: Path) -> None:
    """One bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def test_a_damaged_dataset_is_named_and_made_again(root: Path, refused: Refused) -> None:
    results = Results(root)
    (run,) = results.runs("generate")
    path = run.folder / "dataset_augmented.parquet"
    whole = path.read_bytes()
    flip(path)
    line = refused("train", *smoke_words(root), "data=augmented", "trainer.max_steps=2")
    message = f"dataset_augmented.parquet of generate run {run.id[:8]} is damaged; run its command again: "
    assert f"{message}toolformer generate experiment=smoke" in line
    assert main(["generate", *smoke_words(root)]) == 0
    assert path.read_bytes() == whole
    assert [made.id for made in results.runs("generate")] == [run.id]


def test_an_experiment_makes_damaged_candidates_again(root: Path, capsys: Capture) -> None:
    (run,) = Results(root).runs("generate")
    path = run.folder / "candidates.parquet"
    whole = path.read_bytes()
    flip(path)
    assert main(["run", *smoke_words(root), "system=model"]) == 0
    assert path.read_bytes() != whole, "nothing of this experiment reads it"
    assert main(["run", *smoke_words(root), "system=toolformer"]) == 0
    assert f"run: files of generate run {run.id[:8]} are gone or damaged" in capsys.readouterr().err
    assert path.read_bytes() == whole


def test_samples_are_made_again_from_the_answers(root: Path, counted: list[str], refused: Refused) -> None:
    results = Results(root)
    (run,) = results.runs("evaluate", system="toolformer")
    path = run.folder / "samples" / "dateset.parquet"
    whole = path.read_bytes()
    for damage in (flip, cut, Path.unlink):
        damage(path)
        line = refused("compare", "latest:model", run.id, "name=smoke", f"paths.root={root}")
        assert f"samples/dateset.parquet of evaluate run {run.id[:8]} is damaged" in line
    assert main(["evaluate", *smoke_words(root), "system=toolformer"]) == 0
    assert path.read_bytes() == whole and not counted
    assert [made.id for made in results.runs("evaluate", system="toolformer")] == [run.id]
