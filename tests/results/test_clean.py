"""What a root holds, what of it is not needed, and that nothing else is removed."""

from pathlib import Path

import pytest

from tests.build import Capture, at_work, made, step
from toolformer.cli import main
from toolformer.results import Results
from toolformer.results.clean import removable, remove, sizes
from toolformer.step import Step
from toolformer.storage import lock_file

SHARDS = Step("annotate", 1, {"seed": 1})
ANSWERS = Step("answer", 1, {"k": 10})


def write(path: Path, size: int = 1000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def of_shards(results: Results, **settings: object) -> Step:
    """An annotation whose shards are there."""
    write(results.path(SHARDS) / "1.parquet", 5000)
    return Step("generate", 1, settings, {"annotation": SHARDS})


def test_work_that_a_finished_run_is_made_of_may_go(results: Results) -> None:
    made(results, of_shards(results))
    write(results.path(ANSWERS) / "answers.jsonl", 3000)
    made(results, Step("evaluate", 1, {}, {"answers": ANSWERS}))
    assert [(item.folder, item.size) for item in removable(results)] == [
        (results.path(SHARDS), 5000),
        (results.path(ANSWERS), 3000),
    ]


def test_shards_that_another_annotation_resumes_from_stay(results: Results) -> None:
    made(results, of_shards(results))
    with pytest.raises(ValueError), at_work(results, of_shards(results, more=True)):
        raise ValueError("broken")
    assert removable(results) == []


def test_shards_of_no_finished_annotation_stay(results: Results) -> None:
    of_shards(results)
    assert removable(results) == []


def test_a_run_that_failed_keeps_its_records_alone(results: Results) -> None:
    with pytest.raises(ValueError), at_work(results, step("train")) as folder:
        write(folder.path / "checkpoints" / "checkpoint-8" / "model.safetensors", 7000)
        raise ValueError("broken")
    (item,) = removable(results)
    assert (item.what, item.size) == ("files of failed runs of train", 7000) and remove(item)
    assert results.all_runs()[0].status == "FAILED"
    assert not (folder.path / "checkpoints").exists() and (folder.path / "step.json").is_file()


def test_a_finished_trainings_model_stays(results: Results) -> None:
    with at_work(results, step("train")) as folder:
        model = write(folder.path / "model" / "model.safetensors")
        folder.artifact(model, "model")
    assert removable(results) == [] and results.is_intact(results.get(folder.id))


@pytest.mark.parametrize("result", ["", '{"status": "FINISHED"}'])
def test_a_model_with_a_damaged_or_older_result_stays(results: Results, result: str) -> None:
    with at_work(results, step("train")) as folder:
        folder.artifact(write(folder.path / "model" / "model.safetensors"), "model")
    (folder.path / "result.json").write_text(result)
    assert removable(results) == []


@pytest.mark.parametrize("result", ["", "{}", '{"status": "FINISHED"}'])
def test_a_damaged_or_older_result_is_not_a_killed_run(results: Results, result: str) -> None:
    run = results.get(made(results, step("train")))
    (run.folder / "result.json").write_text(result)
    assert results.get(run.id).status == "DAMAGED"


def test_files_that_vanish_meanwhile_count_nothing(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    write(results.root / "generate" / "a.parquet", 4000)
    gone = [results.root / "generate" / "b.parquet", results.root / "answer"]
    real = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: [*real(path), *(g for g in gone if g.parent == path)])
    assert sizes(results.root) == {"generate": 4000, "answer": 0}


def test_nothing_of_a_run_at_work_is_offered(results: Results) -> None:
    write(results.root / "tools" / "search.sqlite")
    with at_work(results, step("train")) as folder:
        write(folder.path / "checkpoints" / "model.safetensors")
        assert removable(results) == []
    assert [item.what for item in removable(results)] == ["cached results of tools"]


@pytest.mark.parametrize("lock", ["lock", "claims/1.lock"])
def test_a_folder_that_was_taken_meanwhile_stays(results: Results, lock: str) -> None:
    made(results, of_shards(results))
    (item,) = removable(results)
    with lock_file(item.folder / lock):
        assert not remove(item)
    assert (item.folder / "1.parquet").is_file()


def test_a_file_with_two_names_counts_once(results: Results) -> None:
    file = write(results.root / "generate" / "a.parquet", 4000)
    (results.root / "artifacts").mkdir()
    (results.root / "artifacts" / "a.parquet").hardlink_to(file)
    assert sizes(results.root) == {"generate": 4000, "artifacts": 0}


def test_the_command_asks_and_removes(
    results: Results, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(results, of_shards(results))
    words = ["runs", "clean", f"paths.root='{results.root}'"]
    assert main(words) == 0
    assert "nothing was removed; --yes removes it" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: "n")
    assert main(words) == 0 and results.path(SHARDS).exists()
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert main(words) == 0 and not any(results.path(SHARDS).iterdir())
    assert "shards of finished annotations" in capsys.readouterr().out
    assert main([*words, "--yes"]) == 0
    assert "nothing to remove" in capsys.readouterr().out
