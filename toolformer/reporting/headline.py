"""The report's first words: what calling tools gains. Claims only what intervals and p carry."""

from collections.abc import Mapping
from dataclasses import dataclass

from toolformer.reporting.data import Evidence
from toolformer.reporting.formatting import in_table_order, title_of
from toolformer.reporting.pairing import TaskComparison, is_significant
from toolformer.reporting.table import Cell, p_cell

NO_DIFFERENCE = "No difference beyond chance"
_AGAINST = {"toolformer_disabled": "with calls disabled", "model": "before finetuning"}
"""Systems that Toolformer is compared with, in this order."""
_OTHER = {"toolformer_disabled": "the same model with calls disabled", "model": "the model before finetuning"}


@dataclass(frozen=True)
class Headline:
    """Beginning of a report; all empty unless Toolformer was compared on a benchmark."""

    gain: str = ""
    """`+35.0 points`; of several benchmarks, on how many Toolformer is better; or that there is no difference beyond chance."""
    sentence: str = ""
    """The scores on the benchmark with most examples."""
    basis: str = ""
    """The difference with its interval, p and n, and how the other benchmarks went."""


def headline(evidence: Evidence) -> Headline:
    """Toolformer against the same model with calls disabled, else the untrained one, on the benchmark with most examples; of equals
    on one with a significant difference."""
    for other in _AGAINST:
        compared = {
            task: pair
            for (task, *systems), pair in evidence.paired.items()
            if systems == ["toolformer", other] and pair.is_score
        }
        if compared:
            return _of(compared, other)
    return Headline()


def _of(by_task: Mapping[str, TaskComparison], other: str) -> Headline:
    task = max(
        in_table_order(by_task), key=lambda name: (by_task[name].comparison.n, verdict(by_task[name]) != 0)
    )
    compared = by_task[task]
    comparison = compared.comparison
    estimate = comparison.difference
    points = Cell(estimate.value, 1, is_signed=True, low=estimate.low, high=estimate.high)
    verdicts = [verdict(pair) for pair in by_task.values()]
    better, worse = verdicts.count(1), verdicts.count(-1)
    count = (
        f"Toolformer is better than {_OTHER[other]} on {better} of {len(by_task)} benchmarks"
        + (f" and worse on {worse}" if worse else "")
        + ". "
    ) * (len(by_task) > 1)
    sentence = count + (
        f"Toolformer answers {comparison.second:.1f} % of {title_of(task)} correctly, "
        f"{_AGAINST[other]} {comparison.first:.1f} %."
    )
    basis = f"The difference is {points.text} points {points.detail}, n = {comparison.n:,}"
    if comparison.p_value is not None:
        basis += f", p {_p(comparison.p_value)}"
        basis += "" if compared.p_holm is None else f" (corrected: {p_cell(compared.p_holm).text})"
    basis += "."
    gain = f"{points.text} points"
    if len(by_task) > 1:
        gain = f"Better on {better} of {len(by_task)} benchmarks" + (f", worse on {worse}" if worse else "")
        basis += (
            f" Of all {len(by_task)} benchmarks on which the two were compared, Toolformer is better on {better} "
            f"and worse on {worse}; on {verdicts.count(0)} there is no difference beyond chance."
        )
    return Headline(gain if any(verdicts) else NO_DIFFERENCE, sentence, basis)


def verdict(compared: TaskComparison) -> int:
    """1 where the difference is above zero, -1 where it is below: by the corrected p and by the interval; else 0."""
    if not is_significant(compared):
        return 0
    low, high = compared.comparison.difference.low, compared.comparison.difference.high
    return 0 if low is None or high is None else (low > 0) - (high < 0)


def _p(p: float) -> str:
    text = p_cell(p).text
    return text if text.startswith("<") else f"= {text}"
