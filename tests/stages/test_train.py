"""The train stage: what its runs tell, and which of them answer a command given again."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Capture
from toolformer.annotation.results import SCHEMAS
from toolformer.calls import ApiCall, insert
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.stages.config import Config, compose, validate
from toolformer.stages.evaluate import model_folder
from toolformer.stages.launch import run_stage
from toolformer.stages.train import finished
from toolformer.tracking import Run, Tracker

TEXTS = [f"Of {n},400 people 400 passed, and {n} did not; the rest came late that day." for n in range(6)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with held-out texts, and runs with an annotation: a call in every text."""
    (tmp_path / "heldout.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in TEXTS[:2]))
    call = {"tool": "calculator", "position": 2}
    written = [insert(text, [(2, ApiCall("Calculator", "1 + 1", "2"))]) for text in TEXTS]
    tags = {"experiment": "default"}
    with tracker(tmp_path).run(stage="generate", name="g", fingerprint="g", config={}, tags=tags) as run:
        for name, texts, calls in (("augmented", written, [call]), ("plain", TEXTS, [])):
            rows = [{"doc_id": f"t{n}", "text": text, "calls": calls} for n, text in enumerate(texts)]
            path = tmp_path / f"dataset_{name}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS[path.name]), path)
            run.artifact(path)
    return tmp_path


def tracker(place: Path) -> Tracker:
    return Tracker(None, place / "runs")


def config(place: Path, model: Path, *more: str) -> Config:
    words = [
        f"model={model}", f"paths.root={place / 'runs'}", "heldout=jsonl", f"heldout.path={place / 'heldout.jsonl'}",
        "trainer.max_steps=3", "trainer.batch_size=1", "trainer.micro_batch_size=1", "trainer.sequence_length=64",
        "trainer.eval_every=1", "trainer.log_every=1", "trainer.warmup_ratio=0", "lm.device=cpu", *more,
    ]  # fmt: skip
    return validate(compose("train", words))


def train(config: Config) -> Run:
    run: Run = run_stage("train", config)
    return run


def test_a_run_tells_the_perplexity_of_the_kept_model_not_of_the_last_evaluation(
    place: Path, tiny_folder: Path, capsys: Capture
) -> None:
    given = config(place, tiny_folder, "trainer.learning_rate=1")
    run = train(given)
    curve = dict(tracker(place).history(run, "heldout_perplexity") or ())
    best = min((1, 2, 3), key=lambda step: curve[step])
    assert best < 3, "the last evaluation is the best: it proves nothing"
    assert run.metrics["best_step"] == best
    assert run.metrics["best_heldout_perplexity"] == curve[best]
    assert run.metrics["heldout_perplexity"] == curve[3] and sorted(curve) == [0, 1, 2, 3]
    assert run.metrics["overall_tokens_per_second"] > 0
    assert train(given) == run
    assert main(["runs", f"paths.root={place / 'runs'}", "--stage", "train"]) == 0
    assert f"best heldout perplexity {curve[best]:g}" in capsys.readouterr().out


def test_a_run_that_its_time_ended_answers_no_command_with_more(place: Path, tiny_folder: Path) -> None:
    short, whole = (config(place, tiny_folder, *more) for more in (["trainer.max_hours=1e-9"], []))
    first = train(short)
    assert first.metrics["train_steps"] == 1 and first.tags["ended_by_max_hours"] == "1e-09"
    assert train(short) == first and finished(short) == first.run_id
    assert finished(whole) is None
    second = train(whole)
    assert second.run_id != first.run_id and second.metrics["train_steps"] == 3
    assert "ended_by_max_hours" not in second.tags
    assert [step for step, _ in tracker(place).history(second, "loss") or ()] == [2, 3]
    assert finished(short) == finished(whole) == second.run_id
    kept = {model_folder(tracker(place), run) for run in (first, second)}
    assert len(kept) == 2, "each run has the model that it made"


def test_a_dataset_that_cannot_be_read_is_one_line(place: Path, tiny_folder: Path) -> None:
    (run,) = tracker(place).all_runs(stage="generate")
    path = tracker(place).artifact_path(run, "dataset_augmented.parquet")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match="dataset_augmented.parquet cannot be read .*again"):
        train(config(place, tiny_folder))
    pq.write_table(pa.table({"words": ["a"]}), path)
    with pytest.raises(
        UserError, match="dataset_augmented.parquet cannot be read .*it has no column text.*again"
    ):
        train(config(place, tiny_folder))


def test_a_runs_tag_leads_nowhere_else(place: Path, tiny_folder: Path) -> None:
    given = config(place, tiny_folder)
    first = train(given)
    model = model_folder(tracker(place), first)
    (model.parent.parent / "training.json").write_text('{"heldout_perplexity": 1}')
    same = first.tags["fingerprint"]
    with tracker(place).run(stage="train", name="t", fingerprint=same, config={}) as run:
        run.tag("model_path", f"{model}/..")
    with pytest.raises(UserError, match="is no file name"):
        train(given)
