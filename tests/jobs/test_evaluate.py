"""The evaluation stage with a tiny model: samples by id, checks before the model."""

import datetime
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.build import GOLDEN, SVAMP, Log, Refused, smoke_words, write
from tests.processes import config, run_stage, trained, words
from toolformer.api import Toolformer
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.jobs.evaluate import Work, first_day
from toolformer.results import Results, Run
from toolformer.storage import write_line
from toolformer.training import checkpoints

HELDOUT = ["benchmarks=[heldout_perplexity]", "corpus@heldout=jsonl"]


def sums(count: int) -> list[dict[str, Any]]:
    return [{**SVAMP, "id": f"s{n}", "question": f"How much is {n}?"} for n in range(count)]


def rows(run: Run, task: str) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = pq.read_table(run.folder / "samples" / f"{task}.parquet").to_pylist()
    return samples


def test_all_answers_of_a_folder_are_of_its_first_day(tmp_path: Path, answering_model: Path) -> None:
    """Examples with a date of their own have that."""
    trained(tmp_path, answering_model)
    write(tmp_path, "svamp/svamp", sums(4))
    more = [
        "system=toolformer", f"paths.data_dir={tmp_path}", "benchmarks=[svamp,dateset]", "tools=[calendar]",
        "tool.calendar.max_call_tokens=8", "decoding.k=400",
    ]  # fmt: skip
    first = run_stage("evaluate", config(tmp_path, *more, "evaluation.limit=2"))
    assert first.facts["day"] == datetime.date.today().isoformat()
    (day,) = tmp_path.glob("answer/*/day")
    write_line(day, "2031-03-01")
    done = run_stage("evaluate", config(tmp_path, *more, "evaluation.limit=4"))
    assert done.facts["day"] == "2031-03-01"
    days = {task: {row["call_result"] for row in rows(done, task)} for task in ("svamp", "dateset")}
    assert "Today is Saturday, March 1, 2031." in days["svamp"] - days["dateset"]


@pytest.mark.parametrize("content", [b"", b"2031-0", b"2016-11-29\n", b"\xff"])
def test_a_damaged_day_is_replaced_by_today(tmp_path: Path, content: bytes, caplog: Log) -> None:
    (tmp_path / "day").write_bytes(content)
    assert first_day(tmp_path) == datetime.date.today() == first_day(tmp_path)
    assert [message.partition(" holds")[0] for message in caplog.messages] == [f"evaluate: {tmp_path}/day"]


def test_one_digit_of_a_day_is_not_changed_unseen(tmp_path: Path) -> None:
    write_line(tmp_path / "day", "2026-11-29")
    assert first_day(tmp_path) == datetime.date(2026, 11, 29)
    (tmp_path / "day").write_text((tmp_path / "day").read_text().replace("2026", "2016"))
    assert first_day(tmp_path) == datetime.date.today()
    (tmp_path / "other" / "day").mkdir(parents=True)
    with pytest.raises(UserError, match="cannot write day"):
        first_day(tmp_path / "other")


def test_samples_by_id(tmp_path: Path, tiny_folder: Path, refused: Refused) -> None:
    write(tmp_path, "svamp/svamp", sums(6))
    more = [f"model={tiny_folder}", "system=model", f"paths.data_dir={tmp_path}", "benchmarks=[svamp]"]
    done = run_stage("evaluate", config(tmp_path, *more, "evaluation.samples=[s4,s1]"))
    found = rows(done, "svamp")
    assert [(row["id"], row["target"]) for row in found] == [("s1", ["76.0"]), ("s4", ["76.0"])]
    assert all(row["correct"] == (row["score"] == 100) and row["prediction"] for row in found)
    # The same ids from files are the same work.
    for name, content in (("a.txt", "s1\ns4\n"), ("b.json", '["s4", "s1"]')):
        (tmp_path / name).write_text(content)
        same = run_stage("evaluate", config(tmp_path, *more, f"evaluation.samples={tmp_path / name}"))
        assert same == done
    wrong = words(tmp_path, *more, "evaluation.samples={svamp:[s1,s9]}")
    assert "svamp has no document 's9'" in refused("evaluate", *wrong)


def test_samples_may_name_further_benchmarks(tmp_path: Path, tiny_folder: Path) -> None:
    write(tmp_path, "svamp/svamp", sums(3))
    more = [f"model={tiny_folder}", "system=model", f"paths.data_dir={tmp_path}", "benchmarks=[svamp]"]
    done = run_stage("evaluate", config(tmp_path, *more, "evaluation.samples={svamp:[s1],mawps:[1]}"))
    assert [row["id"] for row in rows(done, "svamp")] == ["s1"]
    assert run_stage("evaluate", config(tmp_path, *more, "evaluation.samples={svamp:[s1]}")) == done


def test_held_out_texts_that_are_none_are_left_out(tmp_path: Path, tiny_folder: Path) -> None:
    texts = tmp_path / "en_head_0000.json"
    contents = ('{"raw_content": "One."}', '{"raw_content": "One."}', '{"raw_content": " "}', '{"text": "x"}')
    texts.write_text("\n".join(contents))
    more = ["system=model", f"model={tiny_folder}", "corpus@heldout=ccnet", f"heldout.path={texts}"]
    run = run_stage("evaluate", config(tmp_path, *more, "benchmarks=[heldout_perplexity]"))
    assert run.tasks["heldout_perplexity"]["n"] == 1


def test_a_checkpoint_of_another_model_is_refused(root: Path, refused: Refused) -> None:
    (run,) = Results(root).runs("train", data="augmented")
    for command in (["evaluate"], ["complete", "On day 3"], ["explain", "latest"]):
        line = refused(*command, "model=gpt2", "name=smoke", f"paths.root={root}")
        assert f"model=gpt2: checkpoint {run.id[:8]} was trained from {GOLDEN}; give model=" in line
    others = [word for word in smoke_words(root) if not word.startswith("model=")]
    assert main(["evaluate", "model=latest", *others, "system=toolformer"]) == 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["benchmarks=[svamp]", "model=/no/such/model"], "there is no folder /no/such/model"),
        (["evaluation.samples=[[1]]"], "must be a list of ids"),
        (["evaluation.samples=/no/such/file"], "/no/such/file cannot be read as ids"),
        ([*HELDOUT, "heldout.path={data}/texts.jsonl"], "heldout: no document has text"),
        # A tool without its files or model. The hub is out of reach in tests: a name of it is a model that is away.
        (["tools=[qa]", "tool.qa.implementation.retriever.articles_path=/no/such/place"],
         "tool.qa.implementation.retriever.articles_path: there is no file or folder /no/such/place"),
        (["tools=[qa]", "tool.qa.implementation.generate.model=nobody/nothing"],
         "tool.qa.implementation: model: nobody/nothing cannot be loaded"),
    ],
)  # fmt: skip
def test_wrong_input_is_refused_before_a_model_is_loaded(
    tmp_path: Path, tiny_folder: Path, more: list[str], said: str, refused: Refused
) -> None:
    """The weights are damaged: a model that is loaded would be the line."""
    root, data = tmp_path / "runs", tmp_path / "data"
    model = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    (model / "model.safetensors").write_bytes(b"none")
    system = [f"model={model}", "system=model"]
    if said.startswith("tool."):
        system = []
        trained(root, model)
    data.mkdir()
    (data / "texts.jsonl").write_text('{"body": "One."}')
    more = [word.replace("{data}", str(data)) for word in more]
    given = words(root, *system, f"paths.data_dir={data}", *more)
    line = refused("evaluate", *given)
    assert said in line
    assert Results(root).all_runs("evaluate") == []


def test_a_model_that_changed_after_its_training_is_refused(
    tiny_folder: Path, tmp_path: Path, refused: Refused
) -> None:
    model = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    checkpoints.write_last(model, checkpoints.RECORD, {"step": 8})
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (model / "model.safetensors").write_bytes(weights)
    line = refused("evaluate", *words(tmp_path / "runs", "system=model"), f"model={model}")
    assert f"{model} is damaged (model.safetensors is not what its training saved)" in line
    with pytest.raises(UserError, match="is damaged"):
        Toolformer.from_pretrained(model)


def test_answers_are_scored_without_the_models_weights(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    write(tmp_path, "svamp/svamp", sums(6))
    model, root = Path(shutil.copytree(tiny_folder, tmp_path / "model")), tmp_path / "runs"
    checkpoints.write_last(model, checkpoints.RECORD, {"step": 8})
    trained(root, model)
    more = ["system=toolformer_disabled", f"paths.data_dir={tmp_path}", "benchmarks=[svamp]"]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Work, "_write", interrupt)
        run_stage("evaluate", config(root, *more))
    (weights,) = root.glob("train/*/model/model.safetensors")
    weights.unlink()
    done = run_stage("evaluate", config(root, *more))
    assert len(rows(done, "svamp")) == 6 and done.metrics["parameters"] > 0
    fewer = run_stage("evaluate", config(root, *more, "evaluation.samples=[s1,s4]"))
    answers = {row["id"]: row["completion"] for row in rows(done, "svamp")}
    assert {row["id"]: row["completion"] for row in rows(fewer, "svamp")}.items() < answers.items()
    assert "has no weights that can be read" in refused("evaluate", *words(root, *more, "wording=a"))


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt
