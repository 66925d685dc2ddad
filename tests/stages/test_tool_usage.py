"""The tools' runtime in the stages: the same bytes with and without the cache, and figures in MLflow."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.conftest import Capture
from tests.evaluations import config, trained, words
from tests.processes import SHARDS, Place, save_calling_model, who_did
from toolformer.cli import main
from toolformer.stages.launch import run_stage
from toolformer.tools.base import Result
from toolformer.tracking import Tracker

DOCUMENTS = 2 * SHARDS


class AwayCalendar:
    """A tool whose server is away."""

    name = "Calendar"

    def __init__(self, **_: object) -> None:
        """Takes what the real one takes."""

    def run(self, inputs: list[str], documents: list[Any]) -> list[Result]:
        return [Result(reason="server is away", fault=True) for _ in inputs]


def generate(place: Place, root: Path, *more: str, name: str = "default") -> dict[str, float]:
    """The metrics of a run of the annotation."""
    assert main(place.words(root, *more, f"name={name}", pause=0)) == 0
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
    asked = who_did(place.log)
    again = generate(place, cached, "tool.calendar.cache=true", "seed=1", name="again")
    assert again["tools/calendar/calls"] == DOCUMENTS and again["tools/calendar/executed"] == 0
    assert again["tools/calendar/hit_rate"] == 1
    assert who_did(place.log) == asked, "the tool itself was asked again"


def test_a_tool_that_is_away_ends_no_run(place: Place, tmp_path: Path, capsys: Capture) -> None:
    target = "tool.calendar.implementation._target_=tests.stages.test_tool_usage.AwayCalendar"
    metrics = generate(place, tmp_path, target, "tool.calendar.cache=true")
    assert metrics["tools/calendar/faults"] == metrics["tools/calendar/calls"] == DOCUMENTS
    assert metrics["calls_kept"] == 0
    (funnel,) = tmp_path.glob("generate/*/*/funnel.json")
    assert json.loads(funnel.read_text())["calendar"]["drop_reasons"]["server is away"] > 0
    line = f"calendar: {DOCUMENTS} of {DOCUMENTS} calls met a fault: {DOCUMENTS} server is away"
    assert line in " ".join(capsys.readouterr().err.split())


def test_an_evaluation_counts_its_calls_and_leaves_traces(tmp_path: Path, capsys: Capture) -> None:
    """A model that writes the calendar's call whatever it is asked; dated examples, the real calendar, its cache."""
    save_calling_model(tmp_path / "by-hand" / "model", result="Today")
    trained(tmp_path, tmp_path / "by-hand" / "model")
    more = ["evaluation.limit=12", "tools=[calendar]", "tool.calendar.cache=true", "decoding.k=400"]
    evaluated = run_stage("evaluate", config(tmp_path, *more))
    runs = Tracker(None, tmp_path)
    run = runs.get(evaluated.run_id)
    assert run.metrics["tools/calendar/calls"] == 12 * run.metrics["dateset/call_share"] > 0
    assert run.metrics["tools/calendar/faults"] == 0
    assert 0 < run.metrics["tools/calendar/executed"] <= run.metrics["tools/calendar/calls"]
    rows = pq.read_table(runs.artifact_path(run, "samples/dateset.parquet")).to_pylist()
    asked = {row["prompt"]: row["call_result"] for row in rows if row["call_result"]}

    def traces(**chosen: str) -> list[Any]:
        with runs.store.faults() as client:
            place = client.get_experiment_by_name("toolformer").experiment_id
            return list(client.search_traces(locations=[place], **chosen))

    traced = [trace.data.spans for trace in traces(run_id=evaluated.run_id)]
    assert 1 <= len(traced) <= 8
    assert all(asked[root.inputs] == call.outputs for root, call in traced)
    known = {trace.info.trace_id for trace in traces()}
    prompt = next(iter(asked))
    assert main(["complete", prompt, *words(tmp_path, *more)]) == 0
    assert "[Calendar() -> Today is" in capsys.readouterr().out
    (trace,) = (trace for trace in traces() if trace.info.trace_id not in known)
    root, call = trace.data.spans
    assert (root.span_type, root.inputs) == ("CHAIN", prompt)
    assert (call.span_type, call.name, call.inputs) == ("TOOL", "Calendar", "")
    assert root.start_time_ns < call.end_time_ns == root.end_time_ns
