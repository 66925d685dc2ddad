"""Two evaluations, or groups of them that differ only in their seed, on the same samples.

Paired differences by benchmark, and the settings in which the two differ.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from toolformer.decoding.settings import SYSTEMS
from toolformer.errors import UserError, near
from toolformer.evaluation.metrics import GOLD_NATS
from toolformer.reporting.pairing import Compared, Row, Seeds, compare_measures, corrected, read_samples
from toolformer.reporting.selection import asked_by, kind_of, seed_of
from toolformer.reporting.table import Cell, Column, Content, Table
from toolformer.statistics.paired import Estimate
from toolformer.tracking import Run, Tracker

_IGNORED = ("name", "run.", "paths.root", "paths.cache", "tracking.", "like", "paper", "index.", "engine.")
"""Parameters that decide no answer."""


@dataclass(frozen=True)
class Comparison:
    """Two runs or groups; every difference is the second minus the first."""

    first: str
    """Run id, or several with commas between."""
    second: str
    first_name: str
    second_name: str
    benchmarks: tuple[Compared, ...]
    only_first: tuple[str, ...]
    """Benchmarks that the second run does not have, or has no sample of in common."""
    only_second: tuple[str, ...]
    settings: Mapping[str, tuple[str, str]]
    """The logged settings in which the runs differ, with both sides' values; empty for one that a side lacks."""
    same_scoring: bool
    """Whether the same code scored both."""


def find(tracker: Tracker, reference: str, **tags: str) -> list[Run]:
    """An evaluation, or several that differ only in their seed, in its order.

    Args:
        reference: a run id or at least its first six characters, `latest` (with these tags), `latest:SYSTEM`; several of these
            with commas between; the parent run of a sweep over seeds, or PARENT:SYSTEM.

    Raises:
        UserError: there is none, it is no finished evaluation, or several differ in more than their seed.
    """
    runs = {run.run_id: run for part in reference.split(",") for run in _named(tracker, part, **tags)}
    trained = {run.run_id: run for run in tracker.runs("train")} if len(runs) > 1 else {}
    ordered = sorted(runs.values(), key=lambda run: (seed_of(run, trained), asked_by(run)))
    kinds = {kind_of(run, trained): run for run in ordered}
    if len(kinds) > 1:
        systems = sorted({run.tags.get("system", "") for run in ordered})
        hint = f"; name one system of it, as {reference}:{systems[-1]}" if len(systems) > 1 else ""
        one, two = list(kinds.values())[:2]
        differ = [key for key in _settings([one], [two]) if key not in ("checkpoint", "seed")][:6]
        if not differ and one.tags.get("scoring") != two.tags.get("scoring"):
            differ, hint = ["the code that scored them"], "; give the commands of the older ones again"
        raise UserError(
            f"compare: the runs of {reference} differ in more than their seed "
            f"({', '.join(differ) or 'what they were trained on'}){hint}"
        )
    return ordered


def _named(tracker: Tracker, reference: str, **tags: str) -> list[Run]:
    name, colon, system = reference.partition(":")
    if colon and system not in SYSTEMS:
        raise UserError(f"{reference!r} is no run; say an id, latest or latest:SYSTEM{near(system, SYSTEMS)}")
    if swept := tracker.swept("evaluate", name):
        return [run for run in swept if system in ("", run.tags.get("system"))]
    if colon and name == "latest":
        return [tracker.resolve("evaluate", name, None, False, system=system, **tags)]
    return [tracker.resolve("evaluate", name, None, False, **tags)]


def compare(
    tracker: Tracker, first: str, second: str, seed: int = 0, resamples: int = 2000, **tags: str
) -> Comparison:
    """Compares two evaluations or groups, named as in `find`.

    Raises:
        UserError: no such runs, one and the same run twice, or no sample in common.
    """
    one, two = find(tracker, first, **tags), find(tracker, second, **tags)
    if same := {run.run_id for run in one} & {run.run_id for run in two}:
        raise UserError(f"compare: {first} and {second} are the same run {min(same)[:8]}; name two")
    samples_one, samples_two = _samples(tracker, one), _samples(tracker, two)
    common = [task for task in samples_one if task in samples_two]
    found = (compare_measures(task, samples_one[task], samples_two[task], seed, resamples) for task in common)
    benchmarks = tuple(corrected([compared for measures in found for compared in measures]))
    settings = _settings(one, two)
    if not benchmarks:
        what = f"samples of {', '.join(common)}" if common else "benchmark"
        differ = f" (they differ in {', '.join(list(settings)[:6])})" if settings else ""
        raise UserError(f"compare: {first} and {second} have no {what} in common{differ}; evaluate alike")
    compared = {benchmark.task for benchmark in benchmarks}
    only_one = tuple(task for task in samples_one if task not in compared)
    only_two = tuple(task for task in samples_two if task not in compared)
    same_scoring = len({run.tags.get("scoring") for run in (*one, *two)}) == 1
    ids = [",".join(run.run_id for run in runs) for runs in (one, two)]
    return Comparison(
        ids[0], ids[1], _title(one), _title(two), benchmarks, only_one, only_two, settings, same_scoring
    )


def _settings(one: Sequence[Run], two: Sequence[Run]) -> dict[str, tuple[str, str]]:
    def values(runs: Sequence[Run], key: str) -> str:
        return ", ".join(dict.fromkeys(run.params.get(key, "") for run in runs))

    keys = sorted({key for run in (*one, *two) for key in run.params})
    pairs = {key: (values(one, key), values(two, key)) for key in keys}
    # What lm.dtype=auto came to.
    pairs["dtype"] = _dtypes(one), _dtypes(two)
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1] and not key.startswith(_IGNORED)}


def _dtypes(runs: Sequence[Run]) -> str:
    return ", ".join(dict.fromkeys(filter(None, (run.tags.get("dtype") for run in runs))))


def _samples(tracker: Tracker, runs: Sequence[Run]) -> dict[str, Seeds]:
    """The samples of runs by benchmark, of those that all of them were measured on."""
    read: list[dict[str, Sequence[Row]]] = []
    for run in runs:
        paths = sorted(tracker.artifact_path(run, "samples").glob("*.parquet"))
        samples = {path.stem: read_samples(path, [GOLD_NATS]) for path in paths}
        read.append({task: rows for task, rows in samples.items() if rows})
    return {
        task: [(asked_by(run), samples[task]) for run, samples in zip(runs, read, strict=True)]
        for task in read[0]
        if all(task in samples for samples in read)
    }


def _title(runs: Sequence[Run]) -> str:
    """What tells a run or a group from another: the system, the model of a baseline, and k where tools are called."""
    run = runs[0]
    system = run.tags.get("system", "")
    k = f"k={run.tags.get('decoding.k', '')}" if system == "toolformer" else ""
    parts = filter(None, (SYSTEMS.get(system, system), run.tags.get("baseline", ""), k))
    seeds = f"{len(runs)} seeds" if len(runs) > 1 else ""
    about = filter(None, (*(run.run_id[:8] for run in runs), seeds, _dtypes(runs)))
    return f"{' '.join(parts)} ({', '.join(about)})"


def as_json(comparison: Comparison) -> str:
    """For machines: one JSON object, figures unrounded; an infinite perplexity is null."""
    plain = json.loads(json.dumps(asdict(comparison)), parse_constant=lambda infinite: None)
    return json.dumps(plain, indent=2)


def content(comparison: Comparison) -> Content:
    """For the terminal: what was measured, and the settings that differ, if any do."""
    heads = ("n", "A", "B", "B - A", "detail", "p", "p (Holm)", "detectable")
    columns = [Column("benchmark", numeric=False), Column("measure", numeric=False), *map(Column, heads)]
    rows: list[list[Cell]] = []
    for compared in comparison.benchmarks:
        found = compared.scores or compared.perplexity
        assert found
        form, least, measure, detail = ".2f", ".2f", "nats of the gold answer", ""
        if compared.perplexity:
            least, measure = ".4f", f"perplexity per {compared.unit}"
            detail = f"B / A {_estimate(compared.perplexity.ratio, '.4f')}"
        elif compared.scores and not compared.task.endswith(GOLD_NATS):
            form, least, measure = ".1f", ".1f", "percent correct"
            if compared.scores.only_first is not None:
                alone = compared.scores.only_first, compared.scores.only_second
                detail = "only A right {:,}, only B right {:,}".format(*alone)
        tested = _p(compared.p_value), _p(compared.p_holm), _number(found.detectable, least)
        sides = f"{found.first:{form}}", f"{found.second:{form}}", _estimate(found.difference, f"+{form}")
        rows.append([*map(Cell, (compared.task, measure, f"{found.n:,}", *sides, detail, *tested))])
    number = sum(compared.p_value is not None for compared in comparison.benchmarks)
    legend = (
        "95 % intervals in brackets: paired bootstrap, of several seeds Student's t; p is exact McNemar's "
        "for right and wrong, else of a paired t test, over seeds where there are several. "
        f"Holm: corrected for {number} comparison{'' if number == 1 else 's'}. "
        "Detectable: the least difference that this n shows at 5 % with 80 % power."
    )
    parts = [Table("", "", "Paired differences", columns, rows, legend)]
    if comparison.settings:
        columns = [Column("key", numeric=False), *(Column(side, numeric=False, wide=True) for side in "AB")]
        rows = [[Cell(key), *map(Cell, values)] for key, values in comparison.settings.items()]
        parts.append(Table("", "", "Settings that differ", columns, rows))
    title = f"A: {comparison.first_name}; B: {comparison.second_name}"
    return Content(title, parts, remarks=remarks(comparison))


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
    seeds = comparison.benchmarks[0].seeds
    if min(seeds) == 1 < max(seeds):
        lines.append(
            f"{'AB'[seeds.index(1)]} is one run: p does not know how it would vary with another seed"
        )
    if not comparison.same_scoring:
        lines.append(
            "A and B were scored by different versions of the benchmarks; evaluate the older one again"
        )
    return lines


def _number(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"


def _p(p: float | None) -> str:
    return _number(p, ".4f").replace("0.0000", "< 0.0001")


def _estimate(estimate: Estimate, form: str) -> str:
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"
