"""What the report says of settings that differ, of tools that broke down, of other tools in Figure 4, of lost curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.reporting.conftest import accuracy, log_run, perplexity
from toolformer.reporting import reader
from toolformer.reporting.figures import scaling, training
from toolformer.tracking import Tracker


@pytest.fixture
def tracker(tmp_path: Path) -> Tracker:
    return Tracker(None, tmp_path / "runs")


def evaluated(
    tracker: Tracker,
    system: str,
    metrics: Mapping[str, float],
    config: Mapping[str, object] | None = None,
    tags: Mapping[str, str] | None = None,
) -> str:
    """An evaluation with this configuration; its id."""
    found = {"system": system, "decoding.k": "10"} | dict(tags or {})
    fingerprint = f"{system} {sorted(metrics.items())} {config} {tags}"
    logged = {"model": "m"} | dict(config or {})
    with tracker.run(stage="evaluate", name="e", fingerprint=fingerprint, config=logged, tags=found) as run:
        run.metrics(metrics)
    return run.run_id


def settings(
    tool: str = "a.Search", dtype: str = "auto", calls: int = 1, **more: object
) -> dict[str, object]:
    return {
        "seed": 0,
        "tools": ["search"],
        "lm": {"dtype": dtype, "device": more.get("device", "cpu")},
        "tool": {
            "search": {
                "implementation": {"_target_": tool},
                "samples": more.get("samples", 5),
                "cache": more.get("cache", True),
                "timeout": more.get("timeout", 10),
            },
            "qa": {"implementation": {"_target_": more.get("unused", "a.QA")}},
        },
        "decoding": {"max_calls": calls, "batch_size": more.get("batch", 32)},
    }


def test_settings_that_differ_within_a_row_are_said(tracker: Tracker) -> None:
    evaluated(tracker, "toolformer", accuracy("svamp", 5.0), settings("b.Lucene", "float32", 2))
    for task in ("asdiv", "mawps"):
        evaluated(tracker, "toolformer", accuracy(task, 5.0), settings(), {"dtype": "bfloat16"})
    (said,) = reader.read(tracker).remarks
    assert said.startswith("The figures of Toolformer were not all measured alike: ")
    assert "decoding.max_calls is 1 on MAWPS and ASDiv and 2 on SVAMP" in said
    assert "b.Lucene on SVAMP" in said and "lm.dtype is bfloat16 on MAWPS" in said


def test_settings_that_decide_nothing_or_are_of_other_systems_are_not_said(tracker: Tracker) -> None:
    evaluated(tracker, "toolformer", accuracy("svamp", 5.0), settings())
    other = settings(device="cuda", samples=9, unused="b.QA", batch=1, cache=False, timeout=60)
    evaluated(tracker, "toolformer", accuracy("asdiv", 5.0), other)
    evaluated(tracker, "model", accuracy("svamp", 5.0), settings())
    evaluated(tracker, "model", accuracy("asdiv", 5.0), settings("b.Lucene"))
    evaluated(tracker, "model", perplexity("wikitext_perplexity", 9.0), settings(calls=7))
    assert reader.read(tracker).remarks == ()


def test_systems_that_were_not_measured_alike_are_said(tracker: Tracker) -> None:
    """Also baselines; not what only calls read, and of an endpoint not how it computes."""
    for task in ("svamp", "asdiv"):
        evaluated(tracker, "toolformer", accuracy(task, 5.0), settings(calls=3), {"dtype": "float32"})
        evaluated(tracker, "model", accuracy(task, 5.0), settings(dtype="bfloat16"))
        served = {**settings(dtype="float16"), "decoding": {"min_new_tokens": 9}}
        evaluated(tracker, "endpoint", accuracy(task, 5.0), served, {"baseline": "served"})
        evaluated(tracker, "baseline", accuracy(task, 5.0), {**settings(), "seed": 7}, {"baseline": "large"})
    (said,) = reader.read(tracker).remarks
    assert said.startswith("Not all systems were measured alike on ") and "SVAMP" in said and "ASDiv" in said
    assert "lm.dtype is bfloat16 on M" in said and "seed is 0 on " in said and "7 on large" in said
    assert "float16 on served" not in said.replace("bfloat16", "")
    assert "max_calls" not in said and "min_new_tokens" not in said


def test_what_only_calls_read_is_not_said_of_systems_without_any(tracker: Tracker) -> None:
    """Nor what the tags of older runs, which say `auto`, do not tell."""
    evaluated(tracker, "model", accuracy("svamp", 5.0), settings(calls=3), {"dtype": "auto"})
    evaluated(tracker, "model", accuracy("asdiv", 5.0), settings(), {"dtype": "float32"})
    assert reader.read(tracker).remarks == ()


def test_the_number_format_is_the_one_that_was_computed_in(tracker: Tracker) -> None:
    evaluated(tracker, "model", accuracy("svamp", 5.0), settings(), {"dtype": "float32"})
    evaluated(tracker, "model", accuracy("asdiv", 5.0), settings("b.Any", "float32"), {"dtype": "float32"})
    assert reader.read(tracker).remarks == ()
    evaluated(tracker, "model", accuracy("mawps", 5.0), settings(), {"dtype": "bfloat16"})
    (said,) = reader.read(tracker).remarks
    assert "lm.dtype is bfloat16 on MAWPS and float32 on " in said


def test_rows_of_table_9_that_were_not_measured_alike_are_said(tracker: Tracker) -> None:
    evaluated(tracker, "toolformer", accuracy("svamp", 5.0), settings())
    evaluated(tracker, "toolformer", accuracy("svamp", 4.0), settings("b.Any", calls=2), {"decoding.k": "0"})
    assert reader.read(tracker).remarks == (), "without calls nothing of them counts"
    evaluated(tracker, "toolformer", accuracy("svamp", 6.0), settings(calls=2), {"decoding.k": "3"})
    (said,) = reader.read(tracker).remarks
    assert said.startswith(
        "Table 9 has further differences between its rows on SVAMP: decoding.max_calls is 2 on k = 3"
    )


def test_a_row_of_table_9_that_another_run_might_fill_is_said(tracker: Tracker) -> None:
    shown = evaluated(tracker, "toolformer", accuracy("svamp", 5.0, 10), tags={"decoding.k": "3"})
    newer = evaluated(tracker, "toolformer", accuracy("svamp", 5.0, 4), tags={"decoding.k": "3"})
    (said,) = reader.read(tracker).remarks
    assert f"Toolformer with k = 3 on SVAMP: shown are the 10 examples of run {shown[:8]}" in said
    assert f"the newer run {newer[:8]} has only 4" in said


def broken(task: str, value: float, n: int, faults: int) -> dict[str, float]:
    return accuracy(task, value, n) | {f"{task}/n_faults": faults}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_whole_run_is_shown_before_one_whose_tools_broke_down(
    tracker: Tracker, order: tuple[int, int]
) -> None:
    measured = [broken("svamp", 5.0, 10, 0), broken("svamp", 50.0, 1000, 7)]
    ids = {place: evaluated(tracker, "toolformer", measured[place]) for place in order}
    evidence = reader.read(tracker)
    assert evidence.scores["toolformer", "svamp"].value == 5.0
    (said,) = evidence.remarks
    assert f"shown are the 10 examples of run {ids[0][:8]}; run {ids[1][:8]} is left out" in said
    assert "7 of 1,000 answers met a fault" in said


def test_a_figure_whose_tools_broke_down_is_shown_with_a_remark_where_there_is_no_other(
    tracker: Tracker,
) -> None:
    run = evaluated(tracker, "toolformer", broken("svamp", 5.0, 10, 3))
    evaluated(tracker, "endpoint", broken("asdiv", 5.0, 10, 2), tags={"baseline": "large"})
    swept = evaluated(tracker, "toolformer", broken("svamp", 4.0, 10, 1), tags={"decoding.k": "3"})
    evidence = reader.read(tracker)
    assert evidence.scores["toolformer", "svamp"].value == 5.0
    said = " ".join(evidence.remarks)
    assert f"Toolformer on SVAMP: in run {run[:8]} 3 of 10 answers met a fault" in said
    assert "large on ASDiv: in run" in said
    assert f"Toolformer with k = 3 on SVAMP: in run {swept[:8]} 1 of 10 answers" in said


def sized(
    tracker: Tracker, experiment: str, model: str, size: float, score: float, *tools: str, faults: int = 0
) -> None:
    """A training, and an evaluation with these tools."""
    config = {"model": model, "tools": list(tools)}
    tags = {"data": "augmented", "experiment": experiment}
    with tracker.run(
        stage="train", name="t", fingerprint=experiment + model, config=config, tags=tags
    ) as made:
        pass
    metrics = broken("svamp", score, 10, faults) | accuracy("dateset", score, 10) | {"parameters": size}
    if experiment == "figure4":
        metrics = {key: one for key, one in metrics.items() if not key.startswith("dateset")}
    tags = {"experiment": experiment, "lineage.train_run_id": made.run_id}
    evaluated(tracker, "toolformer", metrics, config, tags)


def points(tracker: Tracker, experiment: str | None) -> dict[float, float]:
    figure = scaling(reader.read(tracker, experiment))
    return {
        x: y
        for panel in figure.panels
        for one in panel.series
        if one.name == "Toolformer"
        for x, y in zip(one.x, one.y, strict=True)
    }


def test_figure_4_is_of_one_set_of_tools_and_of_its_own_experiment_first(tracker: Tracker) -> None:
    five = ("calculator", "calendar", "qa", "search", "translation")
    sized(tracker, "paper", "EleutherAI/gpt-j-6b", 6e9, 50.0, *five)
    sized(tracker, "figure4", "EleutherAI/gpt-j-6b", 6e9, 30.0, "qa", "calculator", "search")
    sized(tracker, "figure4", "gpt2", 1e8, 5.0, "search", "qa", "calculator")
    for experiment in ("paper", "figure4", None):
        assert points(tracker, experiment) == {6e9: 30.0, 1e8: 5.0}, experiment
        said = [one for one in reader.read(tracker, experiment).remarks if one.startswith("Figure 4")]
        assert len(said) == (experiment != "figure4")
    assert "only evaluations with calculator, qa, search" in said[0]
    assert "EleutherAI/gpt-j-6b with calculator, calendar, qa, search, translation" in said[0]


def test_figure_4_has_no_line_through_other_tools(tracker: Tracker) -> None:
    sized(tracker, "mine", "small", 1e7, 1.0, "qa", faults=4)
    sized(tracker, "mine", "medium", 1e8, 2.0, "qa")
    sized(tracker, "mine", "large", 1e9, 3.0, "qa", "search")
    assert points(tracker, "mine") == {1e7: 1.0, 1e8: 2.0}
    evidence = reader.read(tracker, "mine")
    assert evidence.model == "large" and "left out of it: large with qa, search." in " ".join(
        evidence.remarks
    )
    assert "Toolformer of small on SVAMP: in run " in " ".join(evidence.remarks)


def trained(tracker: Tracker, data: str, steps: Mapping[int, float]) -> str:
    with tracker.run(stage="train", name=data, fingerprint=data, config={}, tags={"data": data}) as run:
        for step, loss in steps.items():
            run.metrics({"loss": loss}, step=step)
    return run.run_id


def test_a_training_without_curves_beside_another_is_said(tracker: Tracker) -> None:
    trained(tracker, "augmented", {1: 3.0, 2: 2.0})
    short = trained(tracker, "plain", {1: 3.0})
    (said,) = reader.read(tracker).remarks
    assert f"The curves of M + CC (train run {short[:8]}) are not to be had" in said


def test_a_training_that_ends_in_no_number_keeps_its_curve(tracker: Tracker) -> None:
    trained(tracker, "augmented", {1: 3.0, 2: 2.0, 3: float("nan")})
    figure = training(reader.read(tracker))
    assert figure.panels and not figure.footnotes


def test_nothing_is_said_of_one_evaluation(tracker: Tracker) -> None:
    log_run(tracker, "evaluate", accuracy("svamp", 5.0), system="model")
    assert reader.read(tracker).remarks == ()
