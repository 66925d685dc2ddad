"""When an evaluation is done, and which answers it shares with others."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toolformer.stages.evaluation_identity import comparison, identity

from tests.benchmarks.test_loaders import SVAMP, write
from tests.conftest import Log, Patch
from tests.pages.page import Page
from tests.processes import config, trained
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.settings import PAPER_SYSTEMS
from toolformer.errors import UserError
from toolformer.evaluation import suite
from toolformer.stages import evaluation_identity
from toolformer.stages.evaluate import finished, model_folder, train_run
from toolformer.stages.launch import run_stage
from toolformer.tracking import Tracker
from toolformer.training.checkpoints import RECORD


@pytest.fixture
def reasons(monkeypatch: Patch) -> list[str]:
    """As long as there are some, answers meet a fault, for each of them in turn."""
    found: list[str] = []
    original = Decoder.complete

    def complete(decoder: Decoder, prompts: Any, documents: Any, *, on_batch: Any, **named: Any) -> Any:
        def keep(batch: Any, answers: Any) -> None:
            if found:
                answers = [
                    replace(answer, failed=found[n % len(found)], fault=True)
                    for n, answer in zip(batch, answers, strict=True)
                ]
            on_batch(batch, answers)

        return original(decoder, prompts, documents, on_batch=keep, **named)

    monkeypatch.setattr(Decoder, "complete", complete)
    return found


def fault_line(caplog: Log) -> str:
    (line,) = [record.getMessage() for record in caplog.records if "met a fault" in record.getMessage()]
    caplog.clear()
    return line


def test_answers_that_met_a_fault_are_asked_again_until_the_same_faults_came_twice(
    tmp_path: Path, tiny_folder: Path, reasons: list[str], counted: list[str], caplog: Log
) -> None:
    more = [f"model={tiny_folder}", "system=model", "evaluation.limit=4", "decoding.batch_size=4"]
    command, runs = "toolformer evaluate something", []
    for given in (["a", "b"], ["b"]):
        reasons[:] = given
        run = run_stage("evaluate", config(tmp_path, *more), command=command)
        runs.append(run.run_id)
        assert fault_line(caplog).endswith(command) and finished(config(tmp_path, *more)) is None
        assert run.metrics["dateset/n_faults"] == 4 and run.metrics["dateset/n_failed"] == 0
    done = run_stage("evaluate", config(tmp_path, *more)).run_id
    assert done not in runs and len(counted) == 3 * 4
    for _ in range(2):  # at its end, and when it is asked for again
        said = f"4 answers met a fault (4 b); an earlier run met the same, so that run {done[:8]} counts"
        assert said in fault_line(caplog)
        assert finished(config(tmp_path, *more)) == done
        assert run_stage("evaluate", config(tmp_path, *more)).run_id == done and len(counted) == 3 * 4
    reasons.clear()
    whole = run_stage("evaluate", config(tmp_path, *more, "name=other"))  # as the line says
    assert len(counted) == 4 * 4 and whole.metrics["dateset/n_faults"] == 0
    assert run_stage("evaluate", config(tmp_path, *more, "name=other")).run_id == whole.run_id


def test_only_what_decides_an_answer_tells_evaluations_apart(
    tmp_path: Path, tiny_folder: Path, monkeypatch: Patch
) -> None:
    first = trained(tmp_path, tiny_folder)
    tracker = Tracker(None, tmp_path)

    def named(run: str, *more: str) -> tuple[str, str]:
        found = identity(config(tmp_path, "system=toolformer", *more), ["dateset"], tracker.get(run))
        return found.folder, found.evaluation

    same = named(first)
    for word in (
        "decoding.batch_size=8", "tool.search.filter_threshold=0.3", "tool.search.tries=2", "lm.device=cpu",
        "decoding.name_bias={translation:1}", "decoding.stand_in={search:translation}",  # not among the tools
    ):  # fmt: skip
        assert named(first, word) == same, word
    for word in (
        "decoding.k=3", "decoding.constrain_tool_name=false", "lm.dtype=bfloat16",
        "decoding.name_bias={search:1}", "decoding.stand_in={search:qa}", "tool.search.implementation.max_tokens=5",
    ):  # fmt: skip
        assert named(first, word)[0] != same[0], word
    with monkeypatch.context() as edited:
        assert evaluation_identity.decoding_code().keys() >= {"decoder.py", "calls.py", "language_model.py"}
        edited.setattr(evaluation_identity, "decoding_code", lambda: {"decoder.py": "edited"})
        assert named(first)[0] != same[0], "another decoder answers anew"
    # Of the policies' values only the one that is read decides.
    bias = ("decoding.policy=bias", "decoding.bias=2.0")
    biased = [named(first, *bias, f"decoding.k={k}") for k in (3, 10, 0)]
    assert biased[0] == biased[1] != same and biased[2] == named(first, "decoding.k=0") != biased[0]
    for word in ("seed=7", "evaluation.limit=3", "wording=a"):
        assert named(first, word)[0] == same[0] and named(first, word)[1] != same[1], word
    # Trained again as configured before, the weights may be others.
    assert named(trained(tmp_path, tiny_folder))[0] != same[0]
    # `lm.dtype=auto` is bfloat16 on one machine and float32 on another that shares the folder of runs.
    monkeypatch.setattr("toolformer.lm.loading.native_bfloat16", lambda _: True)
    assert named(first) == same


def test_what_must_be_equal_to_stand_in_one_table(tmp_path: Path, monkeypatch: Patch) -> None:
    def of(*more: str) -> str:
        return comparison(config(tmp_path, *more))

    same = of("system=toolformer")
    for word in (
        "system=model", "system=baseline", "decoding.k=3", "benchmarks=[svamp]", "name=other", "decoding.batch_size=2",
        "tool.search.tries=9", "evaluation.bootstrap=9", "trainer.max_steps=3", "seed=3",
    ):  # fmt: skip
        assert of(word) == same, word
    biased = [of(f"system={system}", "decoding.policy=bias", "decoding.bias=2.0") for system in PAPER_SYSTEMS]
    assert set(biased) == {same}, "systems that do not call are the same under every policy"
    for word in (
        "evaluation.limit=5", "evaluation.samples=[a]", "decoding.max_calls=2", "lm.dtype=bfloat16",
        "tools=[qa]", "tool.search.implementation.max_tokens=5", "heldout.limit=9", f"paths.data_dir={tmp_path}",
    ):  # fmt: skip
        assert of(word) != same, word
    assert of("wording=paper") == same and of("wording=b") == f"{same}-b"
    monkeypatch.setattr(evaluation_identity, "decoding_code", lambda: {"decoder.py": "edited"})
    assert of("system=toolformer") != same


def test_other_rules_of_scoring_make_another_evaluation_of_the_same_answers(
    tmp_path: Path, tiny_folder: Path, counted: list[str]
) -> None:
    Page("extending").write_files(tmp_path)
    tasks = tmp_path / "tasks"
    more = [f"model={tiny_folder}", "system=model", "benchmarks=[moons_quiz]", f"paths.tasks_dir={tasks}"]
    first = run_stage("evaluate", config(tmp_path / "runs", *more))
    assert len(counted) == 2 == first.metrics["moons_quiz/n"]
    for name in (".notes", "nohup.out", "run.log"):  # which decide nothing
        (tasks / name).write_text("x")
    assert finished(config(tmp_path / "runs", *more)) == first.run_id
    (tasks / "rows.jsonl").write_text("1")
    assert finished(config(tmp_path / "runs", *more)) is None
    (tasks / "rows.jsonl").unlink()
    moved = Path(shutil.copytree(tasks, tmp_path / "moved"))
    assert suite.scoring(["moons_quiz"], moved) == suite.scoring(["moons_quiz"], tasks)
    with (tasks / "moons.yaml").open("a") as file:
        file.write("# edited\n")
    second = run_stage("evaluate", config(tmp_path / "runs", *more))
    assert second.run_id != first.run_id and len(counted) == 2, "no prompt is asked again"
    task = (tasks / "moons.yaml").read_text()
    task = task.replace("!function toolformer.benchmarks.tasks.question_prompt", "'{{question}}'")
    (tasks / "moons.yaml").write_text(task)
    with pytest.raises(UserError, match="moons_quiz has a custom prompt without paraphrases"):
        run_stage("evaluate", config(tmp_path / "runs", *more, "wording=a"))


def test_the_data_of_a_benchmark_decides_an_evaluation(
    tmp_path: Path, tiny_folder: Path, monkeypatch: Patch
) -> None:
    """The folder of the data holds the runs; what they write is no data, nor is another benchmark's file."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "svamp/svamp", [SVAMP])
    more = [f"model={tiny_folder}", "system=model", "paths.data_dir=.", "benchmarks=[svamp]"]
    done = run_stage("evaluate", config(Path(), *more))
    write(tmp_path, "asdiv/asdiv", [SVAMP])
    assert finished(config(Path(), *more)) == done.run_id
    write(tmp_path, "svamp/svamp", [SVAMP, {**SVAMP, "id": "other"}])
    assert finished(config(Path(), *more)) is None
    # Of a task of the user's own, whose files are not known, all count but those of the runs.
    for name in ("mine/notes.txt", "MLQA_V1/test/a.json", "runs/x.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    state = {Path(name).name for name in suite.data_state(["moons"], str(tmp_path), tmp_path / "runs")}
    assert {"a.json", "notes.txt", "svamp.jsonl.gz"} <= state and "x.jsonl" not in state


def test_a_model_is_read_only_below_the_folder_of_runs(tmp_path: Path, tiny_folder: Path) -> None:
    root, moved = tmp_path / "runs", tmp_path / "moved"
    place = Path("train", "augmented-0123", "model")
    shutil.copytree(tiny_folder, root / place)
    trained(root, root / place)
    shutil.move(root, moved)
    tracker = Tracker(None, moved)

    def latest() -> Path:
        return model_folder(tracker, train_run(tracker, "latest", "augmented"))

    assert latest() == moved / place
    shutil.rmtree(moved / place)
    with pytest.raises(UserError, match="is no longer at"):
        latest()
    link = (moved / place).with_name("link")
    link.symlink_to(tiny_folder)
    for hostile in (str(tiny_folder), "..", "/../..", "x/..", f"{tiny_folder}/..", str(link)):
        tags = {"data": "augmented", "model_path": hostile}
        with tracker.run(stage="train", name="t", fingerprint=hostile, config={}, tags=tags):
            pass
        with pytest.raises(UserError):
            latest()


def test_the_weights_tell_answers_apart_wherever_the_runs_are(
    tmp_path: Path, tiny_folder: Path, counted: list[str], monkeypatch: Patch
) -> None:
    # The weights of a tiny model are among the files that are too large to be hashed.
    monkeypatch.setattr("toolformer.stages.identity.LARGEST_HASHED", 20_000)
    root = tmp_path / "runs"
    model = Path("train", "augmented-0123", "model")
    trained(root, root / model)

    def train(root: Path, seconds: float) -> None:
        shutil.copytree(tiny_folder, root / model, copy_function=shutil.copyfile, dirs_exist_ok=True)
        (root / model / RECORD).write_text(json.dumps({"run": "the same", "step": 1, "seconds": seconds}))

    train(root, 12.345678)
    more = ["system=toolformer_disabled", "evaluation.limit=3"]
    done = run_stage("evaluate", config(root, *more))
    assert len(counted) == 3
    copy, moved = tmp_path / "copy", tmp_path / "moved"
    shutil.copytree(root, copy, copy_function=shutil.copyfile)  # as `cp -r`: everything has another time
    assert run_stage("evaluate", config(copy, *more)).run_id == done.run_id
    shutil.move(copy, moved)
    run_stage("evaluate", config(moved, *more, "evaluation.bootstrap=40"))
    assert len(counted) == 3, "the same weights at another place"
    shutil.rmtree(moved / model)
    assert finished(config(moved, *more)) == done.run_id, "a model that is gone undoes nothing"
    train(moved, 12.345679)
    assert finished(config(moved, *more)) == done.run_id
    run_stage("evaluate", config(moved, *more, "evaluation.limit=4"))
    assert len(counted) == 3 + 4, "no answer of the weights that were there before"
