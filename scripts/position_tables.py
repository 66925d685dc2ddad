"""Tables of the second registered experiment: where calls were tried, what they gain, and which ones each filter keeps."""

import functools
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scripts.answers import REGISTRATION, Answers, calls_of, title
from toolformer.data.parquet import read_table
from toolformer.reporting.formatting import tool_name
from toolformer.results import Run

Row = Mapping[str, Any]
Table = list[dict[str, str]]

KINDS = {"equals": "after an equals sign", "name": "before a name or number", "other": "elsewhere"}
"""Kinds of position, by their key."""
CORPORA = {"texts": "texts.jsonl", "web": "web.jsonl"}
KEPT_BY = ("loss", "chance", "chance above 0", "without leaks")
_COLUMNS = ["doc_id", "tool", "position", "status", "kept", "leak", "filter_gain"]


def kinds(answers: Answers, corpus: str = "texts") -> Table:
    """By tool and kind of position, over all annotations by the loss: scored calls, the percent that gain more than 0 and that reach
    the threshold, their gains, and how many are kept."""
    rows = [
        row
        for run in annotations(answers, corpus)
        if calls_of(run.step) in ("loss", "new")
        for row in candidates(answers, run)
    ]
    table = []
    for tool in dict.fromkeys(row["tool"] for row in rows):
        for kind, name in KINDS.items():
            scored = [
                row
                for row in rows
                if row["tool"] == tool and row["status"] == "scored" and kind_of(row) == kind
            ]
            gains = [row["filter_gain"] for row in scored]
            kept = [row for row in scored if row["kept"]]
            table.append(
                {
                    "tool": tool_name(tool),
                    "position": name,
                    "scored": f"{len(scored):,}",
                    "above 0": _percent(gain > 0 for gain in gains),
                    "median gain": _nats(gains),
                    "kept": f"{len(kept):,}",
                    "share kept": _percent(bool(row["kept"]) for row in scored),
                    "median gain of kept": _nats([row["filter_gain"] for row in kept]),
                }
            )
    return table


def yields(answers: Answers) -> Table:
    """By corpus and tool, of the first annotation of each: texts, those that were tried, calls sampled, scored and kept."""
    table = []
    for corpus, file in CORPORA.items():
        for run in [run for run in annotations(answers, corpus) if calls_of(run.step) == "loss"][:1]:
            funnel = json.loads((run.folder / "funnel.json").read_bytes())
            for tool, counts in sorted(funnel.items()):
                table.append(
                    {
                        "texts": file.removesuffix(".jsonl"),
                        "tool": tool_name(tool),
                        **{name: f"{counts[key]:,}" for name, key in FUNNEL.items()},
                        "kept per 100 tried": f"{100 * counts['kept'] / counts['selected']:.1f}"
                        if counts["selected"]
                        else "",
                    }
                )
    return table


FUNNEL = {
    "all": "documents",
    "tried": "selected",
    "positions": "positions",
    "sampled": "sampled",
    "scored": "scored",
    "kept": "kept",
}


def kept(answers: Answers) -> Table:
    """By annotation, filter and tool the calls that were kept, of draws by chance their mean, and what they are like."""
    drawn: dict[tuple[int, str, str], list[list[Row]]] = {}
    for run in annotations(answers, "texts"):
        sampled_by = next((step.settings.get("seed", 0) for step in run.step.find_all("annotate")), 0)
        filtered = {"new": "loss"}.get(calls_of(run.step), calls_of(run.step))
        rows = [row for row in candidates(answers, run) if row["kept"]]
        for tool in run.step.settings.get("tool", {}):
            drawn.setdefault((sampled_by, filtered, tool), []).append(
                [row for row in rows if row["tool"] == tool]
            )
    ordered = sorted(drawn, key=lambda key: (key[0], KEPT_BY.index(key[1]), key[2]))
    return [_kept(*key, drawn[key]) for key in ordered]


def _kept(sampled_by: int, filtered: str, tool: str, draws: Sequence[Sequence[Row]]) -> dict[str, str]:
    rows = [row for draw in draws for row in draw]
    counts = sorted(len(draw) for draw in draws)
    return {
        "annotation": f"{sampled_by}",
        "kept by": filtered,
        "tool": tool_name(tool),
        "draws": f"{len(draws)}",
        "calls": f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}",
        "median gain": _nats([row["filter_gain"] for row in rows]),
        "harmful": _percent(row["filter_gain"] < 0 for row in rows),
        "leaking": _percent(bool(row["leak"]) for row in rows),
        **{KINDS[kind]: _percent(kind_of(row) == kind for row in rows) for kind in KINDS},
    }


def draws(answers: Answers) -> Table:
    """By annotation and tool, how many positions have a scored call and one that gains more than 0, how many calls the loss keeps, and
    the probabilities of a draw that follow."""
    table = []
    for number, run in enumerate(by_loss(answers)):
        places: dict[str, dict[tuple[str, int], list[Row]]] = {}
        for row in candidates(answers, run):
            if row["status"] == "scored":
                of_tool = places.setdefault(row["tool"], {})
                of_tool.setdefault((row["doc_id"], row["position"]), []).append(row)
        for tool, of_tool in sorted(places.items()):
            kept = sum(row["kept"] for rows in of_tool.values() for row in rows)
            above = sum(any(row["filter_gain"] > 0 for row in rows) for rows in of_tool.values())
            table.append(
                {
                    "annotation": f"{number}",
                    "tool": tool_name(tool),
                    "positions": f"{len(of_tool):,}",
                    "above 0": f"{above:,}",
                    "kept by loss": f"{kept:,}",
                    "chance": f"{kept / len(of_tool):.3f}",
                    "chance above 0": f"{kept / above:.3f}",
                }
            )
    return table


FIRST = 3
"""Trainings with seeds below are of the first annotation, the others of the second (as registered)."""


def by_annotation(answers: Answers, of: str, over: str, benchmarks: Sequence[str]) -> Table:
    """The difference between two arms on the trainings of each annotation, with that of every training."""
    table = []
    for benchmark in benchmarks:
        sides = [
            {seeds[0]: _score(rows) for seeds, rows in answers.of(name, benchmark)} for name in (of, over)
        ]
        seeds = sorted(sides[0].keys() & sides[1].keys())
        row = {"benchmark": title(benchmark)}
        for name, chosen in (
            ("first annotation", [seed for seed in seeds if seed < FIRST]),
            ("second annotation", [seed for seed in seeds if seed >= FIRST]),
        ):
            differences = [sides[0][seed] - sides[1][seed] for seed in chosen]
            row[name] = _points(statistics.mean(differences)) if differences else ""
            row[f"trainings of the {name.split()[0]}"] = " ".join(map(_points, differences))
        table.append(row)
    return table


def _score(rows: Sequence[Row]) -> float:
    return statistics.mean(row["score"] for row in rows)


def _points(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def by_loss(answers: Answers) -> list[Run]:
    """The annotations of the experiment's texts whose calls the loss keeps, by their seed."""
    return [run for run in annotations(answers, "texts") if calls_of(run.step) in ("loss", "new")]


def annotations(answers: Answers, corpus: str) -> list[Run]:
    """The annotations of a corpus in the order of their sampling and their start."""
    runs = [run for run in answers.results.runs("generate") if run.facts.get("corpus") == CORPORA[corpus]]
    return sorted(runs, key=lambda run: (calls_of(run.step) != "loss", run.started))


def candidates(answers: Answers, run: Run) -> list[Row]:
    file = answers.results.artifact(run, "candidates.parquet", reduced=True)
    return read_table(file, _COLUMNS).to_pylist()


def kind_of(row: Row) -> str:
    """The kind of a candidate's position, by the spans of its text."""
    spans = _spans()[row["doc_id"]]
    found = (
        kind
        for kind in ("equals", "name")
        if any(start <= row["position"] <= end for start, end in spans[kind])
    )
    return next(found, "other")


@functools.cache
def _spans() -> dict[str, dict[str, list[tuple[int, int]]]]:
    content: dict[str, dict[str, list[tuple[int, int]]]] = json.loads(
        (REGISTRATION / "kinds.json").read_text(encoding="utf-8")
    )
    return content


def _percent(of: Iterable[bool]) -> str:
    values = [*of]
    return f"{100 * sum(values) / len(values):.1f}" if values else ""


def _nats(values: Sequence[float]) -> str:
    return f"{statistics.median(values):+.2f}".replace("-", "−") if values else ""
