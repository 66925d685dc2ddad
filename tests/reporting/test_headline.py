"""The report's first sentence: right for every benchmark, system and set of tools, and no claim beyond the interval."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.reporting.conftest import NOTE
from toolformer.evaluation.in_words import right, subject, summary
from toolformer.reporting import Report
from toolformer.reporting.data import Evidence, Score
from toolformer.reporting.headline import NO_DIFFERENCE, Headline, headline
from toolformer.reporting.pairing import Compared, Unpaired
from toolformer.statistics.paired import Estimate, PerplexityComparison, ScoreComparison
from toolformer.step import Step

ABOVE, ACROSS, BELOW = (60.0, 80.0), (-2.0, 6.0), (-80.0, -60.0)


def scored(
    second: float,
    first: float,
    interval: tuple[float, float] = ABOVE,
    p: float | None = 0.0001,
    seeds: int = 1,
) -> Compared:
    """A benchmark of 100 examples: percent right of a system, and of the one that it is compared with."""
    difference = Estimate(second - first, *interval)
    comparison = ScoreComparison(100, first, second, difference, 0, 0, p)
    return Compared("", Unpaired(), comparison, p_holm=p, seeds=(seeds, seeds))


def first_said(
    compared: Compared,
    tools: Sequence[str] | None = ("calculator",),
    task: str = "arithmetic",
    pair: tuple[str, str] = ("toolformer", "toolformer_disabled"),
    metrics: Mapping[str, float] | None = None,
) -> Headline:
    run = replace(NOTE, config={"tools": list(tools)} if tools is not None else {})
    score = Score(1.0, None, None, (run,), {"n": 100, **(metrics or {})})
    scores = {("toolformer", task): score}
    return headline(Evidence(scores=scores, paired={(task, *pair): compared}))


def test_the_gain_is_the_figure_and_the_sentence_has_the_runs_numbers() -> None:
    found = first_said(scored(70.0, 2.0))
    assert found.gain == "+68 points"
    assert found.sentence == "With its calculator the model answers 70 of 100 sums, without it 2."
    assert found.basis.startswith("The difference is +68.0 points [+60.0, +80.0], p < 0.001")


@pytest.mark.parametrize(
    ("tools", "begins", "ends"),
    [
        (["search"], "With its search engine the model", "without it 2."),
        (["weather"], "With its tool weather the model", "without it 2."),
        (["calculator", "calendar"], "With its calculator and its calendar the model", "without them 2."),
        (["qa", "search", "calendar"], "With its 3 tools the model", "without them 2."),
        ([], "Finetuned on calls but offered no tool the model", "with calls disabled 2."),
        (None, "With its tools the model", "without them 2."),
    ],
)
def test_the_tools_are_those_of_the_run(tools: Sequence[str] | None, begins: str, ends: str) -> None:
    sentence = first_said(scored(70.0, 2.0), tools).sentence
    assert sentence.startswith(begins) and sentence.endswith(ends)


@pytest.mark.parametrize(
    ("compared", "gain", "end"),
    [
        (scored(5.0, 3.0, ACROSS, 0.6), NO_DIFFERENCE, ", without it 3: no difference beyond chance."),
        (scored(5.0, 3.0, ACROSS, 0.01), NO_DIFFERENCE, ", without it 3: no difference beyond chance."),
        (scored(70.0, 2.0, ABOVE, 0.2), NO_DIFFERENCE, ", without it 2: no difference beyond chance."),
        (scored(3.0, 3.0, (0.0, 0.0), None), NO_DIFFERENCE, ", without it 3: no difference."),
        (scored(2.0, 70.0, BELOW), "−68 points", ", without it 70."),
    ],
)
def test_a_difference_is_claimed_only_where_p_and_interval_carry_it(
    compared: Compared, gain: str, end: str
) -> None:
    found = first_said(compared)
    assert found.gain == gain and found.sentence.endswith(end)


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        (
            ("toolformer", "model"),
            "With its calculator the model answers 70 of 100 sums, before finetuning 2.",
        ),
        (
            ("toolformer_disabled", "model"),
            "Finetuned on calls but without its calculator the model answers 70 of 100 sums, before finetuning 2.",
        ),
        (
            ("model_cc", "model"),
            "Finetuned on texts without calls the model answers 70 of 100 sums, before finetuning 2.",
        ),
        (("baseline large", "model"), "large answers 70 of 100 sums, the model before finetuning 2."),
        (
            ("baseline large", "toolformer_disabled"),
            "large answers 70 of 100 sums, the model finetuned on calls but without its calculator 2.",
        ),
    ],
)
def test_every_pair_of_systems_has_its_sentence(pair: tuple[str, str], sentence: str) -> None:
    assert first_said(scored(70.0, 2.0), pair=pair).sentence == sentence


@pytest.mark.parametrize(
    ("task", "seeds", "did"),
    [
        ("svamp", 1, "solves 70 of 100 word problems of SVAMP"),
        ("lama_trex", 1, "completes 70 of 100 statements of T-REx"),
        ("nq", 1, "answers 70 of 100 questions of NQ"),
        ("mlqa_es", 1, "answers 70 of 100 questions of MLQA es"),
        ("nq", 3, "answers 70.0 % of the questions of NQ (mean of 3 seeds)"),
        ("mine", 1, "scores 70.0 % on mine"),
    ],
)
def test_every_benchmark_has_its_words(task: str, seeds: int, did: str) -> None:
    sentence = first_said(scored(70.0, 2.0, seeds=seeds), task=task).sentence
    second = "2.0 %" if "%" in did else "2"
    assert sentence == f"With its calculator the model {did}, without it {second}."


def test_it_says_where_no_call_was_made() -> None:
    for metrics in ({"n_ac": 0.0, "n_failed": 0.0}, {"n_ac": 0.0}):
        assert first_said(scored(5.0, 3.0, ACROSS, 0.6), metrics=metrics).sentence.endswith(
            " It made no call."
        )
    # 0.2: a mean over several seeds.
    for metrics in ({"n_ac": 0.0, "n_failed": 2.0}, {"n_ac": 0.2}, {}):
        assert "no call" not in first_said(scored(5.0, 3.0, ACROSS, 0.6), metrics=metrics).sentence


def test_the_other_benchmarks_are_counted() -> None:
    pair = ("toolformer", "toolformer_disabled")
    paired = {("nq", *pair): scored(70.0, 2.0), ("svamp", *pair): scored(5.0, 3.0, ACROSS, 0.6)}
    paired["mawps", *pair] = scored(2.0, 70.0, BELOW)
    assert headline(Evidence(paired=paired)).basis.endswith(
        "Of all 3 benchmarks on which the two were compared, Toolformer is better on 1 and worse on 1; on 1 there is no "
        "difference beyond chance."
    )


def test_without_scores_it_speaks_of_perplexity() -> None:
    difference = Estimate(-6.86, -10.4, -3.7)
    comparison = PerplexityComparison(12, 52.86, 46.0, difference, Estimate(0.87, 0.8, 0.93), 0.002)
    compared = Compared("", Unpaired(), perplexity=comparison, unit="token", p_holm=0.008)
    task = "heldout_perplexity"
    paired = {(task, "toolformer", "model"): compared, (task, "model_cc", "model"): compared}
    found = headline(Evidence(paired=paired))
    assert found.gain == "−6.86 perplexity"
    assert found.sentence == (
        "Finetuned on texts without calls the model has perplexity 46.00 on Held-out text, before finetuning 52.86."
    )
    assert found.basis.startswith(
        "Lower is better. The difference is −6.86 per token [−10.40, −3.70], p = 0.002"
    )


def test_one_system_alone_is_compared_with_none() -> None:
    score = Score(70.0, None, None, (replace(NOTE, config={"tools": ["calculator"]}),), {"n": 100})
    found = headline(Evidence(scores={("toolformer", "arithmetic"): score, ("model", "nq"): score}))
    assert found == Headline("", "With its calculator the model answers 70 of 100 sums.")
    texts = headline(Evidence(scores={("model", "wikitext_perplexity"): score}))
    assert texts.sentence == "Before finetuning the model has perplexity 70.00 on WikiText."
    assert headline(Evidence()) == Headline()


def test_captions_are_short(report: Report) -> None:
    skipped = "Rows skipped"  # a list
    long = [part.caption for part in report.content.parts if len(part.caption.partition(skipped)[0]) > 240]
    assert long == []


@pytest.mark.parametrize(
    ("stage", "metrics", "facts", "said"),
    [
        (
            "generate",
            {"calls_kept": 53.0, "texts_kept": 44.0, "documents": 64.0},
            {},
            "Kept 53 calls in 44 of 64 texts.",
        ),
        (
            "train",
            {"train_steps": 30.0, "texts": 44.0, "initial_heldout_perplexity": 50.7, "heldout_perplexity": 43.2},
            {},
            "Trained 30 steps on 44 texts. Perplexity of held-out text: 50.70 before, 43.20 after.",
        ),
        (
            "evaluate",
            {"svamp/score": 37.5, "svamp/n": 40.0, "nq/score": 10.0, "nq/n": 20.0},
            {"system": "toolformer"},
            "With its calculator the model solves 15 of 40 word problems of svamp. Other benchmarks: 1.",
        ),
        (
            "evaluate",
            {"heldout_perplexity/perplexity": 46.0},
            {"system": "model_cc"},
            "Finetuned on texts without calls the model has perplexity 46.00 (heldout_perplexity).",
        ),
        ("evaluate", {"svamp/score": float("nan"), "svamp/n": float("inf")}, {"baseline": "big"},
         "big solves nan % of the word problems of svamp."),
        ("sweep", {}, {}, ""),
    ],
)  # fmt: skip
def test_a_finished_run_is_summed_up(
    stage: str, metrics: dict[str, float], facts: dict[str, Any], said: str
) -> None:
    config = {"tools": ["calculator"]}
    run = replace(NOTE, step=Step(stage, 1, {}), metrics=metrics, facts=facts, config=config)
    assert summary(run) == said
    assert summary(replace(run, status="FAILED")) == ""


def test_other_systems_have_their_words() -> None:
    assert subject("prompted", ["calculator"]).startswith(
        "With examples of calls in its prompt and its calculator"
    )
    assert subject("baseline", [], "a larger model") == "a larger model"
    assert right("nq", "NQ", 12.34, 0) == "answers 12.3 % of the questions of NQ"
