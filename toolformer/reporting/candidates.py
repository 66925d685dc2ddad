"""What a generate run's files tell: examples kept by τ_f, calls to show, gains, the funnel.

Reads `candidates.parquet`, `dataset_*.parquet` and `funnel.json` by their paths; knows no tracking and no model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from toolformer.calls import CallSyntaxError, parse
from toolformer.errors import UserError
from toolformer.reporting import paper
from toolformer.reporting.evidence import STEPS, Counts, Example, Gains, ToolFunnel

WITHOUT_CALLS = "documents_without_calls.parquet"
TEXTS = ("dataset_plain.parquet", WITHOUT_CALLS)
"""The files that hold texts as they were, without calls."""
LOSSES = ("loss_result", "loss_no_result", "loss_none")
KEPT_PER_TOOL = 2
WORST = 2
BINS = 40
STARTS = 1500
"""Points of start probability against gain, over all tools together."""
_KEY = ("doc_id", "tool", "position", "sample")
_LOOKED_AT = 300  # rows of each tool, at either end of its gains, among which examples are chosen


def gain_of(baseline: str) -> Any:
    """The gain as an expression: the file has the paper's; with the baseline `plain` it is L(ε) − L(e(c, r))."""
    return ds.field("loss_none") - ds.field("loss_result") if baseline == "plain" else ds.field("gain")


def scored(path: Path, baseline: str) -> Any:
    """The scored candidates as a table, the largest gain first; ties by place and sample.

    Without calls and results, so that a large run's fit in memory.
    """
    names = [*_KEY, "start_probability"]
    gain = gain_of(baseline)
    valid = (ds.field("status") == "scored") & gain.is_valid() & ~gain.is_nan()
    for name in LOSSES:  # as the filter has it, which drops what lacks any, whatever the baseline
        valid &= ds.field(name).is_valid() & ~ds.field(name).is_nan()
    columns = {name: ds.field(name) for name in names} | {"gain": gain}
    table = ds.dataset(path, format="parquet").to_table(columns=columns, filter=valid)
    order = [
        ("gain", "descending"),
        ("doc_id", "ascending"),
        ("position", "ascending"),
        ("sample", "ascending"),
    ]
    return table.sort_by(order)


def counts(table: Any, tools: set[str]) -> dict[tuple[str, float], Counts]:
    """Examples and calls by tool and τ_f, as `merge` would keep them: one call of a tool at a position."""
    places = table.group_by(["tool", "doc_id", "position"]).aggregate([("gain", "max")])
    found: dict[tuple[str, float], Counts] = {}
    for threshold in paper.THRESHOLDS:
        above = places.filter(pc.field("gain_max") >= threshold)
        rows = (
            above.group_by("tool").aggregate([("doc_id", "count_distinct"), ("doc_id", "count")]).to_pylist()
        )
        by_tool = {row["tool"]: Counts(row["doc_id_count_distinct"], row["doc_id_count"]) for row in rows}
        for tool in tools | set(pc.unique(table["tool"]).to_pylist()):
            found[tool, threshold] = by_tool.get(tool, Counts(0, 0))
    return found


def kept(path: Path) -> set[tuple[str, str, int]]:
    """Document, tool and position of every call of C*."""
    rows = pq.read_table(path, columns=["doc_id", "calls"]).to_pylist()
    return {(row["doc_id"], call["tool"], call["position"]) for row in rows for call in row["calls"] or ()}


def examples(table: Any, path: Path, augmented: Path, plain: Sequence[Path]) -> tuple[Example, ...]:
    """The calls of Table 10 in their texts, which stand in the files `plain`; `table` is `scored` of `path`."""
    found = _examples(_ends(table), path, kept(augmented))
    wanted = {example.doc_id for example in found}
    texts = {doc_id: text for path in plain for doc_id, text in _texts(path, wanted).items()}
    return tuple(_choose([_with_text(example, texts) for example in found]))


def _ends(table: Any) -> list[dict[str, Any]]:
    """The best candidate of each place, from both ends of every tool's gains."""
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for tool in sorted(pc.unique(table["tool"]).to_pylist()):
        rows = table.filter(pc.field("tool") == tool)
        ends = (
            [rows]
            if len(rows) <= 2 * _LOOKED_AT
            else [rows.slice(0, _LOOKED_AT), rows.slice(len(rows) - _LOOKED_AT)]
        )
        for row in (row for end in ends for row in end.to_pylist()):
            found.setdefault((tool, row["doc_id"], row["position"]), row)
    return list(found.values())


def _examples(
    rows: Sequence[dict[str, Any]], path: Path, in_texts: set[tuple[str, str, int]]
) -> list[Example]:
    """The rows with their calls and results, which are read from the file."""
    ids = pa.array(sorted({row["doc_id"] for row in rows}), pa.string())
    written = ds.dataset(path, format="parquet").to_table(
        columns=[*_KEY, "call", "result"], filter=ds.field("doc_id").isin(ids)
    )
    calls = {tuple(row[name] for name in _KEY): row for row in written.to_pylist()}
    found: list[Example] = []
    for row in rows:
        doc_id, tool, position = row["doc_id"], row["tool"], row["position"]
        one = calls[tuple(row[name] for name in _KEY)]
        with suppress(CallSyntaxError):
            call = parse(one["call"]).with_result(one["result"] or "")
            stays = (doc_id, tool, position) in in_texts
            found.append(Example(tool, doc_id, position, call, row["gain"], stays, None))
    return found


def _texts(path: Path, doc_ids: set[str]) -> dict[str, str]:
    table = ds.dataset(path, format="parquet").to_table(
        columns=["doc_id", "text"], filter=ds.field("doc_id").isin(pa.array(sorted(doc_ids), pa.string()))
    )
    return dict(zip(table["doc_id"].to_pylist(), table["text"].to_pylist(), strict=True))


def _with_text(example: Example, texts: Mapping[str, str]) -> Example:
    text = texts.get(example.doc_id)
    if text is None or not 0 <= example.position <= len(text):
        return example
    return Example(
        example.tool, example.doc_id, example.position, example.call, example.gain, example.kept, text
    )


def _choose(found: list[Example]) -> list[Example]:
    """Table 10: of each tool the best kept calls and the nearest miss, and the calls that did most harm.

    Texts are shown once, as long as there are others.
    """
    used: set[str] = set()
    chosen: list[Example] = []

    def take(pool: list[Example], wanted: int) -> None:
        # A call whose text is at hand tells more; among those the order stays.
        for example in sorted(pool, key=lambda one: (one.text is None, one.doc_id in used))[:wanted]:
            used.add(example.doc_id)
            chosen.append(example)

    tools = sorted({example.tool for example in found})
    for tool in tools:
        take([one for one in found if one.tool == tool and one.kept], KEPT_PER_TOOL)
    for tool in tools:
        take([one for one in found if one.tool == tool and not one.kept], 1)
    take(
        sorted((one for one in found if not one.kept and one not in chosen), key=lambda one: one.gain),
        WORST,
    )
    return sorted(chosen, key=lambda one: (not one.kept, -one.gain, one.doc_id, one.position))


def gains(table: Any, thresholds: Mapping[str, float]) -> tuple[tuple[float, ...], dict[str, Gains]]:
    """The bins and every tool's gains; `table` as `scored` gives it."""
    worth = np.asarray(table["gain"].to_numpy())
    worth = worth[np.isfinite(worth)]
    if not len(worth):
        return (), {}
    # A few far ends would press all others into one bin.
    marks = [0.0, *thresholds.values()]
    low = min(float(np.percentile(worth, 1)), *marks)
    high = max(float(np.percentile(worth, 99)), *marks)
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    found: dict[str, Gains] = {}
    tools = pc.unique(table["tool"]).to_pylist()
    for tool in sorted(tools):
        rows = table.filter(pc.field("tool") == tool)
        own = np.asarray(rows["gain"].to_numpy())
        bins, _ = np.histogram(np.clip(own, edges[0], edges[-1]), edges)
        chosen = np.unique(np.linspace(0, len(own) - 1, min(len(own), STARTS // len(tools))).astype(int))
        starts = rows.take(pa.array(chosen)).select(["start_probability", "gain"])
        points = zip(*(starts[name].to_pylist() for name in ("start_probability", "gain")), strict=True)
        drawn = tuple((p, g) for p, g in points if p is not None and np.isfinite(p) and np.isfinite(g))
        found[tool] = Gains(tuple(map(int, bins)), thresholds.get(tool), drawn)
    return tuple(map(float, edges)), found


def funnel(path: Path) -> dict[str, ToolFunnel]:
    """What each step left, by tool.

    Raises:
        UserError: the file cannot be read as a funnel.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {
            tool: ToolFunnel(
                {step: int(entry[step]) for step in STEPS if step in entry},
                *(
                    {str(reason): int(n) for reason, n in entry.get(name, {}).items()}
                    for name in ("reasons", "drop_reasons", "window_reasons", "filter_reasons")
                ),
            )
            for tool, entry in content.items()
        }
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UserError(f"{path.name} is no funnel: {error}") from error
