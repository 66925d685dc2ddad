"""Two evaluations, or groups of them that differ only in their seed, on the same samples.

Paired differences by benchmark, and the settings in which the two differ.
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from toolformer.decoding.settings import SYSTEMS
from toolformer.errors import UserError
from toolformer.evaluation.metrics import GOLD_NATS
from toolformer.jobs.config.keys import default_of
from toolformer.reporting.formatting import seeds_note
from toolformer.reporting.pairing import Row, Seeds, TaskComparison, compare_measures, corrected, read_samples
from toolformer.reporting.select import arm_of, seeds_of
from toolformer.reporting.table import Cell, Column, Content, Table, p_cell
from toolformer.results import Results, Run
from toolformer.results.store import LATEST, parse_reference


@dataclass(frozen=True)
class RunComparison:
    """Two runs or groups; every difference is the second minus the first."""

    first: str
    """Run id, or several with commas between."""
    second: str
    first_name: str
    second_name: str
    benchmarks: tuple[TaskComparison, ...]
    only_first: tuple[str, ...]
    """Benchmarks that the second run does not have, or has no sample of in common."""
    only_second: tuple[str, ...]
    settings: Mapping[str, tuple[str, str]]
    """The settings that decide a result and differ, with both sides' values; a default for one that was not set."""
    same_scoring: bool
    """Whether the same code scored both."""


def find_runs(
    results: Results, reference: str, experiment: str | None = None, seed: int | None = None
) -> list[Run]:
    """An evaluation, or several that differ only in their seed, in its order.

    Args:
        reference: a run id or at least its first six characters, `latest` (of this experiment and seed), `latest:SYSTEM`; several
            with commas between.

    Raises:
        UserError: there is none, it is not a finished evaluation, or several differ in more than their seed.
    """
    named = (results.resolve("evaluate", part, experiment, seed) for part in reference.split(","))
    runs = {run.id: run for run in named}
    if len(runs) == 1:
        return [*runs.values()]
    kinds = [*{(arm_of(run), run.step.version): run for run in reversed(runs.values())}.values()][::-1]
    if len(kinds) > 1:
        hint = ""
        keys = [key for key in _differing(kinds[:1], kinds[1:2]) if key.rpartition(".")[2] != "seed"][:6]
        if not keys and len({run.step.version for run in kinds}) > 1:
            keys, hint = ["the code that scored them"], "; run the commands of the older ones again"
        raise UserError(
            f"compare: the runs of {reference} differ in more than their seed "
            f"({', '.join(keys) or 'the data that they were trained on'}){hint}"
        )
    return sorted(runs.values(), key=seeds_of)


def _sides(
    results: Results, references: Sequence[str], experiment: str | None, seed: int | None
) -> list[list[Run]]:
    """The runs of both sides; of two that are `latest`, the newest that have a benchmark in common."""
    parts = [part for reference in references for part in reference.split(",")]
    asked = [parse_reference(part) for part in parts]  # a misspelt one before any is looked for
    sides = [find_runs(results, reference, experiment, seed) for reference in references]
    if len(parts) > len(references) or any(name != LATEST for name, _ in asked):
        return sides
    older = (results.runs("evaluate", experiment, **facts) for _, facts in asked)
    pairs = itertools.product(*([run for run in runs if seed in (None, run.seed)] for runs in older))
    return next(([[a], [b]] for a, b in pairs if a.tasks.keys() & b.tasks.keys()), sides)


def compare(
    results: Results,
    first: str,
    second: str,
    experiment: str | None = None,
    seed: int | None = None,
) -> RunComparison:
    """Compares two evaluations or groups, named as in `find_runs`. If both are `latest`, they are the newest with a benchmark in common.

    Raises:
        UserError: no such runs, one and the same run twice, or no sample in common.
    """
    first_runs, second_runs = _sides(results, (first, second), experiment, seed)
    if same := {run.id for run in first_runs} & {run.id for run in second_runs}:
        raise UserError(f"compare: {first} and {second} are the same run {min(same)[:8]}; name two")
    first_samples, second_samples = _samples(results, first_runs), _samples(results, second_runs)
    common = [task for task in first_samples if task in second_samples]
    measured = (compare_measures(task, first_samples[task], second_samples[task]) for task in common)
    benchmarks = tuple(corrected([compared for measures in measured for compared in measures]))
    settings = _differing(first_runs, second_runs)
    if not benchmarks:
        what = f"samples of {', '.join(common)}" if common else "benchmark"
        differ = f" (they differ in {', '.join(list(settings)[:6])})" if settings else ""
        raise UserError(f"compare: {first} and {second} have no {what} in common{differ}; evaluate alike")
    compared = {benchmark.task for benchmark in benchmarks}
    ids = [",".join(run.id for run in runs) for runs in (first_runs, second_runs)]
    alone = [
        tuple(task for task in samples if task not in compared) for samples in (first_samples, second_samples)
    ]
    same_scoring = len({run.step.version for run in (*first_runs, *second_runs)}) == 1
    return RunComparison(
        ids[0],
        ids[1],
        _title(first_runs),
        _title(second_runs),
        benchmarks,
        alone[0],
        alone[1],
        settings,
        same_scoring,
    )


def _differing(first_runs: Sequence[Run], second_runs: Sequence[Run]) -> dict[str, tuple[str, str]]:
    """The settings that decide a result and differ, by dotted key, with the values of both sides."""
    runs = (*first_runs, *second_runs)
    keys = sorted({key for run in runs for key in _settings(run)})
    if not all(
        _calls_tools(run) for run in runs
    ):  # its tools have no settings, which is no further difference
        keys = [key for key in keys if not key.startswith("tool.")]
    pairs = {key: (_values(first_runs, key), _values(second_runs, key)) for key in keys}
    return {key: (first, second) for key, (first, second) in pairs.items() if first != second}


def _calls_tools(run: Run) -> bool:
    answer = run.step.find("answer")
    return bool(answer and answer.settings.get("tool"))


def _settings(run: Run) -> dict[str, Any]:
    """The settings of a run's step and of those that it read, and what `lm.dtype=auto` resolved to."""
    flat = {key.removeprefix("answer."): value for key, value in run.step.flat().items()}
    return {**flat, "model": run.setting("model"), "dtype": run.facts.get("dtype")}


def _values(runs: Sequence[Run], key: str) -> str:
    values = (_value(run, key) for run in runs)
    texts = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values)
    return ", ".join(dict.fromkeys(texts))


def _value(run: Run, key: str) -> Any:
    """A setting of a run; its default where it was not set, and nothing where the run was made from no such step."""
    settings = _settings(run)
    steps = re.findall(r"(train|generate|annotate)(?:\[\d+\])?\.", key)
    has_steps = all(run.step.find(step) for step in steps)
    return settings[key] if key in settings else default_of(key) if has_steps else ""


def _samples(results: Results, runs: Sequence[Run]) -> dict[str, Seeds]:
    """The samples of runs by benchmark, of those that all of them were measured on."""
    samples_by_run: list[dict[str, Sequence[Row]]] = []
    for run in runs:
        paths = sorted(results.artifact(run, "samples", reduced=True).glob("*.parquet"))
        samples = {path.stem: read_samples(path, [GOLD_NATS]) for path in paths}
        samples_by_run.append({task: rows for task, rows in samples.items() if rows})
    return {
        task: [(seeds_of(run), samples[task]) for run, samples in zip(runs, samples_by_run, strict=True)]
        for task in samples_by_run[0]
        if all(task in samples for samples in samples_by_run)
    }


def _title(runs: Sequence[Run]) -> str:
    """The title of a run or a group: the system, the model of a baseline, and k where tools are called."""
    facts = runs[0].facts
    system = facts.get("system", "")
    k = f"k={facts.get('policy', '')}" if system == "toolformer" else ""
    parts = filter(None, (SYSTEMS[system].title if system in SYSTEMS else system, facts.get("baseline"), k))
    seeds = f"{len(runs)} seeds" if len(runs) > 1 else ""
    dtypes = dict.fromkeys(str(run.facts["dtype"]) for run in runs if run.facts.get("dtype"))
    details = filter(None, (*(run.id[:8] for run in runs), seeds, ", ".join(dtypes)))
    return f"{' '.join(parts)} ({', '.join(details)})"


def as_json(comparison: RunComparison) -> str:
    """For machines: one JSON object, figures unrounded; an infinite perplexity is null."""
    plain = json.loads(json.dumps(asdict(comparison)), parse_constant=lambda infinite: None)
    return json.dumps(plain, indent=2)


def comparison_content(comparison: RunComparison) -> Content:
    """For the terminal: what was measured, and the settings that differ, if any do."""
    heads = ("n", "A", "B", "B - A", "only A", "only B", "p", "p (Holm)", "detectable")
    columns = [Column("benchmark", numeric=False), Column("measure", numeric=False), *map(Column, heads)]
    rows = [_row(compared) for compared in comparison.benchmarks]
    number = sum(compared.comparison.p_value is not None for compared in comparison.benchmarks)
    tests = dict.fromkeys(compared.comparison.test for compared in comparison.benchmarks)
    legend = (
        f"95 % intervals in brackets; of perplexities B / A. Only A: answers that A alone has right. p by {'; '.join(tests)}. "
        f"Holm: corrected for {number} comparison{'' if number == 1 else 's'}. "
        "Detectable: the smallest true difference that is significant at 5 % in four cases of five."
    )
    parts = [Table("", "", "Paired differences", columns, rows, legend)]
    if comparison.settings:
        columns = [Column("key", numeric=False), *(Column(side, numeric=False, wide=True) for side in "AB")]
        rows = [[Cell(key), *map(Cell, values)] for key, values in comparison.settings.items()]
        parts.append(Table("", "", "Settings that differ", columns, rows))
    title = f"A: {comparison.first_name}; B: {comparison.second_name}"
    return Content(title, parts, remarks=remarks(comparison))


def _row(compared: TaskComparison) -> list[Cell]:
    """One benchmark as a row of the table of differences."""
    comparison = compared.comparison
    digits, measure = 2, "nats of the gold answer"
    counts = [Cell(""), Cell("")]
    if compared.unit:
        measure = f"perplexity per {compared.unit}"
    elif compared.is_score:
        digits, measure = 1, "percent correct"
        counts = [Cell(comparison.only_first), Cell(comparison.only_second)]
    finer = 4 if compared.unit else digits
    estimate = comparison.difference
    signed, note = not compared.unit, seeds_note(comparison)
    difference = Cell(estimate.value, finer, signed, low=estimate.low, high=estimate.high, note=note)
    return [
        Cell(compared.task),
        Cell(measure),
        Cell(comparison.n),
        *(Cell(value, digits) for value in (comparison.first, comparison.second)),
        difference,
        *counts,
        *map(p_cell, (comparison.p_value, compared.p_holm)),
        Cell(comparison.detectable, finer),
    ]


def remarks(comparison: RunComparison) -> list[str]:
    """One line for each comparison that was impossible or not on equal terms."""
    lines = [
        f"{compared.task}: {alone.total} samples without a partner: {alone.only_first} only in A, "
        f"{alone.only_second} only in B, {alone.changed} with another prompt"
        for compared in comparison.benchmarks
        if (alone := compared.unpaired).total
    ]
    for other, names in (("B", comparison.only_first), ("A", comparison.only_second)):
        if names:
            lines.append(f"{', '.join(names)}: not compared, {other} has nothing to pair with it")
    seeds = comparison.benchmarks[0].seeds
    if min(seeds) == 1 < max(seeds):
        lines.append(
            f"{'AB'[seeds.index(1)]} is one run: interval and p are about that run, not about its other seeds"
        )
    if not comparison.same_scoring:
        lines.append(
            "A and B were scored by different versions of the benchmarks; evaluate the older one again"
        )
    return lines
