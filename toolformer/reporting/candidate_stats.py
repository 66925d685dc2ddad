"""Statistics of a generate run's files: examples kept by τ_f, calls to show, gains, lost texts.

The files are read in batches: what is in memory does not grow with the number of candidates.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from toolformer.annotation.execute import LOOK_AHEAD
from toolformer.annotation.merge import BELOW, LEAKS, NOT_DRAWN
from toolformer.annotation.results import LEAK, calls_as_structs
from toolformer.annotation.score import PAPER
from toolformer.calls import ApiCall, linearise
from toolformer.data.parquet import read_table
from toolformer.reporting import paper
from toolformer.reporting.data import Annotation
from toolformer.reporting.table import Passage

WITHOUT_CALLS = "documents_without_calls.parquet"
TEXTS = ("dataset_plain.parquet", WITHOUT_CALLS)
"""The files that hold texts as they were, without calls."""
FATES = ("no position", "malformed", "tool failed", "no help", "not kept", "kept")
"""How far a text came with its best call: none was tried or sampled, none reads back as a call of the tool, none had a
result, no result lowers the loss, the filter takes none of those that do, or it takes one."""
LOSSES = ("loss_result", "loss_no_result", "loss_none")
CONTEXT = 110  # characters of text shown on either side of a call
LONGEST_CALL = 260  # characters
BINS = 40
ROWS = 2**14  # of a file that are in memory at a time
_KEY = ["doc_id", "tool", "position", "sample"]
_LOOKED_AT = 300  # rows at either end of the gains, among which examples are chosen
_BEST = [("gain", "descending"), *((name, "ascending") for name in ("doc_id", "position", "sample"))]
_WORST = [("gain", "ascending"), *((name, "descending") for name in ("doc_id", "position", "sample"))]
_SAMPLED = 2**17  # gains that decide the bins; of more, evenly spaced ones

Row = dict[str, Any]
Files = Mapping[str, Path]
"""The artifacts of a generate run by name."""


def batches(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of a file, a few thousand in memory at a time."""
    with pq.ParquetFile(path, pre_buffer=False) as file:
        is_earlier = "call" in columns and pa.types.is_string(file.schema_arrow.field("call").type)
        read = [*({*columns} - {"written"}), "call_input", "result"] if is_earlier else list(columns)
        for batch in file.iter_batches(ROWS, columns=read):
            table = pa.Table.from_batches([batch])
            yield calls_as_structs(table).select(columns) if is_earlier else table


def by_document(
    path: Path,
    read: Sequence[str],
    columns: Mapping[str, pc.Expression] | None = None,
    where: pc.Expression | None = None,
) -> Iterator[pa.Table]:
    """Likewise, all of a document in one table: `columns` made of those that are read, of the rows `where` holds."""
    carried: list[pa.Table] = []
    for batch in batches(path, read):
        table = pa.concat_tables([*carried, ds.dataset(batch).to_table(columns=columns, filter=where)])
        # The rows of a document are adjacent: more of the last one's may follow.
        last = pc.index(table["doc_id"], table["doc_id"][-1]).as_py() if len(table) else 0
        yield table.slice(0, last)
        carried = [table.slice(last)]
    yield from carried


def sizes(path: Path) -> Iterator[tuple[str, int]]:
    """Every document of a file with its number of rows."""
    for table in by_document(path, ["doc_id"]):
        for entry in table["doc_id"].value_counts().to_pylist():
            yield entry["values"], entry["counts"]


def of_documents(path: Path, columns: Sequence[str], ids: Iterable[str]) -> list[Row]:
    """The rows of these documents; one of the columns is `doc_id`."""
    chosen = pa.array(ids, pa.string())
    rows: list[Row] = []
    for table in batches(path, columns):
        rows += table.filter(pc.is_in(table["doc_id"], chosen)).to_pylist()
    return rows


def texts(files: Files, ids: Iterable[str]) -> dict[str, Row]:
    """`text`, `url` and `date` of those of these documents whose texts are stored."""
    columns = ["doc_id", "text", "url", "date"]
    stored = [files[name] for name in TEXTS if name in files]
    return {row["doc_id"]: row for path in stored for row in of_documents(path, columns, ids)}


def kept(files: Files, ids: Iterable[str]) -> set[tuple[str, str, int]]:
    """Document, tool and position of every call of C* in these documents."""
    rows = of_documents(files["dataset_augmented.parquet"], ["doc_id", "calls"], ids)
    return {(row["doc_id"], call["tool"], call["position"]) for row in rows for call in row["calls"] or ()}


def scored(path: Path) -> Iterator[pa.Table]:
    """The scored candidates with their `gain` under the run's baseline, by document, in the order of the file.

    Where L(e(c, ε)) was not scored (`is_bound`), as the gain is below every threshold anyway, `gain` is its upper bound.
    """
    columns = {name: ds.field(name) for name in [*_KEY, "kept", "reason"]}
    columns |= {"gain": ds.field("filter_gain"), "is_bound": ds.field("loss_no_result").is_null()}
    read = [*_KEY, "kept", "reason", "filter_gain", "loss_no_result"]
    return by_document(path, read, columns, ds.field("filter_gain").is_valid())


def needed(path: Path, thresholds: Mapping[str, float]) -> tuple[dict[str, float], set[str]]:
    """By tool, the gain that its calls had to reach, as the filter stored it; and the tools whose calls chance kept.

    Args:
        thresholds: by tool as the run was configured, for a tool of which nothing was scored and for files of earlier releases.
    """
    stored = {*pq.read_schema(path).names} & {"threshold"}
    needed, by_chance = dict(thresholds), set[str]()
    for table in batches(path, ["tool", "kept", "reason", *stored]):
        is_drawn = pc.field("reason") == NOT_DRAWN
        if stored:
            most = table.group_by("tool").aggregate([("threshold", "max")]).to_pylist()
            needed |= {row["tool"]: row["threshold_max"] for row in most if row["threshold_max"] is not None}
            is_drawn |= pc.field("kept") & pc.field("threshold").is_null()
        by_chance |= {*table.filter(is_drawn)["tool"].to_pylist()}
    return {tool: value for tool, value in needed.items() if tool not in by_chance}, by_chance


def counts(
    path: Path, baseline: str, tools: Iterable[str], needed: Mapping[str, float]
) -> dict[tuple[str, float], tuple[int, int]]:
    """Examples and calls by tool and τ_f: what the run kept at the gain that it asked for (`needed`), and what its scored calls
    would have come to at the paper's other thresholds, one call of a tool at a position.

    Without the τ_f that an unscored gain may reach.
    """
    thresholds = sorted({*paper.THRESHOLDS, *needed.values()})
    examples, calls = Counter[tuple[str, float]](), Counter[tuple[str, float]]()
    unscored: dict[str, float] = {}
    """By tool, the largest upper bound of a gain that is not known."""
    for table in scored(path):
        if baseline == PAPER:
            bounds = table.filter(pc.field("is_bound")).group_by("tool").aggregate([("gain", "max")])
            for row in bounds.to_pylist():
                unscored[row["tool"]] = max(unscored.get(row["tool"], row["gain_max"]), row["gain_max"])
        positions = _positions(table.filter(pc.field("reason") != LEAKS))
        for threshold in thresholds:
            own = pa.array([tool for tool, value in needed.items() if value == threshold], pa.string())
            others = positions.filter(pc.field("gain_max") >= threshold)
            others = others.filter(pc.invert(pc.is_in(others["tool"], own)))
            kept = _positions(table.filter(pc.field("kept")))
            for above in (others, kept.filter(pc.is_in(kept["tool"], own))):
                of_tools = above.group_by("tool").aggregate(
                    [("doc_id", "count_distinct"), ("doc_id", "count")]
                )
                for row in of_tools.to_pylist():
                    examples[row["tool"], threshold] += row["doc_id_count_distinct"]
                    calls[row["tool"], threshold] += row["doc_id_count"]
    return {
        (tool, threshold): (examples[tool, threshold], calls[tool, threshold])
        for tool in tools
        for threshold in thresholds
        if threshold == needed.get(tool) or threshold > unscored.get(tool, -np.inf)
    }


def _positions(table: pa.Table) -> pa.Table:
    """The positions of calls, each with its largest gain."""
    return table.group_by(["tool", "doc_id", "position"]).aggregate([("gain", "max")])


def examples(files: Files) -> list[Passage]:
    """Table 10: of each tool two kept calls and the nearest miss, and two that did most harm, whose texts are stored."""
    best, worst = _extremes(files)
    calls_kept = kept(files, {row["doc_id"] for rows in (*best.values(), worst) for row in rows})
    chosen: dict[tuple[str, str, int], Row] = {}
    # A place once, and other texts before those that are shown.
    groups = [(rows, True, 2) for rows in best.values()] + [(rows, False, 1) for rows in best.values()]
    for rows, is_kept, count in (*groups, (worst, False, 2)):
        used = {doc_id for doc_id, *_ in chosen}
        pool: dict[tuple[str, str, int], Row] = {}
        for row in rows:
            position = row["doc_id"], row["tool"], row["position"]
            if (position in calls_kept) == is_kept and position not in chosen:
                pool.setdefault(position, row | {"kept": is_kept})
        chosen.update(sorted(pool.items(), key=lambda item: item[0][0] in used)[:count])
    passages = _passages(files, list(chosen.values()))
    return sorted(passages, key=lambda passage: (not passage.kept, -passage.gain))


def misses(annotation: Annotation, count: int = 10) -> list[Passage]:
    """Calls of each tool nearest below τ_f, the best of a place, in documents whose texts are stored."""
    best, _ = _extremes(annotation.files, missed=True)
    chosen: list[Row] = []
    for tool in sorted(best):
        positions: dict[tuple[str, int], Row] = {}
        for row in best[tool]:
            positions.setdefault((row["doc_id"], row["position"]), row | {"kept": False})
        chosen += list(positions.values())[:count]
    return _passages(annotation.files, chosen)


def leaking(annotation: Annotation, count: int = 10) -> list[tuple[str, Passage]]:
    """Kept calls of each tool that leak, with the leaked numbers and names; largest gains first."""
    path = annotation.files["candidates.parquet"]
    by_tool: dict[str, list[Row]] = {}
    is_kept = ds.field("kept") & (ds.field(LEAK.name) != "")
    columns = {name: ds.field(name) for name in [*_KEY, LEAK.name, "kept"]} | {
        "gain": ds.field("filter_gain")
    }
    for table in by_document(path, [*_KEY, LEAK.name, "kept", "filter_gain"], columns, is_kept):
        for row in table.to_pylist():
            rows = [*by_tool.get(row["tool"], []), row]
            by_tool[row["tool"]] = sorted(rows, key=lambda row: -row["gain"])[:count]
    chosen = [row for tool in sorted(by_tool) for row in by_tool[tool]]
    passages = _passages(annotation.files, chosen)
    return [(row[LEAK.name], passage) for row, passage in zip(chosen, passages, strict=True)]


def _extremes(files: Files, missed: bool = False) -> tuple[dict[str, list[Row]], list[Row]]:
    """The rows of each tool with the largest gains, if `missed` of those below τ_f, and the rows with the least gains."""
    plain = [read_table(files[name], ["doc_id"]) for name in TEXTS if name in files]
    stored = pa.concat_tables(plain)["doc_id"]
    extremes: dict[str, pa.Table] = {}
    for table in scored(files["candidates.parquet"]):
        extremes[""] = _first(extremes.get(""), table, _WORST, stored)
        for tool in pc.unique(table["tool"]).to_pylist():
            of_tool = table.filter(pc.field("tool") == tool)
            if missed:
                of_tool = of_tool.filter(pc.field("reason") == BELOW)
            extremes[tool] = _first(extremes.get(tool), of_tool, _BEST, stored)
    rows = {tool: extremes[tool].to_pylist() for tool in sorted(extremes)}
    worst = rows.pop("", [])
    return rows, worst


def _first(
    first: pa.Table | None, more: pa.Table, order: Sequence[tuple[str, str]], among: pa.ChunkedArray
) -> pa.Table:
    """The rows of both that come first in this order by gain, of documents that are `among` these."""
    first = more.slice(0, 0) if first is None else first
    if len(first) == _LOOKED_AT:  # most rows come after all of these
        gain, last = pc.field("gain"), first["gain"][-1]
        more = more.filter(gain >= last if order == _BEST else gain <= last)
    if len(more):
        more = more.filter(pc.is_in(more["doc_id"], among))
        first = pa.concat_tables([first, more]).sort_by(list(order)).slice(0, _LOOKED_AT)
    return first


def _passages(files: Files, rows: Sequence[Row]) -> list[Passage]:
    """Scored candidates, with `kept`, in their texts."""
    ids = {row["doc_id"] for row in rows}
    documents = texts(files, ids)
    candidates = of_documents(files["candidates.parquet"], [*_KEY, "call"], ids)
    calls = {
        tuple(row[name] for name in _KEY): ApiCall.of_row(row["call"]) for row in candidates if row["call"]
    }
    passages = []
    for row in rows:
        call = calls[tuple(row[name] for name in _KEY)]
        text = documents[row["doc_id"]]["text"]
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


def lost(path: Path, tried: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """How far each tool's texts (`tried` of them) came with their best call, by the names of `FATES`; they add up."""
    counts = {tool: Counter[int]() for tool in tried}
    columns = {name: ds.field(name) for name in ("doc_id", "tool", "filter_gain")}
    columns |= {"malformed": ds.field("call").is_null() | (ds.field("status") == LOOK_AHEAD)}
    columns |= {"failed": ds.field("call", "result").is_null(), "kept": ds.field("kept")}
    read = ["doc_id", "tool", "call", "status", "kept", "filter_gain"]
    for table in by_document(path, read, columns):
        gain = table["filter_gain"].to_numpy().astype(float)
        kept, malformed, failed = (table[name].to_numpy() for name in ("kept", "malformed", "failed"))
        fates = np.select([kept, malformed, failed, ~(gain > 0)], [5, 1, 2, 3], 4)
        table = table.append_column("fate", pa.array(fates))
        best = table.group_by(["doc_id", "tool"]).aggregate([("fate", "max")])
        for tool, fate in zip(best["tool"].to_pylist(), best["fate_max"].to_pylist(), strict=True):
            counts.setdefault(tool, Counter())[fate] += 1
    for tool, count in counts.items():
        count[0] = max(0, tried.get(tool, 0) - sum(count.values()))
    return {tool: {name: count[fate] for fate, name in enumerate(FATES)} for tool, count in counts.items()}


def gains(path: Path, thresholds: Mapping[str, float]) -> tuple[list[float], dict[str, list[int]]]:
    """The edges of the bins, and every tool's scored candidates by bin."""
    every = 1 + pq.read_metadata(path).num_rows // _SAMPLED
    sample = [table["gain"].to_numpy()[::every] for table in scored(path)]
    worth = np.concatenate([np.empty(0), *sample])
    worth = worth[np.isfinite(worth)]
    if not len(worth):
        return [], {}
    # A few far ends would press all others into one bin.
    marks = [0.0, *thresholds.values()]
    low = min(float(np.percentile(worth, 1)), *marks)
    high = max(float(np.percentile(worth, 99)), *marks)
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    bins: dict[str, Any] = {}
    for table in scored(path):
        for tool in pc.unique(table["tool"]).to_pylist():
            of_tool = table.filter(pc.field("tool") == tool)["gain"].to_numpy()
            bins[tool] = bins.get(tool, 0) + np.histogram(np.clip(of_tool, low, edges[-1]), edges)[0]
    return edges.tolist(), {tool: bins[tool].tolist() for tool in sorted(bins)}
