"""Two evaluation runs on the same samples: differences with paired intervals, benchmark by benchmark.

Samples are paired by benchmark, id and what was asked; the statistics are those of benchmarks/paired.py. Reads finished
runs only, loads no model.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.config import SYSTEMS
from toolformer.errors import UserError
from toolformer.reporting.pairing import Compared, Row, Unpaired, compare_task, pair, read_samples

if TYPE_CHECKING:
    from rich.table import Table

    from benchmarks.paired import Estimate
    from toolformer.tracking import Run, Tracker

log = logging.getLogger(__name__)

__all__ = ["Compared", "Comparison", "Unpaired", "compare", "compare_task", "find", "pair"]


@dataclass(frozen=True)
class Comparison:
    """Two runs; every difference is the second minus the first."""

    first: str
    """Run id."""
    second: str
    first_name: str
    second_name: str
    benchmarks: tuple[Compared, ...]
    only_first: tuple[str, ...]
    """Benchmarks that the second run does not have, or has no sample of in common."""
    only_second: tuple[str, ...]
    same_scoring: bool
    """Whether the same code scored both."""


def find(tracker: Tracker, reference: str) -> Run:
    """An evaluation: a run id, the first characters (at least 6) of one, `latest`, or `latest:SYSTEM`.

    Raises:
        UserError: there is none, or it is no finished evaluation.
    """
    name, colon, system = reference.partition(":")
    if not colon:
        return tracker.resolve("evaluate", reference)
    if name != "latest" or system not in SYSTEMS:
        raise UserError(
            f"compare: {reference!r} is no run; say a run id, latest, or latest: and one of {', '.join(SYSTEMS)}"
        )
    return tracker.resolve("evaluate", "latest", system=system)


def compare(tracker: Tracker, first: str, second: str, seed: int = 0, resamples: int = 2000) -> Comparison:
    """Compares two evaluations, named as in `find`.

    Raises:
        UserError: no such runs, one and the same run twice, or no sample in common.
    """
    one, two = find(tracker, first), find(tracker, second)
    if one.run_id == two.run_id:
        raise UserError(f"compare: {first} and {second} are the same run {one.run_id}; name two")
    tables_one, tables_two = _samples(tracker, one), _samples(tracker, two)
    common = [task for task in tables_one if task in tables_two]
    found: list[Compared] = []
    for task in common:
        compared = compare_task(task, tables_one[task], tables_two[task], seed, resamples)
        if compared:
            found.append(compared)
    if not found:
        what = f"samples of {', '.join(common)}" if common else "benchmark"
        raise UserError(
            f"compare: runs {one.run_id[:8]} and {two.run_id[:8]} have no {what} in common; evaluate both with the "
            "same benchmarks, data, evaluation.limit and seed"
        )
    shown = {compared.task for compared in found}
    return Comparison(
        one.run_id,
        two.run_id,
        _title(one),
        _title(two),
        tuple(found),
        tuple(task for task in tables_one if task not in shown),
        tuple(task for task in tables_two if task not in shown),
        one.tags.get("scoring") == two.tags.get("scoring"),
    )


def _samples(tracker: Tracker, run: Run) -> Mapping[str, Sequence[Row]]:
    """The samples of a run by benchmark."""
    folder: Path = tracker.artifact_path(run, "samples")
    read = {path.stem: read_samples(path) for path in sorted(folder.glob("*.parquet"))}
    return {task: rows for task, rows in read.items() if rows}


def _title(run: Run) -> str:
    """What tells a run from another: the system, the model of a baseline, and k where tools are called."""
    system = run.tags.get("system", "")
    k = run.tags.get("decoding.k", "")
    parts = [
        SYSTEMS.get(system, system),
        run.tags.get("baseline", ""),
        f"k={k}" if system == "toolformer" else "",
    ]
    return f"{' '.join(part for part in parts if part)} ({run.run_id[:8]})"


# -------------------------------------------------------------------- output


def as_json(comparison: Comparison) -> str:
    """For machines: one JSON object, figures unrounded; an infinite perplexity is null."""
    return json.dumps(_finite(asdict(comparison)), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def tables(comparison: Comparison) -> list[Table]:
    """For the terminal: a table of scores and one of perplexities, as far as there are any."""
    from rich.table import Table

    caption = (
        f"A: {comparison.first_name}; B: {comparison.second_name}. 95 % paired bootstrap intervals in brackets, "
        "Newcombe's where no sample tells the two apart."
    )
    made: list[Table] = []
    scored = [(one, one.scores) for one in comparison.benchmarks if one.scores]
    if scored:
        table = Table(title="Scores, percent correct", caption=caption, caption_justify="left")
        columns = ("n", "A", "B", "B - A", "only A right", "only B right", "McNemar p")
        _columns(table, columns)
        for one, scores in scored:
            table.add_row(
                one.task,
                f"{scores.n:,}",
                f"{scores.first:.1f}",
                f"{scores.second:.1f}",
                _estimate(scores.difference, "+.1f"),
                f"{scores.only_first:,}",
                f"{scores.only_second:,}",
                "" if scores.p_value is None else _p(scores.p_value),
            )
        made.append(table)
    measured = [(one, one.perplexity) for one in comparison.benchmarks if one.perplexity]
    if measured:
        table = Table(title="Perplexity, lower is better", caption=caption, caption_justify="left")
        _columns(table, ("n", "per", "A", "B", "B - A", "B / A"))
        for one, found in measured:
            table.add_row(
                one.task,
                f"{found.n:,}",
                one.unit,
                f"{found.first:.2f}",
                f"{found.second:.2f}",
                _estimate(found.difference, "+.2f"),
                _estimate(found.ratio, ".4f"),
            )
        made.append(table)
    return made


def remarks(comparison: Comparison) -> list[str]:
    """What could not be compared, or not on equal terms, a line each."""
    lines = []
    for one in comparison.benchmarks:
        if one.unpaired.total:
            lines.append(
                f"{one.task}: {one.unpaired.total} samples without a partner: {one.unpaired.only_first} only in A, "
                f"{one.unpaired.only_second} only in B, {one.unpaired.changed} asked otherwise"
            )
    for other, names in (("B", comparison.only_first), ("A", comparison.only_second)):
        if names:
            lines.append(f"{', '.join(names)}: not compared, {other} has nothing to pair with it")
    if not comparison.same_scoring:
        lines.append(
            "A and B were scored by different versions of the benchmarks; evaluate the older one again, which scores its "
            "answers anew"
        )
    return lines


def _columns(table: Table, names: Sequence[str]) -> None:
    table.add_column("benchmark", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")


def _estimate(estimate: Estimate, form: str) -> str:
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def _p(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"
