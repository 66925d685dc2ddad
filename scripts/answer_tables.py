"""The tables of a page from published answers (`scripts/answers.py`); `scripts/tables.py` writes them into the pages."""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.special import stdtr

from scripts import position_tables
from scripts.answers import PARTS, Answers, calls_of, title
from toolformer.benchmarks import PAPER, TASKS
from toolformer.benchmarks.declared import is_perplexity
from toolformer.benchmarks.metrics import as_number, number_in
from toolformer.data.parquet import read_table
from toolformer.errors import UserError, near
from toolformer.evaluation.ladder.classes import CLASSES, RUNGS
from toolformer.jobs.evaluate import LADDER
from toolformer.reporting.formatting import in_table_order, seeds_note, tool_name
from toolformer.reporting.pairing import (
    Row,
    Seeds,
    TaskComparison,
    answers_of,
    corrected,
    over_seeds,
    unit_of,
)
from toolformer.reporting.reader import explained_tasks
from toolformer.reporting.table import Cell, p_cell
from toolformer.results import Run
from toolformer.statistics.crossed import LEVEL, Effect
from toolformer.statistics.intervals import table as tabled

Table = list[dict[str, str]]
"""Rows by heading, all with the same ones."""
CALLED = ("Calculator", "Calendar", "WikiSearch", "QA")
"""The tools as calls name them."""


def scores(answers: Answers, arms: Sequence[str], benchmarks: Sequence[str], seeds: str = "") -> Table:
    """The mean over seeds of each arm on each benchmark, and the number of seeds: all, or those below `seeds`."""
    rows = []
    for benchmark in benchmarks:
        measured = {
            name: [pair for pair in answers.of(name, benchmark) if not seeds or pair[0][0] < int(seeds)]
            for name in arms
        }
        intervals = {name: over_seeds([answered for _, answered in runs]) for name, runs in measured.items()}
        row = {
            "benchmark": title(benchmark),
            "questions": f"{max(value.n for value in intervals.values()):,}",
        }
        row |= {name: _number(Cell(value.value, _digits(benchmark))) for name, value in intervals.items()}
        row |= {
            f"{name}, interval": _number(Cell(v.value, _digits(benchmark), low=v.low, high=v.high))
            for name, v in intervals.items()
        }
        rows.append(row | {f"{name}, seeds": f"{len(runs)}" for name, runs in measured.items()})
    return rows


def gains(
    answers: Answers, of: str, over: str, benchmarks: Sequence[str], wordings: Sequence[str] = (PAPER,)
) -> Table:
    """The differences between two arms, with p corrected over the rows (Holm); of perplexities ratios."""
    compared = answers.compared(of, over, benchmarks, wordings)
    labels = [(benchmark, wording) for benchmark in benchmarks for wording in wordings]
    return [_gain(each, of, over, *label) for each, label in zip(compared, labels, strict=True)]


def _gain(compared: TaskComparison, of: str, over: str, benchmark: str, wording: str) -> dict[str, str]:
    found, estimate = compared.comparison, compared.comparison.difference
    digits = 3 if compared.unit else 1
    signed, note = not compared.unit, seeds_note(found)
    gain = Cell(estimate.value, digits, signed, low=estimate.low, high=estimate.high, note=note)
    row = {
        "benchmark": title(benchmark),
        "wording": wording,
        "questions": f"{found.n:,}",
        "seeds": f"{max(compared.seeds)}",
        over: _number(Cell(found.first, _digits(benchmark))),
        of: _number(Cell(found.second, _digits(benchmark))),
        "ratio" if compared.unit else "gain": _number(gain),
        "p": p_cell(found.p_value).text,
        "p (Holm)": p_cell(compared.p_holm).text,
        "detectable": _number(Cell(found.detectable, digits)),
    }
    lost, gained = found.only_first, found.only_second
    return row if gained is None else {**row, "gained": f"{gained:,}", "lost": f"{lost:,}"}


def hypotheses(answers: Answers, path: Path | None = None) -> Table:
    """Every registered hypothesis with its target, and whether it was met: significant and at the target, or a ratio within it."""
    rows: list[dict[str, str]] = []
    listed = set[tuple[object, ...]]()
    families: list[Mapping[str, Any]] = json.loads(
        (path or answers.experiment.hypotheses).read_text(encoding="utf-8")
    )
    for number, family in enumerate(families, 1):
        wordings = family.get("wordings", [PAPER])
        labels = [(benchmark, wording) for benchmark in family["targets"] for wording in wordings]
        compared = answers.compared(family["of"], family["over"], [*family["targets"]], wordings)
        for (benchmark, wording), each in zip(labels, compared, strict=True):
            target = family["targets"][benchmark]
            if base := family.get("share_of"):
                (whole,) = answers.compared(base[0], base[1], [benchmark])
                target *= whole.comparison.difference.value
            hypothesis = family["of"], family["over"], benchmark, wording, target
            if hypothesis in listed:  # one of two families
                continue
            listed.add(hypothesis)
            rows.append(
                {
                    "family": f"{number}",
                    "comparison": f"{family['of']} over {family['over']}",
                    **(
                        {"benchmark": title(benchmark)}
                        if wording == PAPER
                        else {"benchmark": f"{title(benchmark)}, wording {wording}"}
                    ),
                    **_judged(each, float(target), float(family.get("level", LEVEL))),
                }
            )
    return rows


def _judged(compared: TaskComparison, target: float, level: float) -> dict[str, str]:
    """A hypothesis with its result. p is below `level` after correction, and the estimate at least the target, a ratio at most."""
    value, p = compared.comparison.difference, compared.p_holm
    is_ratio = bool(compared.unit)
    met = (
        value.value <= target
        if is_ratio
        else p is not None and p < level and value.value >= target and value.value > 0
    )
    digits = 3 if is_ratio else 1
    return {
        "target": f"≤ {target:g}"
        if is_ratio
        else _number(Cell(target, 1, True))
        if target
        else f"> 0, p < {level:g}",
        "result": _number(
            Cell(
                value.value,
                digits,
                not is_ratio,
                low=value.low,
                high=value.high,
                note=seeds_note(compared.comparison),
            )
        ),
        "p (Holm)": p_cell(p).text,
        "outcome": "met" if met else "missed",
    }


def calls(answers: Answers) -> Table:
    """Per annotation and tool, the calls that were sampled, scored and kept; of those kept, the percent that leak (the call holds
    what the text says only after it) and that harm (their result makes the next words less likely). Draws by chance are averaged."""
    drawn: dict[tuple[str, str], list[list[Row]]] = {}
    for run in _annotations(answers):
        file = answers.results.artifact(run, "candidates.parquet", reduced=True)
        candidates = read_table(file, ["tool", "status", "kept", "leak", "filter_gain"]).to_pylist()
        for tool in run.step.settings.get("tool", {}):
            of_tool = [row for row in candidates if row["tool"] == tool]
            drawn.setdefault((calls_of(run.step), tool), []).append(of_tool)
    return [_counted(kept_by, tool, rows) for (kept_by, tool), rows in drawn.items()]


def _counted(kept_by: str, tool: str, draws: Sequence[Sequence[Row]]) -> dict[str, str]:
    rows = [*itertools.chain.from_iterable(draws)]
    kept = [row for row in rows if row["kept"]]
    named = {"new": "loss, new calls"}.get(kept_by, kept_by)
    counts = {
        "sampled": len(rows),
        "scored": sum(row["status"] == "scored" for row in rows),
        "kept": len(kept),
    }
    return {
        "kept by": named if len(draws) == 1 else f"{named}, mean of {len(draws)} draws",
        "tool": tool_name(tool),
        **{name: f"{count / len(draws):,.0f}" for name, count in counts.items()},
        "leaking": _percent(bool(row["leak"]) for row in kept),
        "harmful": _percent(row["filter_gain"] < 0 for row in kept),
    }


EFFECT = (
    ("arithmetic", "Toolformer", "disabled + rule"),
    ("mawps", "Toolformer", "disabled + rule"),
    ("svamp", "Toolformer", "disabled + rule"),
    ("dateset", "Toolformer", None),
    ("nq", "Toolformer, index without", "question as query, index without"),
    ("lama_trex", "Toolformer, index without", "question as query, index without"),
)
"""Of each main benchmark the arm that is compared with disabled calls, without passages chosen for the benchmark, and the rule."""


def effect(answers: Answers) -> Table:
    """Toolformer on the main benchmarks, over the same models with calls disabled, and over the rule; p corrected over the rows."""
    over_disabled = corrected([answers.compare_one(of, "disabled", task) for task, of, _ in EFFECT])
    ruled = [(task, of, rule) for task, of, rule in EFFECT if rule]
    over_rule = dict(
        zip(
            (task for task, _, _ in ruled),
            corrected([answers.compare_one(of, rule, task) for task, of, rule in ruled]),
            strict=True,
        )
    )
    rows = []
    for (task, of, _), compared in zip(EFFECT, over_disabled, strict=True):
        gain = _gain(compared, "Toolformer", "disabled", task, PAPER)
        rule = _gain(over_rule[task], "Toolformer", "rule", task, PAPER) if task in over_rule else {}
        marked = "*" if "without" in of else ""
        rows.append(
            {
                "benchmark": f"{title(task)}{marked}",
                **{name: gain[name] for name in ("disabled", "Toolformer", "gain", "p (Holm)")},
                "rule": rule.get("rule", ""),
                "over the rule": rule.get("gain", ""),
                "p over the rule": rule.get("p (Holm)", ""),
            }
        )
    return rows


def seeds(answers: Answers, arms: Sequence[str], benchmarks: Sequence[str]) -> Table:
    """The score of every training of each arm on each benchmark, in a column per seed."""
    measured = {
        (benchmark, name): {pair[0][0]: over_seeds([pair[1]]) for pair in answers.of(name, benchmark)}
        for benchmark in benchmarks
        for name in arms
        if answers.has(name, benchmark)
    }
    columns = sorted({seed for scored in measured.values() for seed in scored})
    return [
        {
            "benchmark": title(benchmark),
            "system": name,
            **{f"{seed}": _number(Cell(scored[seed].value, _digits(benchmark))) if seed in scored else "" for seed in columns},
        }
        for (benchmark, name), scored in measured.items()
    ]  # fmt: skip


def families(answers: Answers, of: str, over: str, family: str = "near_day") -> Table:
    """Dateset's gain in one family of questions and in all others, with the gain of every training."""
    sides = [answers.by_seed(name, "dateset") for name in (of, over)]
    shared = sorted(sides[0].keys() & sides[1].keys())
    table = []
    for label, belongs in ((family, True), (f"not {family}", False)):
        chosen = [
            [[row for row in side[seed] if (row["family"] == family) is belongs] for seed in shared]
            for side in sides
        ]
        means = [[_mean(row["score"] for row in rows) for rows in side] for side in chosen]
        table.append(
            {
                "questions": label,
                "n": f"{len(chosen[0][0])}",
                over: f"{_mean(means[1]):.1f}",
                of: f"{_mean(means[0]):.1f}",
                "gain": _signed(_mean(means[0]) - _mean(means[1])),
                "gain by training": " ".join(_signed(one - two) for one, two in zip(*means, strict=True)),
            }
        )
    return table


def harmless(answers: Answers, of: str, over: str, benchmarks: Sequence[str], margin: str = "1.01") -> Table:
    """Whether perplexities are worse by less than a margin: p is one-sided, that the true ratio is the margin or more."""
    rows = []
    for benchmark in benchmarks:
        pairs = [answers.of(name, benchmark) for name in (of, over)]
        effect = log_ratio(*pairs)
        rows.append(
            {
                "benchmark": title(benchmark),
                "ratio": f"{math.exp(effect.value):.3f}",
                "p": p_cell(
                    float(stdtr(effect.freedom, (effect.value - math.log(float(margin))) / effect.error))
                ).text,
            }
        )
    return rows


def log_ratio(of: Seeds, over: Seeds) -> Effect:
    """The logarithm of the ratio of perplexities of the trainings that both have, over trainings and texts."""
    ones, twos = dict(of), dict(over)
    differences = []
    for seed in sorted(ones.keys() & twos.keys()):
        unit = unit_of([*ones[seed], *twos[seed]])
        first, second = answers_of(twos[seed], unit), answers_of(ones[seed], unit)
        differences.append({text: (nats - second[text][0], units) for text, (nats, units) in first.items()})
    return tabled(differences).effect


def _mean(values: Iterable[float]) -> float:
    listed = [*values]
    return sum(listed) / len(listed)


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def called(answers: Answers, arm: str, benchmarks: Sequence[str]) -> Table:
    """Of an arm on each benchmark, the percent of answers with a call of each tool, over all seeds."""
    rows = []
    for benchmark in benchmarks:
        made = [row.get("tools") or () for row in answers.whole(arm, benchmark)]
        row = {"benchmark": title(benchmark), "answers": f"{len(made):,}"}
        rows.append(row | {name: _percent(name in tools for tools in made) for name in CALLED})
    return rows


def sums(answers: Answers, arms: Sequence[str]) -> Table:
    """Of each arm's answers to arithmetic, over all seeds, the percent without a call, whose call returned a wrong or the right
    number, of the latter those that were wrong all the same, and of these, those that are right but for the minus."""
    rows = []
    for arm in arms:
        made = answers.whole(arm, "arithmetic")
        called = [bool(row.get("tools")) for row in made]
        right = [str(row.get("call_result")).replace(",", "") in row["target"] for row in made]
        lost = [is_right and not row["score"] for row, is_right in zip(made, right, strict=True)]
        unsigned = [
            is_lost and number_in(str(row["prediction"])) == -as_number(row["call_result"])
            for row, is_lost in zip(made, lost, strict=True)
        ]
        fates = {
            "no call": [not is_called for is_called in called],
            "wrong result": [is_called > is_right for is_called, is_right in zip(called, right, strict=True)],
            "right result": right,
            "right result, wrong answer": lost,
            "only the minus is missing": unsigned,
        }
        shares = {name: _percent(values) for name, values in fates.items()}
        rows.append({"calls": arm, "answers": f"{len(made):,}", **shares})
    return rows


def explained(answers: Answers) -> Table:
    """By benchmark, the percent of the explained answers in each class, and that are right under each oracle condition."""
    rows: dict[str, list[Row]] = {}
    for run in filter(explained_tasks, answers.results.runs("evaluate")):
        for file in sorted(answers.results.artifact(run, LADDER, reduced=True).glob("*.parquet")):
            rows.setdefault(file.stem, []).extend(read_table(file).to_pylist())
    return [_explained(task, rows[task]) for task in in_table_order(rows)]


def _explained(task: str, rows: Sequence[Row]) -> dict[str, str]:
    right = {
        rung: [row[f"{rung}_right"] for row in rows if row[f"{rung}_right"] is not None] for rung in RUNGS
    }
    return {
        "benchmark": title(task),
        "answers": f"{len(rows):,}",
        **{name: _percent(row["class"] == key for row in rows) for key, name in CLASSES.items()},
        **{name: _of(right[rung], len(rows)) for rung, name in RUNGS.items()},
    }


def _of(values: Sequence[bool], total: int) -> str:
    """The percent that are true; with the number of values where there are fewer than `total`."""
    share = _percent(values)
    return f"{share} (n = {len(values)})" if 0 < len(values) < total else share


def called_by_seed(answers: Answers, arm: str, benchmark: str) -> Table:
    """Of every training of an arm, the percent of answers to a benchmark with a call of each tool, and that are right."""
    rows = []
    for seeds, made in answers.by_seed(arm, benchmark).items():
        tools = [row.get("tools") or () for row in made]
        row = {
            "seed": f"{seeds[0]}",
            **{name: _percent(name in of_row for of_row in tools) for name in CALLED},
        }
        rows.append(row | {"correct": f"{_mean(row['score'] for row in made):.1f}"})
    return rows


def time(answers: Answers) -> Table:
    """By stage, how many runs there were and how long they took; an annotation that others share counts once."""
    seconds: dict[str, list[float]] = {}
    shared: dict[tuple[str, ...], float] = {}
    for run in _annotations(answers):
        key = tuple(step.key() for step in run.step.find_all("annotate"))
        shared[key] = run.metrics.get("annotation_seconds", 0.0)
    seconds["annotation"] = [*shared.values()]
    for stage, name in (("train", "training_seconds"), ("evaluate", "seconds")):
        seconds[stage] = [run.metrics.get(name, 0.0) for run in answers.results.runs(stage)]
    return [
        {"stage": stage, "runs": f"{len(values)}", "minutes each": f"{sum(values) / max(1, len(values)) / 60:.1f}", "hours": f"{sum(values) / 3600:.1f}"}
        for stage, values in seconds.items()
    ]  # fmt: skip


def _annotations(answers: Answers) -> list[Run]:
    """Those by the loss first, by chance last."""
    names = ("loss", "new", "chance", "chance above 0", "without leaks")
    return sorted(
        answers.results.runs("generate"), key=lambda run: (names.index(calls_of(run.step)), run.started)
    )


def _percent(of: Iterable[bool]) -> str:
    """Of the values that are true, with one decimal; empty for no values."""
    values = [*of]
    return f"{100 * sum(values) / len(values):.1f}" if values else ""


def _digits(benchmark: str) -> int:
    return 2 if is_perplexity(PARTS.get(benchmark, (benchmark,))[0]) else 1


def _number(cell: Cell) -> str:
    return " ".join(filter(None, (cell.text, cell.detail))).replace("-", "−")


KINDS: Mapping[str, Callable[..., Table]] = {
    "scores": scores, "gains": gains, "hypotheses": hypotheses, "calls": calls, "called": called, "called_by_seed": called_by_seed, "sums": sums, "explained": explained,
    "time": time, "seeds": seeds, "families": families, "harmless": harmless,
    "effect": effect, "draws": position_tables.draws, "by_annotation": position_tables.by_annotation, "kinds": position_tables.kinds, "kept": position_tables.kept, "yields": position_tables.yields,
}  # fmt: skip
"""The tables, by name in a page's comment; options are arguments, lists with commas between."""
LISTS = ("arms", "benchmarks", "wordings")


def table(answers: Answers, kind: str, options: Mapping[str, str]) -> Table:
    """A table as a page's comment names it. UserError for what there is not."""
    if kind not in KINDS:
        raise UserError(f"there is no table {kind!r}{near(kind, KINDS)}; known: {', '.join(KINDS)}")
    given: dict[str, Any] = {
        name: [part.strip() for part in value.split(";")] if name in LISTS else value
        for name, value in options.items()
    }
    for benchmark in given.get("benchmarks", ()):
        if benchmark not in (*TASKS, *PARTS):
            raise UserError(f"there is no benchmark {benchmark!r}{near(benchmark, [*TASKS, *PARTS])}")
    try:
        return KINDS[kind](answers, **given)
    except (TypeError, ValueError) as error:
        raise UserError(f"{kind} of {', '.join(options) or 'nothing'}: {error}") from error
