"""Statistics of a generate run's files: examples kept by τ_f, calls to show, gains, the funnel.

The files are read in batches: what is in memory does not grow with the number of candidates.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from toolformer.annotation.execute import LOOK_AHEAD
from toolformer.annotation.funnel import STEPS
from toolformer.calls import ApiCall, linearise, parse
from toolformer.reporting import paper
from toolformer.reporting.data import Counts, Gains, ToolFunnel
from toolformer.reporting.table import Passage

WITHOUT_CALLS = "documents_without_calls.parquet"
TEXTS = ("dataset_plain.parquet", WITHOUT_CALLS)
"""The files that hold texts as they were, without calls."""
FATES = ("no position", "malformed", "tool failed", "no help", "below τ_f", "kept")
"""How far a text came with its best call: none was tried or sampled, none reads back as a call of the tool, none had a
result, no result lowers the loss, no gain reaches τ_f, or one does."""
LOSSES = ("loss_result", "loss_no_result", "loss_none")
CONTEXT = 110  # characters of text shown on either side of a call
LONGEST_CALL = 260  # characters
KEPT_PER_TOOL = 2
WORST = 2
BINS = 40
_KEY = ["doc_id", "tool", "position", "sample"]
_LOOKED_AT = 300  # rows at either end of the gains, among which examples are chosen
_BEST = [("gain", "descending"), *((name, "ascending") for name in ("doc_id", "position", "sample"))]
_WORST = [("gain", "ascending"), *((name, "descending") for name in ("doc_id", "position", "sample"))]
_SAMPLED = 2**17  # gains that decide the bins; of more, evenly spaced ones
ROWS = 2**14  # of a file that are in memory at a time
_BOUND = ds.field("loss_none") - ds.field("loss_result")
"""What the gain never exceeds."""


def batches(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of a file, a few thousand in memory at a time."""
    with pq.ParquetFile(path, pre_buffer=False) as file:
        for batch in file.iter_batches(ROWS, columns=list(columns)):
            yield pa.Table.from_batches([batch])


def gain_of(baseline: str) -> pc.Expression:
    """The gain as far as it is known, as an expression over the columns `gain` and `LOSSES`; see `scored`."""
    return _BOUND if baseline == "plain" else pc.coalesce(ds.field("gain"), _BOUND)


def scored(path: Path, baseline: str) -> Iterator[pa.Table]:
    """The scored candidates with their gains, in the order of the file; all of a document in one table.

    With the baseline `plain`, and where the annotation left the gain open because its bound was below every threshold,
    the gain is L(ε) − L(e(c, r)).
    """
    bound, gain = _BOUND, gain_of(baseline)
    valid = (ds.field("status") == "scored") & gain.is_valid() & ~gain.is_nan()
    valid &= bound.is_valid() & ~bound.is_nan() & ~pc.coalesce(ds.field("loss_no_result"), 0.0).is_nan()
    columns = {name: ds.field(name) for name in _KEY} | {"gain": gain}
    held: list[pa.Table] = []
    for batch in batches(path, [*_KEY, "status", "gain", *LOSSES]):
        table = pa.concat_tables([*held, ds.dataset(batch).to_table(columns=columns, filter=valid)])
        # The rows of a document stand side by side: more of the last one's may follow.
        last = pc.index(table["doc_id"], table["doc_id"][-1]).as_py() if len(table) else 0
        yield table.slice(0, last)
        held = [table.slice(last)]
    yield from held


def counts(path: Path, baseline: str, tools: set[str]) -> dict[tuple[str, float], Counts]:
    """Examples and calls by tool and τ_f, as `merge` would keep them: one call of a tool at a position."""
    examples, calls = Counter[tuple[str, float]](), Counter[tuple[str, float]]()
    for table in scored(path, baseline):
        tools = tools | set(pc.unique(table["tool"]).to_pylist())
        places = table.group_by(["tool", "doc_id", "position"]).aggregate([("gain", "max")])
        for threshold in paper.THRESHOLDS:
            above = places.filter(pc.field("gain_max") >= threshold).group_by("tool")
            for row in above.aggregate([("doc_id", "count_distinct"), ("doc_id", "count")]).to_pylist():
                examples[row["tool"], threshold] += row["doc_id_count_distinct"]
                calls[row["tool"], threshold] += row["doc_id_count"]
    cells = [(tool, threshold) for tool in tools for threshold in paper.THRESHOLDS]
    return {cell: Counts(examples[cell], calls[cell]) for cell in cells}


def kept(augmented: Path, ids: Sequence[str]) -> set[tuple[str, str, int]]:
    """Document, tool and position of every call of C* in these documents."""
    rows = of_documents(augmented, ["doc_id", "calls"], ids)
    return {(row["doc_id"], call["tool"], call["position"]) for row in rows for call in row["calls"] or ()}


def by_document(path: Path) -> Iterator[tuple[str, int]]:
    """Every document of a file whose rows of a document stand side by side, with their number."""
    doc_id, count = "", 0
    for table in batches(path, ["doc_id"]):
        for entry in table["doc_id"].value_counts().to_pylist():
            if entry["values"] != doc_id:
                if count:
                    yield doc_id, count
                doc_id, count = entry["values"], 0
            count += entry["counts"]
    if count:
        yield doc_id, count


def of_documents(path: Path, columns: Sequence[str], ids: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of these documents; one of the columns is `doc_id`."""
    chosen = pa.array(ids, pa.string())
    tables = (table.filter(pc.is_in(table["doc_id"], chosen)) for table in batches(path, columns))
    return [row for table in tables for row in table.to_pylist()]


def _first(
    held: pa.Table | None, more: pa.Table, order: Sequence[tuple[str, str]], among: pa.ChunkedArray
) -> pa.Table:
    """The rows of both that come first in this order by gain, of documents that are `among` these."""
    if held is not None and len(held) == _LOOKED_AT:
        gain, last = pc.field("gain"), held["gain"][-1]
        more = more.filter(gain >= last if order == _BEST else gain <= last)
    if held is not None and not len(more):
        return held
    more = more.filter(pc.is_in(more["doc_id"], among))
    return (
        pa.concat_tables([more] if held is None else [held, more]).sort_by(list(order)).slice(0, _LOOKED_AT)
    )


def _stored(plain: Sequence[Path]) -> pa.ChunkedArray:
    """The ids of the documents in these files."""
    columns = [pq.read_table(file, columns=["doc_id"])["doc_id"] for file in plain]
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())


def examples(path: Path, baseline: str, augmented: Path, plain: Sequence[Path]) -> tuple[Passage, ...]:
    """Table 10: of each tool the best kept calls and the nearest miss, and the calls that did most harm.

    Of the documents whose texts stand in the files `plain`.
    """
    stored = _stored(plain)
    best: dict[str, pa.Table] = {}
    worst = None
    for table in scored(path, baseline):
        for tool in pc.unique(table["tool"]).to_pylist():
            best[tool] = _first(best.get(tool), table.filter(pc.field("tool") == tool), _BEST, stored)
        worst = _first(worst, table, _WORST, stored)
    ends = [best[tool].to_pylist() for tool in sorted(best)]
    bottom = worst.to_pylist() if worst is not None else []
    calls_kept = kept(augmented, sorted({row["doc_id"] for rows in (*ends, bottom) for row in rows}))
    chosen: dict[tuple[str, str, int], dict[str, Any]] = {}

    def take(rows: list[dict[str, Any]], is_kept: bool, count: int) -> None:
        """The first rows, a place once, other texts before those that are shown."""
        used = {doc_id for doc_id, *_ in chosen}
        pool: dict[tuple[str, str, int], dict[str, Any]] = {}
        for row in rows:
            place = row["doc_id"], row["tool"], row["position"]
            if (place in calls_kept) == is_kept and place not in chosen:
                pool.setdefault(place, row | {"kept": is_kept})
        chosen.update(sorted(pool.items(), key=lambda item: item[0][0] in used)[:count])

    for is_kept, count in ((True, KEPT_PER_TOOL), (False, 1)):
        for rows in ends:
            take(rows, is_kept, count)
    take(bottom, False, WORST)
    passages = _passages(path, plain, list(chosen.values()))
    return tuple(sorted(passages, key=lambda passage: (not passage.kept, -passage.gain)))


def _passages(path: Path, plain: Sequence[Path], rows: Sequence[Mapping[str, Any]]) -> list[Passage]:
    """Scored candidates, with `kept`, in their texts, which stand in the files `plain`."""
    ids = sorted({row["doc_id"] for row in rows})
    texts = {
        row["doc_id"]: row["text"] for file in plain for row in of_documents(file, ["doc_id", "text"], ids)
    }
    written = {
        tuple(row[name] for name in _KEY): row for row in of_documents(path, [*_KEY, "call", "result"], ids)
    }
    passages = []
    for row in rows:
        source = written[tuple(row[name] for name in _KEY)]
        call = parse(source["call"]).with_result(source["result"] or "")
        text = texts[row["doc_id"]]
        passages.append(passage(row["tool"], text, row["position"], call, row["gain"], row["kept"]))
    return passages


def passage(tool: str, text: str, position: int, call: ApiCall, gain: float, kept: bool) -> Passage:
    """A call at its position in a text, with some context on either side."""
    written = linearise(call).strip()
    if len(written) > LONGEST_CALL:
        written = f"{written[: LONGEST_CALL - 3]} …]"
    before, after = " ".join(text[:position].split()), " ".join(text[position:].split())
    if len(before) > CONTEXT:
        before = "… " + before[-CONTEXT:].partition(" ")[2]
    if len(after) > CONTEXT:
        after = after[:CONTEXT].rpartition(" ")[0] + " …"
    blank = " " if text[position : position + 1].isspace() else ""
    return Passage(tool, before, written, blank + after, gain, kept)


def misses(
    path: Path, baseline: str, plain: Sequence[Path], thresholds: Mapping[str, float], count: int = 10
) -> tuple[Passage, ...]:
    """Of each tool the calls nearest below τ_f, the best of a place, in documents whose texts stand in the files `plain`."""
    stored = _stored(plain)
    best: dict[str, pa.Table] = {}
    for table in scored(path, baseline):
        for tool in set(pc.unique(table["tool"]).to_pylist()) & thresholds.keys():
            below = (pc.field("tool") == tool) & (pc.field("gain") < thresholds[tool])
            best[tool] = _first(best.get(tool), table.filter(below), _BEST, stored)
    chosen: list[dict[str, Any]] = []
    for tool in sorted(best):
        places = {(row["doc_id"], row["position"]): row for row in reversed(best[tool].to_pylist())}
        rows = sorted(places.values(), key=lambda row: (-row["gain"], row["doc_id"], row["position"]))
        chosen += [row | {"kept": False} for row in rows[:count]]
    return tuple(_passages(path, plain, chosen))


def lost(
    path: Path, baseline: str, thresholds: Mapping[str, float], tried: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """By tool, of the texts `tried` how many came how far with their best call, by the names of `FATES`; they add up."""
    counts = {tool: Counter[int]() for tool in tried}
    best: dict[tuple[str, str], int] = {}

    def settle(unless: str | None) -> None:
        for doc_id, tool in [key for key in best if key[0] != unless]:
            counts.setdefault(tool, Counter())[best.pop((doc_id, tool))] += 1

    columns = {"doc_id": ds.field("doc_id"), "tool": ds.field("tool"), "gain": gain_of(baseline)}
    columns |= {"malformed": ds.field("call_input").is_null() | (ds.field("status") == LOOK_AHEAD)}
    columns |= {"failed": ds.field("result").is_null()}
    for batch in batches(path, ["doc_id", "tool", "call_input", "status", "result", "gain", *LOSSES]):
        table = ds.dataset(batch).to_table(columns=columns)
        gain = table["gain"].to_numpy().astype(float)
        limit = np.array([thresholds.get(tool, np.inf) for tool in table["tool"].to_pylist()])
        conditions = [table["malformed"].to_numpy(), table["failed"].to_numpy(), ~(gain > 0), gain < limit]
        fates = np.select(conditions, [1, 2, 3, 4], 5).tolist()
        for doc_id, tool, fate in zip(
            table["doc_id"].to_pylist(), table["tool"].to_pylist(), fates, strict=True
        ):
            if best.get((doc_id, tool), 0) < fate:
                best[doc_id, tool] = fate
        settle(table["doc_id"][-1].as_py() if len(table) else None)  # more rows of it may follow
    settle(None)
    for tool, count in counts.items():
        count[0] = max(0, tried.get(tool, 0) - sum(count.values()))
    return {tool: {name: count[fate] for fate, name in enumerate(FATES)} for tool, count in counts.items()}


def gains(
    path: Path, baseline: str, thresholds: Mapping[str, float]
) -> tuple[tuple[float, ...], dict[str, Gains]]:
    """The bins and every tool's gains."""
    every = 1 + pq.read_metadata(path).num_rows // _SAMPLED
    sample = [table["gain"].to_numpy()[::every] for table in scored(path, baseline)]
    worth = np.concatenate([np.empty(0), *sample])
    worth = worth[np.isfinite(worth)]
    if not len(worth):
        return (), {}
    # A few far ends would press all others into one bin.
    marks = [0.0, *thresholds.values()]
    low = min(float(np.percentile(worth, 1)), *marks)
    high = max(float(np.percentile(worth, 99)), *marks)
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    bins: dict[str, Any] = {}
    for table in scored(path, baseline):
        for tool in pc.unique(table["tool"]).to_pylist():
            own = table.filter(pc.field("tool") == tool)["gain"].to_numpy()
            bins[tool] = bins.get(tool, 0) + np.histogram(np.clip(own, low, edges[-1]), edges)[0]
    by_tool = {tool: Gains(tuple(bins[tool].tolist()), thresholds.get(tool)) for tool in sorted(bins)}
    return tuple(edges.tolist()), by_tool


def funnel(path: Path) -> dict[str, ToolFunnel]:
    """What each step left, by tool."""
    return {
        tool: ToolFunnel(
            {step: int(entry[step]) for step in STEPS if step in entry},
            entry["reasons"],
            {**entry.get("window_reasons", {}), **entry["drop_reasons"]},
            entry.get("filter_reasons", {}),
        )
        for tool, entry in json.loads(path.read_text(encoding="utf-8")).items()
    }
