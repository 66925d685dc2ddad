"""The report's first sentence claims nothing beyond interval and p; a run is summed up in one."""

from dataclasses import replace
from typing import Any

import pytest

from tests.runs import NOTE
from toolformer.evaluation.in_words import summary
from toolformer.reporting import Report
from toolformer.reporting.data import Evidence
from toolformer.reporting.headline import NO_DIFFERENCE, Headline, headline
from toolformer.reporting.pairing import TaskComparison, Unpaired
from toolformer.statistics.paired import Comparison, Estimate
from toolformer.step import Step

ABOVE, ACROSS, BELOW = (60.0, 80.0), (-2.0, 6.0), (-80.0, -60.0)
DISABLED = ("toolformer", "toolformer_disabled")


def scored(
    second: float, first: float, interval: tuple[float, float] = ABOVE, p: float | None = 0.0001, n: int = 100
) -> TaskComparison:
    """A benchmark: percent right of a system, and of the one that it is compared with."""
    difference = Estimate(second - first, *interval)
    return TaskComparison("", Unpaired(), Comparison(n, first, second, difference, p, ""), p_holm=p)


def of_pair(compared: TaskComparison, pair: tuple[str, str] = DISABLED) -> Headline:
    return headline(Evidence(paired={("arithmetic", *pair): compared}))


def test_the_gain_is_the_figure() -> None:
    assert of_pair(scored(70.0, 2.0)) == Headline(
        "+68.0 points",
        "Toolformer answers 70.0 % of Arithmetic correctly, with calls disabled 2.0 %.",
        "The difference is +68.0 points [+60.0, +80.0], n = 100, p < 0.001 (corrected: < 0.001).",
    )


@pytest.mark.parametrize(
    ("compared", "gain"),
    [
        (scored(5.0, 3.0, ACROSS, 0.6), NO_DIFFERENCE),
        (scored(5.0, 3.0, ACROSS, 0.01), NO_DIFFERENCE),
        (scored(70.0, 2.0, ABOVE, 0.2), NO_DIFFERENCE),
        (scored(3.0, 3.0, (0.0, 0.0), None), NO_DIFFERENCE),
        (scored(2.0, 70.0, BELOW), "−68.0 points"),
    ],
)
def test_a_difference_is_claimed_if_p_and_interval_agree(compared: TaskComparison, gain: str) -> None:
    assert of_pair(compared).gain == gain


def test_the_disabled_model_comes_before_the_untrained_one() -> None:
    paired = {
        ("nq", "toolformer", "model"): scored(70.0, 2.0),
        ("nq", *DISABLED): scored(5.0, 3.0, ACROSS, 0.6),
    }
    assert "with calls disabled 3.0 %" in headline(Evidence(paired=paired)).sentence
    assert "before finetuning 2.0 %" in of_pair(scored(70.0, 2.0), ("toolformer", "model")).sentence


def test_other_pairs_make_no_headline() -> None:
    assert of_pair(scored(70.0, 2.0), ("model_cc", "model")) == Headline()
    assert headline(Evidence()) == Headline()


def test_the_headline_is_of_the_largest_benchmark() -> None:
    paired = {
        ("nq", *DISABLED): scored(70.0, 2.0, n=200),
        ("svamp", *DISABLED): scored(5.0, 3.0, ACROSS, 0.6),
    }
    paired["mawps", *DISABLED] = scored(2.0, 70.0, BELOW)
    found = headline(Evidence(paired=paired))
    assert "70.0 % of NQ" in found.sentence
    assert found.gain == "Better on 1 of 3 benchmarks, worse on 1"
    assert found.basis.endswith(
        "Of all 3 benchmarks on which the two were compared, Toolformer is better on 1 and worse on 1; on 1 there is no "
        "difference beyond chance."
    )


def test_no_difference_on_the_largest_benchmark_hides_no_gain() -> None:
    paired = {
        ("lama_trex", *DISABLED): scored(5.0, 3.0, ACROSS, 0.6),
        ("arithmetic", *DISABLED): scored(70.0, 2.0),
    }
    assert headline(Evidence(paired=paired)).gain == "Better on 1 of 2 benchmarks"
    paired["arithmetic", *DISABLED] = scored(5.0, 3.0, ACROSS, 0.6)
    assert headline(Evidence(paired=paired)).gain == NO_DIFFERENCE


def test_a_report_opens_with_the_count_of_gains() -> None:
    paired = {
        ("lama_trex", *DISABLED): scored(5.0, 3.0, ACROSS, 0.6),
        ("arithmetic", *DISABLED): scored(70.0, 2.0),
    }
    assert headline(Evidence(paired=paired)).sentence == (
        "Toolformer is better than the same model with calls disabled on 1 of 2 benchmarks. "
        "Toolformer answers 70.0 % of Arithmetic correctly, with calls disabled 2.0 %."
    )


def test_captions_are_short(report: Report) -> None:
    skipped = "Rows skipped"  # a list
    long = [part.caption for part in report.content.parts if len(part.caption.partition(skipped)[0]) > 240]
    assert long == []


@pytest.mark.parametrize(
    ("stage", "metrics", "said"),
    [
        ("generate", {"calls_kept": 53.0, "texts_kept": 44.0, "documents": 64.0}, "Kept 53 calls in 44 of 64 texts."),
        (
            "train",
            {
                "train_steps": 30.0, "texts": 44.0, "initial_heldout_perplexity": 50.7,
                "heldout_perplexity": 47.0, "best_heldout_perplexity": 43.2,
            },
            "Trained 30 steps on 44 texts. Perplexity of held-out text: 50.70 before, 43.20 after.",
        ),
        (
            "evaluate",
            {"svamp": {"score": 37.5, "n": 40.0}, "nq": {"score": 10.0, "n": 20.0}},
            "37.5 % of 40 examples of svamp correct. Other benchmarks: 1.",
        ),
        ("evaluate", {"heldout_perplexity": {"perplexity": 46.0}}, "Perplexity 46.00 (heldout_perplexity)."),
        ("evaluate", {"svamp": {"score": float("nan"), "n": float("inf")}}, "nan % of 0 examples of svamp correct."),
        ("report", {}, ""),
    ],
)  # fmt: skip
def test_a_finished_run_is_summed_up(stage: str, metrics: dict[str, Any], said: str) -> None:
    of = {"tasks": metrics} if stage == "evaluate" else {"metrics": metrics}
    run = replace(NOTE, step=Step(stage, 1, {}), **of)
    assert summary(run) == said
    assert summary(replace(run, status="FAILED")) == ""
