"""Samples of two evaluations of one benchmark, paired by what was asked, and compared (`toolformer/statistics/paired.py`)."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from toolformer.data.parquet import read_table
from toolformer.errors import UserError
from toolformer.evaluation.metrics import GOLD_NATS
from toolformer.reporting.select import BASELINE
from toolformer.statistics.crossed import LEVEL, holm
from toolformer.statistics.intervals import Answers, Interval, perplexity_interval, score_interval
from toolformer.statistics.paired import Comparison, compare

Row = Mapping[str, Any]
Seeds = Sequence[tuple[tuple[int, int], Sequence[Row]]]
"""The samples of runs that differ only in their seed, each with the seed of its training and that of its questions."""

SCORED = ("id", "score")
ASKED = ("prompt", "target")
QUESTION = "question"
"""In place of the columns `ASKED`, the digest of a question whose text is not published."""
TEXTS = ("id", "text_sha256", "log_likelihood", "tokens", "words")
"""Columns of every file of samples, of a benchmark with scores and of a perplexity."""
DATE = "current_date"
"""The calendar's answer if an example has its own day; part of the question."""
PAIRS = (
    ("toolformer", "toolformer_disabled"),
    ("toolformer", "model"),
    ("toolformer_disabled", "model"),
    ("model_cc", "model"),
)
"""A system and what it is compared with; differences are the first minus the second."""
BASELINE_PAIRS = ("toolformer_disabled", "model")
"""The systems that every baseline is compared with."""


def read_samples(path: Path, more: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The rows of a file of samples with the columns that a comparison needs and `more`, None for those that it lacks.

    UserError if it is not a file of samples.
    """
    try:
        names = pq.read_schema(path).names
        needed = [*SCORED, *([QUESTION] if QUESTION in names else ASKED)] if "score" in names else [*TEXTS]
        if missing := [name for name in needed if name not in names]:
            raise KeyError(missing[0])
        columns = dict.fromkeys([*needed, *(ASKED if "score" in names else ()), DATE, *more])
        rows = read_table(path, [name for name in columns if name in names]).to_pylist()
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} holds no samples ({type(error).__name__}); evaluate again") from error
    return [{**columns, **row} for row in rows]


@dataclass(frozen=True)
class Unpaired:
    """Samples of a benchmark without a partner."""

    only_first: int = 0
    """Documents that the second run does not have."""
    only_second: int = 0
    changed: int = 0
    """Documents of the same id with another prompt, target or text."""

    @property
    def total(self) -> int:
        return self.only_first + self.only_second + self.changed

    def __add__(self, other: "Unpaired") -> "Unpaired":
        return Unpaired(
            self.only_first + other.only_first,
            self.only_second + other.only_second,
            self.changed + other.changed,
        )


@dataclass(frozen=True)
class TaskComparison:
    """One benchmark."""

    task: str
    unpaired: Unpaired
    comparison: Comparison
    unit: str = ""
    """Unit of a perplexity: per token, or per word where the two models count tokens differently; empty for scores."""
    p_holm: float | None = None
    """p corrected for all comparisons that were made with this one."""
    seeds: tuple[int, int] = (1, 1)
    """Runs of each side that differ only in their seed."""

    @property
    def is_score(self) -> bool:
        """Whether percent correct are compared, not nats or perplexities."""
        return not self.unit and not self.task.endswith(GOLD_NATS)


def pair(first: Sequence[Row], second: Sequence[Row]) -> tuple[list[tuple[Row, Row]], Unpaired]:
    """Samples that were asked the same, in the first run's order."""
    ones, twos = _by_question(first), _by_question(second)
    pairs = [(row, twos[question]) for question, row in ones.items() if question in twos]
    alone = Counter(str(ones[question]["id"]) for question in ones.keys() - twos.keys())
    left = Counter(str(twos[question]["id"]) for question in twos.keys() - ones.keys())
    changed = (alone & left).total()
    return pairs, Unpaired(alone.total() - changed, left.total() - changed, changed)


def _by_question(rows: Iterable[Row]) -> dict[str, Row]:
    """Samples by what was asked, with a number: of equal questions the n-th goes with the n-th."""
    times: Counter[str] = Counter()
    samples: dict[str, Row] = {}
    for row in rows:
        question = question_key(row)
        times[question] += 1
        samples[f"{question} {times[question]}"] = row
    return samples


def question_key(row: Row) -> str:
    """The identity of a question: its id and the digest of what was asked; of a text that of the text."""
    if "score" in row:
        return json.dumps([row["id"], row.get(QUESTION) or question_digest(row)])
    return json.dumps([row["id"], row["text_sha256"]])


def question_digest(row: Row) -> str:
    """Digest of prompt, targets and date, which distinguishes a question from others with its id."""
    asked = json.dumps([row["prompt"], sorted(map(str, row["target"])), row.get(DATE)])
    return hashlib.sha256(asked.encode()).hexdigest()[:8]


def compare_groups(task: str, first: Seeds, second: Seeds) -> TaskComparison | None:
    """One benchmark, of groups of runs that differ only in their seed, or None where nothing was asked of both.

    Groups are paired seed by seed, on the seeds that both have. A single run is paired with every run of the other side:
    p then says nothing of its other seeds.
    """
    sides: tuple[list[Sequence[Row]], list[Sequence[Row]]] = ([], [])
    unpaired = Unpaired()
    for first_rows, second_rows in _partners(first, second):
        pairs, alone = pair(first_rows, second_rows)
        unpaired = unpaired + alone
        if pairs:
            sides[0].append([row for row, _ in pairs])
            sides[1].append([row for _, row in pairs])
    if not sides[0]:
        return None
    rows = [row for side in sides for rows in side for row in rows]
    unit = "" if "score" in rows[0] else unit_of(rows)
    answers = [[answers_of(rows, unit) for rows in side] for side in sides]
    compared = compare(answers[0], answers[1], bool(unit))
    used = len(sides[0])
    seeds = 1 if len(first) == 1 else used, 1 if len(second) == 1 else used
    return TaskComparison(task, unpaired, compared, unit.removesuffix("s"), seeds=seeds)


def _partners(first: Seeds, second: Seeds) -> list[tuple[Sequence[Row], Sequence[Row]]]:
    """The samples of both sides that are compared with each other."""
    if len(first) == 1:
        return [(first[0][1], rows) for _, rows in second]
    if len(second) == 1:
        return [(rows, second[0][1]) for _, rows in first]
    ones, twos = dict(first), dict(second)
    return [(ones[seed], twos[seed]) for seed in sorted(ones.keys() & twos.keys())]


def compare_measures(task: str, first: Seeds, second: Seeds) -> list[TaskComparison]:
    """One benchmark: `compare_groups`, and likewise as TASK/gold_nats the nats of the gold answer where both sides have them."""
    graded = [
        [(seed, [{**row, "score": row[GOLD_NATS]} for row in rows if row.get(GOLD_NATS) is not None]) for seed, rows in side]
        for side in (first, second)
    ]  # fmt: skip
    measures = [compare_groups(task, first, second)]
    if all(rows for side in graded for _, rows in side):
        measures.append(compare_groups(f"{task}/{GOLD_NATS}", graded[0], graded[1]))
    return [compared for compared in measures if compared]


def unit_of(rows: Iterable[Row]) -> str:
    """The unit of a perplexity: tokens if all runs count the same number in each text, else words."""
    counts: dict[str, set[int | None]] = {}
    for row in rows:
        counts.setdefault(row["text_sha256"], set()).add(row["tokens"])
    return (
        "tokens" if all(len(of_text) == 1 and None not in of_text for of_text in counts.values()) else "words"
    )


def answers_of(rows: Iterable[Row], unit: str) -> Answers:
    """One seed's answers by question; without a unit scores."""
    samples = _by_question(rows)
    if unit:
        return {question: (row["log_likelihood"], row[unit]) for question, row in samples.items()}
    return {question: (row["score"], 1.0) for question, row in samples.items()}


def over_seeds(runs: Sequence[Sequence[Row]]) -> Interval:
    """The mean of runs that differ only in their seed, with its interval over seeds and questions."""
    if "score" in runs[0][0]:
        return score_interval([answers_of(rows, "") for rows in runs])
    unit = unit_of(row for rows in runs for row in rows)
    return perplexity_interval([answers_of(rows, unit) for rows in runs])


def corrected(comparisons: Sequence[TaskComparison]) -> list[TaskComparison]:
    """Comparisons with p corrected for their number (Holm)."""
    p_values = holm([compared.comparison.p_value for compared in comparisons])
    return [replace(compared, p_holm=p) for compared, p in zip(comparisons, p_values, strict=True)]


def compare_systems(
    files: Mapping[tuple[str, str], Sequence[tuple[tuple[int, int], Path]]],
) -> dict[tuple[str, str, str], TaskComparison]:
    """Comparisons by task, system and the system it is compared with, where there are samples in common.

    Args:
        files: by system (a baseline's name after `BASELINE`) and task, the samples of each seed.
    """
    comparisons: dict[tuple[str, str, str], TaskComparison] = {}
    for task in dict.fromkeys(task for _, task in files):
        rows = {
            system: [(run, read_samples(path, [GOLD_NATS])) for run, path in paths]
            for (system, name), paths in files.items()
            if name == task
        }
        further = ((row, other) for row in rows if row.startswith(BASELINE) for other in BASELINE_PAIRS)
        for system, other in (*PAIRS, *further):
            if system in rows and other in rows:
                for compared in compare_measures(task, rows[other], rows[system]):
                    comparisons[compared.task, system, other] = compared
    return dict(zip(comparisons, corrected(list(comparisons.values())), strict=True))


def is_significant(compared: TaskComparison) -> bool:
    """Whether the difference is more than chance: p below 0.05, corrected where several comparisons were made."""
    p = compared.comparison.p_value if compared.p_holm is None else compared.p_holm
    return p is not None and p < LEVEL
