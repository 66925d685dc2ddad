"""What tells evaluations and their answers apart, and when an evaluation is done."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import TASKS_DIR
from tests.benchmarks.test_loaders import SVAMP, write
from tests.evaluations import config, trained
from toolformer.compare import compare, remarks
from toolformer.decoding.decoder import Completion, Decoder
from toolformer.errors import UserError
from toolformer.evaluate import _job, checkpoint, finished
from toolformer.evaluation_files import data_files, weights
from toolformer.launch import run_stage
from toolformer.tracking import Tracker
from toolformer.training.checkpoints import RECORD


class Faulty:
    """Decoding whose answers meet a fault as long as there are `reasons`, which are taken in turn; `asked` counts prompts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.reasons: list[str] = []
        original = Decoder.complete

        def complete(decoder: Decoder, prompts: Any, documents: Any, *, on_batch: Any, **named: Any) -> Any:
            self.asked += len(prompts)

            def keep(batch: Any, found: Any) -> None:
                on_batch(batch, [self._failed(n, one) for n, one in zip(batch, found, strict=True)])

            return original(decoder, prompts, documents, on_batch=keep, **named)

        monkeypatch.setattr(Decoder, "complete", complete)

    def _failed(self, n: int, completion: Completion) -> Completion:
        if not self.reasons:
            return completion
        return replace(completion, failed=self.reasons[n % len(self.reasons)], fault=True)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Faulty:
    return Faulty(monkeypatch)


def told_of_faults(caplog: pytest.LogCaptureFixture) -> str:
    (told,) = [record.getMessage() for record in caplog.records if "met a fault" in record.getMessage()]
    caplog.clear()
    return told


def test_answers_that_met_a_fault_are_asked_again_by_the_same_command(
    tmp_path: Path, tiny_folder: Path, faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    more = [f"model={tiny_folder}", "system=model", "evaluation.limit=3"]
    command = "toolformer evaluate something"
    faulty.reasons = ["server is away"]
    first = run_stage("evaluate", config(tmp_path, *more), command=command)
    assert first.metrics["dateset/n_faults"] == first.metrics["dateset/n_faults/server is away"] == 3
    assert first.metrics["dateset/n_failed"] == 0 and first.metrics["dateset/n"] == 3
    told = told_of_faults(caplog)
    assert "3 answers met a fault (3 server is away)" in told and told.endswith(command)
    assert finished(config(tmp_path, *more)) is None
    faulty.reasons, faulty.asked = [], 0
    second = run_stage("evaluate", config(tmp_path, *more))
    assert second.run_id != first.run_id and faulty.asked == 3 and second.metrics["dateset/n_faults"] == 0
    assert run_stage("evaluate", config(tmp_path, *more)).run_id == second.run_id and faulty.asked == 3
    assert finished(config(tmp_path, *more)) == second.run_id


def test_an_evaluation_is_done_once_the_same_faults_came_twice(
    tmp_path: Path, tiny_folder: Path, faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    more = [f"model={tiny_folder}", "system=model", "evaluation.limit=4", "decoding.batch_size=4"]
    runs = []
    # As many for other reasons are others, and so are the same ones a number of times more or less.
    for reasons in (["a"], ["b"], ["a", "b"], ["a", "a", "a", "b"]):
        faulty.reasons = reasons
        runs.append(run_stage("evaluate", config(tmp_path, *more)).run_id)
        assert told_of_faults(caplog).endswith("the same command")
        assert finished(config(tmp_path, *more)) is None
    faulty.reasons = ["b"]  # as the last but two
    done = run_stage("evaluate", config(tmp_path, *more)).run_id
    assert done not in runs and faulty.asked == 5 * 4
    for _ in range(2):  # at its end, and when it is asked for again
        told = told_of_faults(caplog)
        assert f"4 answers met a fault (4 b); an earlier run met the same, so that run {done} counts" in told
        assert finished(config(tmp_path, *more)) == done
        assert run_stage("evaluate", config(tmp_path, *more)).run_id == done and faulty.asked == 5 * 4
    caplog.clear()
    # As the line says, either way.
    run_stage("evaluate", config(tmp_path, *more, "name=other"))
    assert faulty.asked == 6 * 4
    with Tracker(None, tmp_path).faults() as client:
        client.delete_run(done)
    assert finished(config(tmp_path, *more)) is None
    faulty.reasons = []
    whole = run_stage("evaluate", config(tmp_path, *more)).run_id
    assert faulty.asked == 7 * 4 and finished(config(tmp_path, *more)) == whole


def test_only_what_decides_an_answer_tells_evaluations_apart(tmp_path: Path, tiny_folder: Path) -> None:
    first = trained(tmp_path, tiny_folder)

    def job(*more: str) -> tuple[Path, str]:
        found = _job(config(tmp_path, "system=toolformer", *more), Tracker(None, tmp_path))
        return found.work, found.finger

    same = job()
    for word in (
        "decoding.batch_size=8", "tool.search.filter_threshold=0.3", "tool.search.tries=2", "lm.device=cpu",
    ):  # fmt: skip
        assert job(word) == same
    for word in ("decoding.k=3", "lm.dtype=bfloat16", "tool.search.implementation.max_tokens=5"):
        assert job(word)[0] != same[0]
    # Trained again as configured before, the weights may be others.
    assert trained(tmp_path, tiny_folder) != first
    assert job()[0] != same[0]
    assert job(f"checkpoint={first}") == same


def test_the_machine_decides_an_answer_and_not_whether_an_evaluation_is_done(
    tmp_path: Path, tiny_folder: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lm.dtype=auto` is bfloat16 on one machine, and float32 on another that shares the folder of runs."""
    more = [f"model={tiny_folder}", "system=model", "evaluation.limit=3"]

    def job(*words: str) -> tuple[Path, str]:
        found = _job(config(tmp_path, *more, *words), Tracker(None, tmp_path))
        return found.work, found.finger

    monkeypatch.setattr("toolformer.loading.native_bfloat16", lambda _: False)
    login = [job(), job("lm.device=cuda")]
    monkeypatch.setattr("toolformer.loading.native_bfloat16", lambda _: True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert [job(), job("lm.device=cuda")] == login
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # there is none to compute on
    done = run_stage("evaluate", config(tmp_path, *more))
    assert len(counted) == 3 and done.metrics["dateset/n"] == 3
    monkeypatch.setattr("toolformer.loading.native_bfloat16", lambda _: False)
    assert finished(config(tmp_path, *more)) == done.run_id
    # Its answers are of another number format, and none of them stands beside those of this machine.
    run_stage("evaluate", config(tmp_path, *more, "evaluation.bootstrap=30"))
    assert len(counted) == 6
    (answers,) = tmp_path.glob("evaluate/*/answers.jsonl")
    assert len(answers.read_text().splitlines()) == 6


def test_other_rules_of_scoring_make_another_evaluation_of_the_same_answers(
    tmp_path: Path, tiny_folder: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = tmp_path / "benchmarks"
    shutil.copytree(TASKS_DIR, rules)
    monkeypatch.setattr("benchmarks.rules.TASKS_DIR", rules)
    more = [f"model={tiny_folder}", "system=model", "evaluation.limit=3"]
    first = run_stage("evaluate", config(tmp_path, *more))
    assert len(counted) == 3 and first.metrics["dateset/score"] < 100

    def edited(name: str) -> None:
        (rules / name).write_text((rules / name).read_text() + "\n# edited\n")

    for name in ("math/svamp.yaml", "README.md", "speed/decode.py"):  # they decide nothing here
        edited(name)
    assert finished(config(tmp_path, *more)) == first.run_id
    monkeypatch.setattr("benchmarks.tasks.answer_in_5_words", lambda doc, results: {"score": 100.0})
    edited("tasks.py")
    second = run_stage("evaluate", config(tmp_path, *more))
    assert second.run_id != first.run_id and second.metrics["dateset/score"] == 100
    assert len(counted) == 3, "no prompt is asked again"
    compared = compare(Tracker(None, tmp_path), first.run_id, second.run_id, resamples=20)
    assert "A and B were scored by different versions of the benchmarks" in remarks(compared)[-1]
    runs = [first.run_id, second.run_id]
    for name in ("temporal/dateset.yaml", "_question.yaml", "loaders/temporal.py"):
        edited(name)
        runs.append(run_stage("evaluate", config(tmp_path, *more)).run_id)
    assert len(set(runs)) == len(runs) and len(counted) == 3
    # Of one code, though of other task files.
    assert not remarks(compare(Tracker(None, tmp_path), runs[1], runs[2], resamples=20))


def test_every_place_that_loaders_know_decides_an_evaluation(tmp_path: Path) -> None:
    for name in ("svamp/svamp.jsonl", "MLQA_V1/test/a.json", "else/notes.txt", "evaluate/run/answers.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("{}")
    found = data_files(str(tmp_path), "/somewhere/else")
    assert [Path(name).name for name, *_ in found] == ["a.json", "notes.txt", "svamp.jsonl"]
    (tmp_path / "MLQA_V1/test/a.json").write_text("{ }")
    assert data_files(str(tmp_path), "/somewhere/else") != found


@pytest.mark.parametrize(
    ("root", "own"),
    [
        (".", ["tools/search-0123.sqlite", "evaluate/notes.json"]),  # one folder is both
        ("runs", ["runs/mlflow.db", "runs/journal.jsonl"]),  # the runs' within that of the data
        ("lama", ["lama/mlflow.db"]),
        ("..", ["tools/search-0123.sqlite"]),  # that of the data within the runs'
    ],
)
def test_what_runs_write_is_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, own: list[str]
) -> None:
    place = tmp_path / "data"
    place.mkdir()
    monkeypatch.chdir(place)
    write(Path(), "svamp/svamp", [SVAMP])
    write(Path(), "lama/trex", [SVAMP])
    found = data_files(".", root)
    assert [Path(name).name for name, *_ in found] == ["trex.jsonl.gz", "svamp.jsonl.gz"]
    for name in own:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("{}")
    assert data_files(".", root) == found == data_files(".", str((place / root).resolve()))
    write(Path(), "svamp/svamp", [SVAMP, SVAMP])
    assert data_files(".", root) != found


def test_a_run_does_not_undo_itself(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the data holds the runs; their store of runs is written anew by every one."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "svamp/svamp", [SVAMP])
    more = [f"model={tiny_folder}", "system=model", "paths.data_dir=.", "benchmarks=[svamp]"]
    done = run_stage("evaluate", config(Path("runs"), *more))
    assert Path("runs/mlflow.db").is_file()
    assert run_stage("evaluate", config(Path("runs"), *more)).run_id == done.run_id


def test_a_model_is_found_where_the_runs_have_been_moved_to(tmp_path: Path, tiny_folder: Path) -> None:
    moved = tmp_path / "moved"
    model = moved / "train" / "augmented-0123" / "model"
    shutil.copytree(tiny_folder, model)
    tracker = Tracker(None, moved)
    tags = {
        "data": "augmented",
        "model_path": str(tmp_path / "before" / "train" / "augmented-0123" / "model"),
    }
    with tracker.run(stage="train", name="t", fingerprint="f", config={}, tags=tags):
        pass
    assert checkpoint(tracker, "latest", "augmented")[1] == model
    shutil.rmtree(model)
    with pytest.raises(UserError, match="is no longer at"):
        checkpoint(tracker, "latest", "augmented")


@pytest.fixture
def small_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of a tiny model are among the files that are too large to be hashed."""
    monkeypatch.setattr("toolformer.tools.sources.LARGEST_HASHED", 20_000)


def train_into(model: Path, source: Path, seconds: float) -> None:
    """What a training leaves: the model, and the record of how it went."""
    shutil.copytree(source, model, copy_function=shutil.copyfile)
    assert (model / "model.safetensors").stat().st_size > 20_000
    (model / RECORD).write_text(json.dumps({"run": "the same settings", "step": 1, "seconds": seconds}))


def test_the_weights_tell_answers_apart_wherever_the_runs_are(
    tmp_path: Path, tiny_folder: Path, counted: list[str], small_hashes: None
) -> None:
    root = tmp_path / "runs"
    model = Path("train", "augmented-0123", "model")
    train_into(root / model, tiny_folder, 12.345678)
    trained(root, root / model)
    more = ["system=toolformer_disabled", "evaluation.limit=3"]
    done = run_stage("evaluate", config(root, *more))
    assert len(counted) == 3
    copy, moved = tmp_path / "copy", tmp_path / "moved"
    shutil.copytree(root, copy, copy_function=shutil.copyfile)  # as `cp -r`: everything has another time
    shutil.rmtree(root)
    assert run_stage("evaluate", config(copy, *more)).run_id == done.run_id
    run_stage("evaluate", config(copy, *more, "evaluation.bootstrap=30"))
    shutil.move(copy, moved)
    run_stage("evaluate", config(moved, *more, "evaluation.bootstrap=40"))
    assert len(counted) == 3, "the same weights at another place"
    shutil.rmtree(moved / model)
    assert finished(config(moved, *more)) == done.run_id, "a model that is gone undoes nothing"
    train_into(moved / model, tiny_folder, 12.345679)
    assert finished(config(moved, *more)) == done.run_id
    run_stage("evaluate", config(moved, *more, "evaluation.limit=4"))
    assert len(counted) == 3 + 4, "no answer of the weights that were there before"


def test_without_a_record_of_its_training_a_model_is_told_by_its_time(
    tmp_path: Path, tiny_folder: Path, small_hashes: None
) -> None:
    train_into(tmp_path / "model", tiny_folder, 1.5)
    file = tmp_path / "model" / "model.safetensors"
    before = weights(tmp_path / "model")
    os.utime(file, ns=(1, 1))
    assert weights(tmp_path / "model") == before
    (tmp_path / "model" / RECORD).unlink()
    before = weights(tmp_path / "model")
    os.utime(file, ns=(2, 2))
    assert weights(tmp_path / "model") != before
