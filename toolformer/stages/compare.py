"""Two evaluation runs on the same samples: paired differences by benchmark, and the settings in which they differ."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from toolformer.credentials import printable
from toolformer.decoding.settings import SYSTEMS
from toolformer.errors import UserError
from toolformer.reporting.pairing import Compared, Row, compare_task, read_samples

if TYPE_CHECKING:
    from rich.table import Table

    from benchmarks.paired import Estimate
    from toolformer.tracking import Run, Tracker

_IGNORED = ("name", "run.", "paths.root", "paths.cache", "tracking.", "like", "paper", "index.", "engine.")
"""Parameters that decide no answer."""


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
    settings: Mapping[str, tuple[str, str]]
    """The logged settings in which the runs differ, with both values; empty for one that a run lacks."""
    same_scoring: bool
    """Whether the same code scored both."""


def find(tracker: Tracker, reference: str, **tags: str) -> Run:
    """An evaluation: a run id, the first characters (at least 6) of one, `latest` (with these tags), or `latest:SYSTEM`.

    Raises:
        UserError: there is none, or it is no finished evaluation.
    """
    name, colon, system = reference.partition(":")
    if not colon:
        return tracker.resolve("evaluate", reference, **tags)
    if name != "latest" or system not in SYSTEMS:
        raise UserError(
            f"compare: {reference!r} is no run; say a run id, latest, or latest: and one of {', '.join(SYSTEMS)}"
        )
    return tracker.resolve("evaluate", "latest", system=system, **tags)


def compare(
    tracker: Tracker, first: str, second: str, seed: int = 0, resamples: int = 2000, **tags: str
) -> Comparison:
    """Compares two evaluations, named as in `find`.

    Raises:
        UserError: no such runs, one and the same run twice, or no sample in common.
    """
    one, two = find(tracker, first, **tags), find(tracker, second, **tags)
    if one.run_id == two.run_id:
        raise UserError(f"compare: {first} and {second} are the same run {one.run_id[:8]}; name two")
    samples_one, samples_two = _samples(tracker, one), _samples(tracker, two)
    common = [task for task in samples_one if task in samples_two]
    pairs = (compare_task(task, samples_one[task], samples_two[task], seed, resamples) for task in common)
    benchmarks = tuple(compared for compared in pairs if compared)
    settings = _settings(one, two)
    if not benchmarks:
        what = f"samples of {', '.join(common)}" if common else "benchmark"
        differ = f" (they differ in {', '.join(list(settings)[:6])})" if settings else ""
        raise UserError(
            f"compare: runs {one.run_id[:8]} and {two.run_id[:8]} have no {what} in common{differ}; evaluate both with the "
            "same benchmarks, data, evaluation.limit and seed"
        )
    compared = {benchmark.task for benchmark in benchmarks}
    only_one = tuple(task for task in samples_one if task not in compared)
    only_two = tuple(task for task in samples_two if task not in compared)
    same_scoring = one.tags.get("scoring") == two.tags.get("scoring")
    return Comparison(
        one.run_id,
        two.run_id,
        _title(one),
        _title(two),
        benchmarks,
        only_one,
        only_two,
        settings,
        same_scoring,
    )


def _settings(one: Run, two: Run) -> dict[str, tuple[str, str]]:
    keys = sorted({*one.params, *two.params})
    values = {key: (one.params.get(key, ""), two.params.get(key, "")) for key in keys}
    return {key: pair for key, pair in values.items() if pair[0] != pair[1] and not key.startswith(_IGNORED)}


def _samples(tracker: Tracker, run: Run) -> Mapping[str, Sequence[Row]]:
    """The samples of a run by benchmark."""
    folder = tracker.artifact_path(run, "samples")
    read = {path.stem: read_samples(path) for path in sorted(folder.glob("*.parquet"))}
    return {task: rows for task, rows in read.items() if rows}


def _title(run: Run) -> str:
    """What tells a run from another: the system, the model of a baseline, and k where tools are called."""
    system = run.tags.get("system", "")
    k = f"k={run.tags.get('decoding.k', '')}" if system == "toolformer" else ""
    parts = filter(None, (SYSTEMS.get(system, system), run.tags.get("baseline", ""), k))
    return f"{' '.join(parts)} ({run.run_id[:8]})"


def as_json(comparison: Comparison) -> str:
    """For machines: one JSON object, figures unrounded; an infinite perplexity is null."""
    return json.dumps(_finite(asdict(comparison)), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def tables(comparison: Comparison) -> list[Table]:
    """For the terminal: scores, perplexities and settings that differ, as far as there are any."""
    scores, perplexities = [], []
    for compared in comparison.benchmarks:
        if found := compared.scores:
            p = "" if found.p_value is None else f"{found.p_value:.4f}".replace("0.0000", "< 0.0001")
            percents = f"{found.first:.1f}", f"{found.second:.1f}", _estimate(found.difference, "+.1f")
            only = f"{found.only_first:,}", f"{found.only_second:,}"
            scores.append((compared.task, f"{found.n:,}", *percents, *only, p))
        if values := compared.perplexity:
            figures = f"{values.first:.2f}", f"{values.second:.2f}", _estimate(values.difference, "+.2f")
            ratio = _estimate(values.ratio, ".4f")
            perplexities.append((compared.task, f"{values.n:,}", compared.unit, *figures, ratio))
    caption = f"A: {comparison.first_name}; B: {comparison.second_name}. 95 % paired bootstrap intervals in brackets."
    of_scores = ("benchmark", "n", "A", "B", "B - A", "only A right", "only B right", "McNemar p")
    of_perplexities = ("benchmark", "n", "per", "A", "B", "B - A", "B / A")
    settings = [(key, *pair) for key, pair in comparison.settings.items()]
    tables = (
        _table("Scores, percent correct", of_scores, scores, caption),
        _table("Perplexity, lower is better", of_perplexities, perplexities, caption),
        _table("Settings that differ", ("key", "A", "B"), settings, ""),
    )
    return [table for table in tables if table.row_count]


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Table:
    """A table of plain text: what names hold is neither markup nor an escape sequence."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, caption=Text(printable(caption)), caption_justify="left")
    for index, head in enumerate(heads):
        table.add_column(head, justify="right" if index else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def remarks(comparison: Comparison) -> list[str]:
    """What could not be compared, or not on equal terms, a line each."""
    lines = [
        f"{compared.task}: {alone.total} samples without a partner: {alone.only_first} only in A, "
        f"{alone.only_second} only in B, {alone.changed} asked otherwise"
        for compared in comparison.benchmarks
        if (alone := compared.unpaired).total
    ]
    for other, names in (("B", comparison.only_first), ("A", comparison.only_second)):
        if names:
            lines.append(f"{', '.join(names)}: not compared, {other} has nothing to pair with it")
    if not comparison.same_scoring:
        lines.append(
            "A and B were scored by different versions of the benchmarks; evaluate the older one again"
        )
    return [printable(line) for line in lines]


def _estimate(estimate: Estimate, form: str) -> str:
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"
