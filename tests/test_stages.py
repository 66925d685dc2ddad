"""All four stages with a tiny random model: lineage, resumption, thresholds without a model, sweeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolformer import build, text_generator
from toolformer.annotation.funnel import STEPS
from toolformer.annotation.shards import CANDIDATES
from toolformer.calls import strip
from toolformer.cli import main
from toolformer.config import CONF, SYSTEMS, Config, compose, validate
from toolformer.errors import UserError
from toolformer.generate import Generated, Rows
from toolformer.launch import run_stage
from toolformer.loading import number_format
from toolformer.reporting.reader import read
from toolformer.tools.base import Result
from toolformer.tracking import Tracker

TEXTS = [
    "From 1994 to 2011 it was 17 years, and then 3 more.",
    "A total of 252 matches and 723 goals, an average of 2.87 each.",
    "Today the library is closed, so read at home.",
    "We had 4 * 30 minutes = 120 minutes of fun.",
    "No number here, only words about the weather.",
    "Of 1,400 people 400 passed, 1,000 did not.",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stages")
    rows = [
        {"text": text, "url": f"https://example.org/2020/05/{n + 1:02d}/x", "id": f"t{n}"}
        for n, text in enumerate(TEXTS)
    ]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def words(place: Path, model: Path, *more: str, root: str = "runs") -> list[str]:
    """A configuration so small that a random model gets through it, and so lax that it keeps calls."""
    return [
        f"model={model}", f"paths.root={place / root}", "name=tiny", "tools=[calculator,calendar]",
        "corpus=jsonl", f"corpus.path={place / 'corpus.jsonl'}", "propose.force_name=true", "generate.shard_size=2",
        "tool.calculator.samples=3", "tool.calculator.max_positions=3", "tool.calculator.max_call_tokens=8",
        "tool.calendar.samples=4", "tool.calendar.start_threshold=0.0", "tool.calendar.max_call_tokens=8",
        "tool.calendar.filter_threshold=-100", "tool.calculator.filter_threshold=-100",
        "tool.calendar.implementation._target_=tests.test_stages.YesCalendar",
        "tool.calculator.implementation._target_=tests.test_stages.YesCalculator",
        "heldout=jsonl", f"heldout.path={place / 'corpus.jsonl'}",
        "trainer.max_steps=2", "trainer.batch_size=1", "trainer.micro_batch_size=1", "trainer.sequence_length=64",
        "trainer.eval_every=1", "trainer.log_every=1", "evaluation.limit=6", "evaluation.perplexity_limit=3",
        "evaluation.bootstrap=50", *more,
    ]  # fmt: skip


class YesCalendar:
    """A tool that answers anything: what a random model writes is no expression."""

    name = "Calendar"

    def __init__(self, **_: object) -> None:
        """Takes what the real one takes."""

    def run(self, inputs: list[str], documents: list[Any]) -> list[Result]:
        return [Result("yes") for _ in inputs]


class YesCalculator(YesCalendar):
    name = "Calculator"


def config(stage: str, place: Path, model: Path, *more: str, root: str = "runs") -> Config:
    return validate(compose(stage, words(place, model, *more, root=root)))


@pytest.fixture(scope="module")
def generated(place: Path, lax_model: Path) -> Generated:
    made: Generated = run_stage("generate", config("generate", place, lax_model))
    return made


@pytest.fixture(scope="module")
def lax_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that has learnt to write short calls, so that some parse."""
    from tests.conftest import teach, tiny_model, tiny_tokenizer

    folder = tmp_path_factory.mktemp("lax") / "model"
    tokenizer = tiny_tokenizer()
    model = tiny_model("gpt2", len(tokenizer), context=1024)
    teach(model, tokenizer, ["x [Calendar()] y [Calculator(1 + 2)] z"] * 150)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tracker(place: Path, root: str = "runs") -> Tracker:
    return Tracker(None, place / root)


def test_candidates_and_datasets_are_what_they_promise(generated: Generated) -> None:
    candidates = pq.read_table(generated.folder / "candidates.parquet")
    assert candidates.schema.equals(CANDIDATES)
    rows = candidates.to_pylist()
    scored = [row for row in rows if row["status"] == "scored"]
    assert scored and {row["tool"] for row in scored} >= {"calendar"}
    for row in rows:
        known = [row[name] is not None for name in ("loss_result", "loss_no_result", "loss_none", "gain")]
        assert all(known) if row["status"] == "scored" else not any(known)
    for row in scored:
        assert row["gain"] == pytest.approx(min(row["loss_none"], row["loss_no_result"]) - row["loss_result"])
    augmented = pq.read_table(generated.folder / "dataset_augmented.parquet").to_pylist()
    plain = pq.read_table(generated.folder / "dataset_plain.parquet").to_pylist()
    assert [row["doc_id"] for row in augmented] == [row["doc_id"] for row in plain]
    for with_calls, without in zip(augmented, plain, strict=True):
        assert with_calls["calls"] and not without["calls"]
        assert strip(with_calls["text"]) == without["text"] == TEXTS[int(without["doc_id"][1:])]
        assert without["date"] == f"2020-05-{int(without['doc_id'][1:]) + 1:02d}"


def test_the_funnel_adds_up(generated: Generated) -> None:
    for counts in generated.funnel.values():
        assert counts["documents"] == len(TEXTS)
        assert sum(counts["reasons"].values()) == len(TEXTS)
        assert counts["sampled"] == counts["scored"] + sum(counts["drop_reasons"].values())
        assert counts["kept"] <= counts["scored"]
        assert counts["scored"] == counts["kept"] + sum(counts["filter_reasons"].values())
        steps = [counts[step] for step in STEPS]
        assert len(steps) == 9 and steps[4:] == sorted(steps[4:], reverse=True)
    assert generated.funnel["calculator"]["reasons"]["fewer than three numbers"] >= 2


def test_another_threshold_needs_no_model(
    place: Path, lax_model: Path, generated: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(text_generator, "load", refuse)
    strict = config(
        "generate",
        place,
        lax_model,
        "tool.calendar.filter_threshold=100",
        "tool.calculator.filter_threshold=100",
    )
    made = run_stage("generate", strict)
    assert made.texts == 0 and made.run_id != generated.run_id
    took = [tracker(place).get(one.run_id).metrics["annotation_seconds"] for one in (generated, made)]
    assert took[0] == took[1] > 0, "what the reused shards cost"
    assert (made.folder / "candidates.parquet").read_bytes() == (
        generated.folder / "candidates.parquet"
    ).read_bytes()
    assert run_stage("generate", config("generate", place, lax_model)).run_id == generated.run_id


def test_another_baseline_needs_no_model(
    place: Path, lax_model: Path, generated: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(text_generator, "load", refuse)
    made = run_stage("generate", config("generate", place, lax_model, "filter.baseline=plain"))
    assert made.run_id != generated.run_id
    assert (made.folder / "candidates.parquet").read_bytes() == (
        generated.folder / "candidates.parquet"
    ).read_bytes()
    rows = pq.read_table(made.folder / "candidates.parquet").to_pylist()
    plain = {
        (row["doc_id"], row["tool"], row["position"], row["loss_none"] - row["loss_result"])
        for row in rows
        if row["status"] == "scored"
    }
    calls = [
        (row["doc_id"], call["tool"], call["position"], call["gain"])
        for row in pq.read_table(made.folder / "dataset_augmented.parquet").to_pylist()
        for call in row["calls"]
    ]
    assert calls and set(calls) <= plain
    annotation = read(tracker(place), "tiny").annotation
    assert annotation and annotation.run.run_id == made.run_id
    assert {example.gain for example in annotation.examples} <= {gain for *_, gain in plain}


def test_an_interrupted_annotation_gives_the_same_bytes(
    place: Path, lax_model: Path, generated: Generated
) -> None:
    command = [sys.executable, "-m", "toolformer.cli", "generate", *words(place, lax_model, root="killed")]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, cwd=CONF.parent, env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((place / "killed").glob("generate/*/shards/0*.sha256")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {
        path: path.stat().st_mtime_ns for path in (place / "killed").glob("generate/*/shards/0*.sha256")
    }
    assert before
    made = run_stage("generate", config("generate", place, lax_model, root="killed"))
    for name in ("candidates.parquet", "dataset_augmented.parquet", "dataset_plain.parquet", "funnel.json"):
        assert (made.folder / name).read_bytes() == (generated.folder / name).read_bytes()
    assert all(path.stat().st_mtime_ns == time_ for path, time_ in before.items())


def test_samples_do_not_depend_on_the_shards(place: Path, lax_model: Path, generated: Generated) -> None:
    other = run_stage("generate", config("generate", place, lax_model, "generate.shard_size=5", root="other"))
    columns = ["doc_id", "tool", "position", "sample", "call", "status"]
    one = pq.read_table(generated.folder / "candidates.parquet", columns=columns)
    assert one.equals(pq.read_table(other.folder / "candidates.parquet", columns=columns))


def test_the_pipeline_and_its_lineage(place: Path, lax_model: Path, generated: Generated) -> None:
    trained = {
        data: run_stage(
            "train", config("train", place, lax_model, f"data={data}", f"dataset={generated.run_id}")
        )
        for data in ("augmented", "plain")
    }
    runs = tracker(place)
    for data, one in trained.items():
        run = runs.get(one.run_id)
        assert run.tags["lineage.dataset_run_id"] == generated.run_id and run.tags["data"] == data
        assert run.name == f"train {lax_model.name} {data}"
        assert f"](#/runs/{generated.run_id})" in run.tags["mlflow.note.content"]
        assert runs.get(generated.run_id).tags["dtype"] == number_format("auto", "auto")
        from transformers import AutoModelForCausalLM

        AutoModelForCausalLM.from_pretrained(one.model)
        name = {"augmented": "toolformer", "plain": "toolformer-cc"}[data]
        assert run.tags["registered_model"] == f"models:/{name}/1"
        assert run.tags["dtype"] == number_format("auto", "auto") != "auto"
        assert run.metrics["perplexity_texts"] > 1
        assert ("perplexity_calls" in run.metrics) == (data == "augmented")
    for system in ("model", "model_cc", "toolformer_disabled", "toolformer"):
        done = run_stage("evaluate", config("evaluate", place, lax_model, f"system={system}"))
        assert done.metrics["dateset/n"] == 6 and done.metrics["heldout_perplexity/n"] == 3
        run = runs.get(done.run_id)
        data = {"model_cc": "plain", "toolformer": "augmented", "toolformer_disabled": "augmented"}.get(
            system
        )
        assert run.tags.get("lineage.train_run_id") == (trained[data].run_id if data else None)
        assert run.tags["dtype"] == number_format("auto", "auto")
        assert run.tags["experiment"] == "tiny" and run.name.startswith(f"{SYSTEMS[system]} {lax_model.name}")
        samples = pq.read_table(runs.artifact_path(run, "samples/dateset.parquet"))
        assert samples.num_rows == 6
        if system != "toolformer":
            assert not any(samples["tool"].to_pylist())
        again = run_stage("evaluate", config("evaluate", place, lax_model, f"system={system}"))
        assert again.run_id == done.run_id
    named = {
        reference: run_stage("evaluate", config("evaluate", place, lax_model, f"model={reference}")).run_id
        for reference in ("latest", "models:/toolformer/1", "models:/toolformer/latest")
    }
    assert set(named.values()) == {done.run_id}, "the same checkpoint by another name"
    for reference, reason in (
        ("models:/toolformer/7", "has versions 1 of toolformer"),
        ("models:/other/1", "no version of other"),
        ("models:/toolformer", "write models:/NAME/VERSION"),
    ):
        with pytest.raises(UserError, match=reason):
            run_stage("evaluate", config("evaluate", place, lax_model, f"model={reference}"))
    report = run_stage("report", config("report", place, lax_model))
    for path in (report.markdown, report.latex, report.html):
        assert "Toolformer (disabled)" in Path(path).read_text()


def test_examples_are_counted_by_the_tools_of_the_data(place: Path, lax_model: Path) -> None:
    made = run_stage("generate", config("generate", place, lax_model, root="counted"))
    rows = pq.read_table(made.folder / "dataset_augmented.parquet").to_pylist()
    expected = Counter(f"examples/{tool}" for row in rows for tool in {one["tool"] for one in row["calls"]})
    assert expected["examples/calendar"]
    one = run_stage("train", config("train", place, lax_model, "tools=[search]", root="counted"))
    metrics = tracker(place, "counted").get(one.run_id).metrics
    assert {key: value for key, value in metrics.items() if key.startswith("examples/")} == expected


def test_a_sweep_makes_child_runs_under_one_parent(
    place: Path, lax_model: Path, generated: Generated
) -> None:
    run_stage("train", config("train", place, lax_model, f"dataset={generated.run_id}"))
    arguments = ["evaluate", "-m", *words(place, lax_model), "decoding.k=0,1,3", "benchmarks=[dateset]"]
    assert main(arguments) == 0
    assert main(arguments) == 0  # nothing is left to do
    children = [run for run in tracker(place).runs("evaluate") if "mlflow.parentRunId" in run.tags]
    assert sorted(run.tags["decoding.k"] for run in children) == ["0", "1", "3"]
    (parent,) = {run.tags["mlflow.parentRunId"] for run in children}
    assert "toolformer evaluate -m" in tracker(place).get(parent).tags["mlflow.note.content"]
    for run in children:  # each says its own command
        command = run.tags["mlflow.note.content"].splitlines()[-2]
        assert command.startswith("toolformer evaluate") and f"decoding.k={run.tags['decoding.k']}" in command


def test_nothing_kept_is_one_line(
    place: Path, lax_model: Path, generated: Generated, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = words(
        place, lax_model, "tool.calendar.filter_threshold=99", "tool.calculator.filter_threshold=99"
    )
    made = run_stage("generate", validate(compose("generate", strict)))
    assert main(["train", *strict, f"dataset={made.run_id}"]) == 2
    assert "kept no call" in capsys.readouterr().err


def test_bad_rows_are_skipped_or_refused(
    place: Path, lax_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place / "bad.jsonl"
    path.write_text('{"text": "Of 2 and 3 we get 5 in all."}\n{broken\n\n{"text": ""}\n')
    arguments = ["generate", *words(place, lax_model), f"corpus.path={path}", "name=bad"]
    assert main([*arguments, "corpus.strict=true"]) == 2
    assert f"{path}, line 2: malformed JSON" in capsys.readouterr().err
    assert main(arguments) == 0
    (run, *_) = tracker(place).runs("generate")
    assert run.metrics["rows_skipped"] == 2
    assert run.metrics["rows_skipped/malformed JSON"] == run.metrics["rows_skipped/empty text"] == 1
    annotation = read(tracker(place), "bad").annotation
    assert annotation and annotation.skipped == {"malformed JSON": 1, "empty text": 1}
    path.write_text("{broken\n")
    assert main(arguments) == 2
    assert "no document with text" in capsys.readouterr().err


def test_documents_with_one_id_are_told_apart(place: Path) -> None:
    path = place / "twice.jsonl"
    path.write_text(
        '{"text": "one", "id": 1}\n{"text": "two", "id": 1}\n{"text": "three"}\n{"text": "three"}\n'
    )
    found = build.documents(validate(compose("generate", ["corpus=jsonl", f"corpus.path={path}"])).corpus)
    assert [document.text for document in found] == ["one", "three"]


def test_an_empty_table_is_not_held(tmp_path: Path) -> None:
    """Of a large corpus most shards keep nothing: a million empty tables would be gigabytes."""
    schema = pa.schema({"n": pa.int64()})
    with Rows(tmp_path / "rows.parquet", schema) as rows:
        empty = schema.empty_table()
        held = weakref.ref(empty)
        rows.add(empty)
        del empty
        assert held() is None
        rows.add(pa.table({"n": [1, 2]}, schema=schema))
        rows.add(schema.empty_table())
        rows.add(pa.table({"n": [3]}, schema=schema))
    assert pq.read_table(tmp_path / "rows.parquet")["n"].to_pylist() == [1, 2, 3]
    with Rows(tmp_path / "none.parquet", schema):
        pass
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0
