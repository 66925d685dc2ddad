"""Samples of two evaluations of one benchmark, paired by what was asked, and compared.

Reads and pairs rows of `samples/<task>.parquet`; the statistics are those of benchmarks/paired.py. Knows no tracking.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.paired import (
    PerplexityComparison,
    ScoreComparison,
    compare_perplexities,
    compare_scores,
)
from toolformer.errors import UserError

Row = Mapping[str, Any]

SCORED = ("id", "prompt", "target", "score")
TEXTS = ("id", "text_sha256", "log_likelihood", "tokens", "words")
"""Columns that every file of samples has, of a benchmark with scores and of a perplexity."""
DATE = "current_date"
"""What the calendar answers with, where an example has a day of its own; a part of the question."""


def read_samples(
    path: Path, more: Sequence[str] = (), numbers: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """The rows of a file of samples: what a comparison needs, and `more`; None where a file has no such column.

    `numbers` are those of the rows that are wanted; None is all.

    Raises:
        UserError: it is no file of samples.
    """
    try:
        names = pq.read_schema(path).names
        needed = _needed(names)
        wanted = dict.fromkeys([*needed, DATE, *more])
        table = pq.read_table(path, columns=[name for name in wanted if name in names])
        rows = (table if numbers is None else table.take(list(numbers))).to_pylist()
    except (OSError, ValueError, KeyError) as error:
        raise _no_samples(path, error) from error
    return [{**wanted, **row} for row in rows]


def check_samples(path: Path) -> None:
    """Reads a file of samples whole.

    Raises:
        UserError: it is none, or torn.
    """
    try:
        _needed(pq.read_table(path).column_names)
    except (OSError, ValueError, KeyError) as error:
        raise _no_samples(path, error) from error


def _needed(names: Sequence[str]) -> Sequence[str]:
    """The columns of scores or of a perplexity.

    Raises:
        KeyError: one of them is missing.
    """
    needed = SCORED if "score" in names else TEXTS
    if missing := [name for name in needed if name not in names]:
        raise KeyError(missing[0])
    return needed


def _no_samples(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} holds no samples ({type(error).__name__}): run `toolformer evaluate` again")


@dataclass(frozen=True)
class Unpaired:
    """Samples of a benchmark that stand alone."""

    only_first: int = 0
    """Documents that the second run does not have."""
    only_second: int = 0
    changed: int = 0
    """Documents of the same id that were asked otherwise: another prompt, target or text."""

    @property
    def total(self) -> int:
        return self.only_first + self.only_second + self.changed


@dataclass(frozen=True)
class Compared:
    """One benchmark."""

    task: str
    unpaired: Unpaired
    scores: ScoreComparison | None = None
    perplexity: PerplexityComparison | None = None
    unit: str = ""
    """Perplexity: per token, or per word where the two models count tokens differently."""


def compare_task(
    task: str, first: Sequence[Row], second: Sequence[Row], seed: int, resamples: int
) -> Compared | None:
    """The pairs of one benchmark compared, or None where there are none."""
    pairs, unpaired = pair(first, second)
    if not pairs:
        return None
    if "score" in pairs[0][0]:
        scores = compare_scores(
            [a["score"] for a, _ in pairs], [b["score"] for _, b in pairs], seed, resamples
        )
        return Compared(task, unpaired, scores=scores)
    per_token = all(_known(a["tokens"]) and a["tokens"] == b["tokens"] for a, b in pairs)
    unit = "tokens" if per_token else "words"
    perplexity = compare_perplexities(
        [a["log_likelihood"] for a, _ in pairs],
        [int(a[unit]) for a, _ in pairs],
        [b["log_likelihood"] for _, b in pairs],
        [int(b[unit]) for _, b in pairs],
        seed,
        resamples,
    )
    return Compared(task, unpaired, perplexity=perplexity, unit=unit.removesuffix("s"))


def pair(first: Sequence[Row], second: Sequence[Row]) -> tuple[list[tuple[Row, Row]], Unpaired]:
    """Samples that were asked the same, in the first run's order; of equal ones the n-th goes with the n-th."""
    there: dict[str, list[Row]] = {}
    for row in second:
        there.setdefault(asked(row), []).append(row)
    pairs: list[tuple[Row, Row]] = []
    alone: Counter[str] = Counter()
    for row in first:
        matches = there.get(asked(row))
        if matches:
            pairs.append((row, matches.pop(0)))
        else:
            alone[str(row["id"])] += 1
    left = Counter(str(row["id"]) for rows in there.values() for row in rows)
    changed = (alone & left).total()
    return pairs, Unpaired(alone.total() - changed, left.total() - changed, changed)


def asked(row: Row) -> str:
    """What decides that two samples are the same question: id, prompt, date and targets, or id and text."""
    if "score" in row:
        # The date is what the calendar answers with: another one makes another question of the same words.
        return json.dumps(
            [row["id"], row["prompt"], sorted(map(str, row["target"])), row.get("current_date")]
        )
    return json.dumps([row["id"], row["text_sha256"]])


def _known(value: Any) -> bool:
    return value is not None and not math.isnan(value)
