"""Results in folders: what a run leaves, how it ends and continues, how it is named, and damage."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.build import at_work, made, mounted_read_only, step
from toolformer.errors import UserError
from toolformer.results import Damaged, Listener, Results, Run, RunInfo
from toolformer.results.folder import write_record
from toolformer.step import Step
from toolformer.storage import writing


def test_a_run_has_what_it_logged(results: Results, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("one")
    config = {"a": {"b": 1}, "path": Path("x/y"), "none": None}
    with at_work(results, step(), config, experiment="mine") as folder:
        folder.task("svamp", {"score": 12.5})
        folder.metrics({"nothing": None})
        folder.add_facts(system="toolformer", k=3)
        folder.artifact(tmp_path / "one.txt", "samples")
    run = results.get(folder.id)
    assert run.status == "FINISHED" and run.setting("a.b") == 1 and run.setting("path") == "x/y"
    assert run.tasks == {"svamp": {"score": 12.5}} and set(run.metrics) == {"duration_seconds"}
    assert run.facts["k"] == 3 and run.experiments == {"mine"}
    assert results.artifact(run, "samples/one.txt").read_text() == "one"
    assert yaml.safe_load((run.folder / "config.yaml").read_text()) == {**config, "path": "x/y"}


def test_a_finished_run_is_not_done_again(results: Results) -> None:
    made(results, step(), experiment="first")
    with at_work(results, step(), experiment="second") as done:
        assert isinstance(done, Run)
    assert results.get(done.id).experiments == {"first", "second"}


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("broken\nhere"), "FAILED"), (KeyboardInterrupt(), "KILLED")]
)
def test_a_run_that_did_not_finish_continues(results: Results, error: BaseException, status: str) -> None:
    with pytest.raises(type(error)), at_work(results, step()) as folder:
        folder.metrics({"loss": 4.0}, step=0)
        folder.metrics({"loss": 3.0}, step=1)
        raise error
    assert results.get(folder.id).status == status and results.latest("evaluate") is None
    with at_work(results, step()) as again:
        again.metrics({"loss": 2.5}, step=1)
    run = results.get(folder.id)
    assert run.status == "FINISHED" and run.curve("loss") == [(0, 4.0), (1, 2.5)]


def test_a_curve_survives_incomplete_lines(results: Results) -> None:
    with pytest.raises(ValueError), at_work(results, step()) as folder:
        folder.metrics({"loss": 4.0}, step=0)
        with (folder.path / "metrics.jsonl").open("a") as file:
            file.write('{"step": 1, "lo\n[1]\n{"step": 2}\n{"step": 3, "lo')
        raise ValueError
    with at_work(results, step()) as again:
        again.metrics({"loss": 3.0}, step=3)
    assert results.get(folder.id).curve("loss") == [(0, 4.0), (3, 3.0)]


KILLED = """
    import os, signal, sys, time
    from pathlib import Path
    from toolformer.results import RunInfo, Results
    from toolformer.step import Step
    with Results(Path(sys.argv[1])).open(Step("evaluate", 1, {}), RunInfo("a", {})) as folder:
        print(folder.id, flush=True)
        time.sleep(100)
"""


@pytest.mark.chaos
def test_a_run_at_work_is_left_alone_and_a_killed_one_continued(results: Results) -> None:
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(results.root)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    assert results.get(run_id).status == "RUNNING"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert results.get(run_id).status == "KILLED"
    assert made(results, step()) == run_id and results.get(run_id).status == "FINISHED"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("feedbeef", "there is no run feedbeef in .*; name a run of `toolformer train`"),
        ("FAILED", "is FAILED: run its command again: toolformer train"),
        ("EVALUATE", "is a run of evaluate; name a run of `toolformer train`"),
        ("SHORT", "at least its first 6 characters"),
        ("latest", r"no finished train run with name=mine; name one: \w{8} \(name=other, seed=0\)"),
    ],
)
def test_a_run_that_cannot_be_taken(results: Results, reference: str, message: str) -> None:
    done = made(results, step("train"), experiment="other")
    ids = {"EVALUATE": made(results, step("evaluate")), "SHORT": done[:5]}
    with pytest.raises(RuntimeError), at_work(results, step("train", broken=1)) as folder:
        raise RuntimeError
    ids["FAILED"] = folder.id[:8]
    with pytest.raises(UserError, match=message):
        results.resolve("train", ids.get(reference, reference), "mine")
    assert results.resolve("train", done[:6]).id == results.resolve("train", "latest").id == done


def test_facts_choose_a_run(results: Results) -> None:
    for data in ("augmented", "plain"):
        with at_work(results, step("train", data=data)) as folder:
            folder.add_facts(data=data)
    assert results.resolve("train", "latest", data="augmented").setting("data") == "augmented"
    with pytest.raises(UserError, match="no finished generate run with data=plain"):
        results.resolve("generate", "latest", data="plain")


def test_another_version_is_refused(results: Results) -> None:
    run_id = made(results, step("train"))
    newer = Results(results.root, versions={"train": 2})
    with pytest.raises(UserError, match="was made by version 1 of train, this is 2: run its command again"):
        newer.resolve("train", run_id)


def test_latest_is_the_newest_of_the_experiment_and_seed(results: Results) -> None:
    ids = []
    for seed in (0, 1):
        with at_work(results, step("train", seed=seed), {"seed": seed}, experiment="mine") as folder:
            ids.append(folder.id)
    with at_work(results, step("train", other=1), {"seed": 0}, experiment="other") as folder:
        other = folder.id
    assert [results.resolve("train", "latest", "mine", seed).id for seed in (0, 1)] == ids
    assert results.resolve("train", "latest").id == other
    candidates = rf"{other[:8]} \(name=other, seed=0\), {ids[1][:8]} \(name=mine, seed=1\), {ids[0][:8]}"
    with pytest.raises(
        UserError, match=f"no finished train run with name=mine seed=7; name one: {candidates}"
    ):
        results.resolve("train", "latest", "mine", 7)


def test_a_damaged_file_is_named_and_made_again(results: Results) -> None:
    with at_work(results, step()) as folder:
        folder.text("a.txt", "right")
    (folder.path / "a.txt").write_text("wrong")
    with pytest.raises(Damaged, match="a.txt of evaluate run .* is damaged; run its command again"):
        results.artifact(results.get(folder.id), "a.txt")
    with at_work(results, step()) as again:
        assert not isinstance(again, Run)
        again.text("a.txt", "right")
    assert results.artifact(results.get(folder.id), "a.txt").read_text() == "right"


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("step.json", {"name": 5}), ("step.json", []), ("step.json", {"started": "soon"}),
    ],
)  # fmt: skip
def test_a_record_that_is_none_hides_no_other_run(results: Results, name: str, record: object) -> None:
    run_id, other = made(results, step()), made(results, step(a=1))
    (results.root / "evaluate" / run_id / name).write_text(json.dumps(record))
    assert [run.id for run in results.all_runs()] == [other]


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", ".hidden", "link/work.txt"])
def test_a_runs_folder_leads_nowhere_else(results: Results, tmp_path: Path, name: str) -> None:
    run = results.get(made(results, step()))
    (tmp_path / "work.txt").write_text("years of work")
    (run.folder / "link").symlink_to(tmp_path)
    with pytest.raises(UserError, match="is not a valid file name|leads out of"):
        results.artifact(run, name)


def test_a_run_made_from_an_older_version_is_refused(results: Results) -> None:
    run_id = made(results, step("generate", step("annotate")))
    same, newer = (Results(results.root, versions={"annotate": n, "generate": 1}) for n in (1, 2))
    assert same.resolve("generate", "latest").id == run_id
    with pytest.raises(UserError, match="made by version 1 of annotate, this is 2: run its command again"):
        newer.resolve("generate", "latest")


def test_a_run_of_an_older_tool_is_refused(results: Results) -> None:
    name = "toolformer.tools.calculator.Calculator"
    annotation = Step("annotate", 1, {}, {"tools": {"calculator": [{name: 0}, []]}})
    made(results, step("generate", annotation))
    assert results.resolve("generate", "latest"), "who only reads it may"
    with pytest.raises(UserError, match=f"made by version 0 of {name}, this is "):
        Results(results.root, versions={"generate": 1}).resolve("generate", "latest")


def more_right(path: Path) -> None:
    path.write_text(path.read_text().replace('"score": 12.5', '"score": 99.5'))


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text('{"ended": '), more_right])
def test_a_run_without_its_result_is_not_done(results: Results, damage: Callable[[Path], object]) -> None:
    with at_work(results, step()) as folder:
        folder.task("svamp", {"score": 12.5})
    assert results.done(step())
    damage(results.path(step()) / "result.json")
    assert results.done(step()) is None and results.runs("evaluate") == []


@pytest.mark.parametrize(
    "damage", [lambda text: text.replace('"k": 10', '"k": 30'), lambda text: text.replace('"a": 1', '"a": 2')]
)
def test_a_run_with_a_changed_record_counts_nowhere(results: Results, damage: Callable[[str], str]) -> None:
    """One changed byte would show it in another row, or as the result of other settings."""
    run_id, other = made(results, step(a=1), facts={"k": 10}), made(results, step())
    path = results.root / "evaluate" / run_id / "step.json"
    path.write_text(damage(path.read_text()))
    assert [run.id for run in results.runs("evaluate")] == [other] and results.done(step(a=1)) is None
    assert results.damaged("evaluate") == [run_id]
    assert made(results, step(a=1), facts={"k": 10}) == run_id and results.damaged("evaluate") == []


def test_a_record_of_release_0_3_counts_by_its_key(results: Results) -> None:
    """It has no digest."""
    path = results.root / "evaluate" / made(results, step(a=1)) / "step.json"
    record = json.loads(path.read_text())
    del record["digest"]
    path.write_text(json.dumps(record))
    assert results.done(step(a=1))
    path.write_text(json.dumps({**record, "settings": {"a": 2}}))
    assert results.done(step(a=1)) is None and results.runs("evaluate") == []


def test_a_record_of_a_later_release_has_its_digest(results: Results) -> None:
    later = Step("evaluate", 3, {})
    path = results.root / "evaluate" / made(results, later) / "step.json"
    record = json.loads(path.read_text())
    del record["digest"]
    path.write_text(json.dumps(record))
    assert results.done(later) is None and results.damaged("evaluate") == [later.key()]


@pytest.mark.parametrize("name", [b"others", b"", b"min\xff"])
def test_a_run_with_a_changed_name_counts_nowhere(results: Results, name: bytes) -> None:
    """One changed byte would move it to another experiment."""
    run_id = made(results, step(), experiment="mine")
    made(results, step(), experiment="others")
    mine = next(file for file in results.path(step()).glob("names/*") if file.read_text() == "mine")
    mine.write_bytes(name)
    assert results.runs("evaluate") == [] and results.damaged("evaluate", "mine") == [run_id]
    assert made(results, step(), experiment="mine") == run_id
    assert results.get(run_id).experiments == {"mine", "others"}


def test_the_next_run_ends_one_that_was_killed(results: Results) -> None:
    heard: list[Path] = []
    run_id = made(results, step(a=1))
    path = results.root / "evaluate" / run_id / "step.json"
    write_record(path, {**json.loads(path.read_text()), "status": "RUNNING"})
    (path.parent / "result.json").unlink()
    listener = Listener()
    listener.killed = heard.append  # type: ignore[method-assign]
    for _ in range(2):
        made(Results(results.root, listener), step(a=2))
    assert json.loads(path.read_text())["status"] == "KILLED" and heard == [path.parent]


def test_what_is_finished_is_read_in_a_read_only_root(results: Results) -> None:
    run_id = made(results, step())
    with (
        mounted_read_only(results.root),
        results.open(step(), RunInfo("again", {}, experiment="other")) as run,
    ):
        assert isinstance(run, Run) and run.id == run_id


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "make room or name another"),
        (errno.EACCES, "change permissions or"),
        (errno.ENAMETOOLONG, "kept: name another"),
        (errno.EISDIR, "kept: move the folder away"),
    ],
)
def test_a_failed_write_names_its_target_and_what_helps(code: int, advice: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=advice) as error, writing(tmp_path / "target"):
        raise OSError(
            code, os.strerror(code), "/source" if code == errno.ENOSPC else str(tmp_path / "target")
        )
    assert str(error.value).startswith(f"{tmp_path}: cannot write target")


@pytest.mark.parametrize("name", ["_x", "a@b", "thử nghiệm", "a b.+=-"])
def test_any_name_of_an_experiment_is_kept(results: Results, name: str) -> None:
    made(results, step(), experiment=name)
    assert [run.experiments for run in results.runs("evaluate", name)] == [{name}]


def test_a_tool_may_be_called_step() -> None:
    of_tool = Step("annotate", 1, {}, {"tools": {"step": [{}, []]}, "model": {"step": "x"}})
    assert Step.of_json(json.loads(json.dumps(of_tool.as_json()))).key() == of_tool.key()


def test_a_result_of_a_changed_source_is_not_done(results: Results) -> None:
    """Two trainings with the same settings may come to different weights; one that is gone undoes nothing."""
    training = step("train")
    for weights in ("one", "other"):
        made(results, training, facts={"weights": weights})
        made(results, step("evaluate", training))
        assert results.done(step("evaluate", training))
        shutil.rmtree(results.path(training))
        assert results.done(step("evaluate", training))
    made(results, training, facts={"weights": "another"})
    assert results.done(step("evaluate", training)) is None


def test_the_commands_that_a_refusal_names_make_the_run_again(results: Results) -> None:
    """In order; a later one reads what an earlier one has made by then, for the old one is refused too."""
    data = step("generate")
    made(results, data, command="toolformer generate name=a")
    made(results, step("train", data), command=f"toolformer train name=a dataset={data.key()}")
    newer = Results(results.root, versions={"generate": 2, "train": 1})
    with pytest.raises(UserError) as error:
        newer.resolve("train", "latest")
    order = "in this order: toolformer generate name=a; toolformer train name=a dataset=latest"
    assert str(error.value).endswith(order)


def test_parts_of_a_killed_process_go_with_the_next_one(tmp_path: Path) -> None:
    results, of = Results(tmp_path), step()
    part = results.path(of) / f".file.{'0' * 16}.part"
    part.parent.mkdir(parents=True)
    part.touch()
    with at_work(results, of):
        assert not part.exists()


def test_annotations_that_are_made_again_are_not_all_the_latest(tmp_path: Path) -> None:
    results = Results(tmp_path)
    one, two = (step("generate", number=number) for number in (1, 2))
    ids = [made(results, of, command=f"toolformer generate seed={n}") for n, of in enumerate((one, two))]
    both = Step("train", 1, {}, {"datasets": [one, two]})
    run = made(results, both, command=f"toolformer train dataset={'+'.join(ids)} checkpoint={ids[0]}")
    with pytest.raises(UserError) as error:
        Results(tmp_path, versions={"generate": 2}).resolve("train", run)
    said = str(error.value)
    assert "dataset=RUN+RUN checkpoint=latest" in said and not any(run_id in said for run_id in ids)
    assert "each RUN is the id that an earlier command prints" in said
