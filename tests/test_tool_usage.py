"""The tools' runtime in the stages: the same bytes with and without the cache, and figures in MLflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.processes import SHARDS, Place, save_calling_model, who_did
from toolformer.cli import main
from toolformer.config import compose, validate
from toolformer.engine.ray import _outcome, _row
from toolformer.engine.work import Outcome
from toolformer.launch import run_stage
from toolformer.tools.base import Result
from toolformer.tools.runtime import Usage
from toolformer.tracking import Tracker

DOCUMENTS = 2 * SHARDS


class AwayCalendar:
    """A tool whose server is away."""

    name = "Calendar"

    def __init__(self, **_: object) -> None:
        """Takes what the real one takes."""

    def run(self, inputs: list[str], documents: list[Any]) -> list[Result]:
        return [Result(reason="server is away", fault=True) for _ in inputs]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("usage")
    save_calling_model(folder / "model")
    return Place(folder, folder / "model")


def generate(place: Place, root: Path, *more: str) -> dict[str, float]:
    """The metrics of a run of the annotation, the newest under its root."""
    root.mkdir(exist_ok=True)
    place.prepare(root)
    assert main(place.words(root, *more, pause=0)) == 0
    name = next((word.removeprefix("name=") for word in more if word.startswith("name=")), "default")
    (run,) = [run for run in place.runs(root) if run.tags["experiment"] == name]
    return dict(run.metrics)


def test_the_same_bytes_with_and_without_the_cache(place: Place, tmp_path: Path) -> None:
    """And a later run, of other samples, finds the results of the earlier one."""
    plain = generate(place, tmp_path / "plain")
    assert plain["tools/calendar/calls"] == plain["tools/calendar/executed"] == DOCUMENTS
    assert plain["tools/calendar/faults"] == plain["tools/calendar/hit_rate"] == 0
    assert plain["tools/calendar/calls_per_second"] > 0
    assert not (tmp_path / "plain" / "tools").exists()
    place.log.unlink()
    cached = tmp_path / "cached"
    assert generate(place, cached, "tool.calendar.cache=true")["tools/calendar/hit_rate"] == 0
    assert place.candidates(cached) == place.candidates(tmp_path / "plain")
    (file,) = (cached / "tools").glob("calendar-*.sqlite")
    asked = who_did(place.log)
    again = generate(place, cached, "tool.calendar.cache=true", "name=again", "seed=1")
    assert again["tools/calendar/calls"] == DOCUMENTS and again["tools/calendar/executed"] == 0
    assert again["tools/calendar/hit_rate"] == 1
    assert who_did(place.log) == asked, "the tool itself was asked again"
    assert list((cached / "tools").glob("*.sqlite")) == [file]


def test_a_tool_that_is_away_ends_no_run(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = "tool.calendar.implementation._target_=tests.test_tool_usage.AwayCalendar"
    metrics = generate(place, tmp_path, target, "tool.calendar.cache=true")
    assert metrics["tools/calendar/faults"] == metrics["tools/calendar/calls"] == DOCUMENTS
    assert metrics["calls_kept"] == 0
    (funnel,) = tmp_path.glob("generate/*/*/funnel.json")
    assert json.loads(funnel.read_text())["calendar"]["drop_reasons"]["server is away"] > 0
    line = f"calendar: {DOCUMENTS} of {DOCUMENTS} calls met a fault: {DOCUMENTS} server is away"
    assert line in " ".join(capsys.readouterr().err.split())


def test_an_evaluation_counts_its_calls(tmp_path: Path) -> None:
    """A model that writes the calendar's call whatever it is asked; dated examples, the real calendar, its cache."""
    save_calling_model(tmp_path / "model", result="Today")
    store = Tracker(None, tmp_path)
    tags = {"data": "augmented", "model_path": str(tmp_path / "model")}
    with store.run(stage="train", name="by hand", fingerprint="f", config={}, tags=tags):
        pass
    words = [
        f"paths.root={tmp_path}", "benchmarks=[dateset]", "evaluation.limit=12", "evaluation.bootstrap=20",
        "tools=[calendar]", "tool.calendar.cache=true", "decoding.k=400", "heldout.limit=1",
    ]  # fmt: skip
    done = run_stage("evaluate", validate(compose("evaluate", words)))
    figures = {
        name.removeprefix("tools/calendar/"): one for name, one in store.get(done.run_id).metrics.items()
    }
    assert figures["calls"] == 12 * done.metrics["dateset/call_share"] > 0
    assert figures["faults"] == 0 and 0 < figures["executed"] <= figures["calls"]


def test_an_outcome_travels_with_its_counts() -> None:
    for tools in ({}, {"qa": Usage(3, 2, {"server is away": 1}, 4, 0.5), "mt": Usage()}):
        outcome = Outcome("000001-abc", True, 7, 1.5, tools=tools)
        assert _outcome(_row(outcome)) == outcome
