"""What the page of samples shows: candidate calls with their texts, and answers of evaluations beside each other.

Plain lists and dictionaries for JSON, read from a run's Parquet files by their paths; knows no markup. Where there is
more than a page holds, documents are drawn by their lots, as a generate run draws the texts that it holds, and questions
evenly; the page says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from toolformer.documents.drawing import lot
from toolformer.errors import UserError
from toolformer.reporting import candidates, paper
from toolformer.reporting.cells import SYSTEMS, TASKS, in_order
from toolformer.reporting.evidence import Annotation, Evidence, Sampled
from toolformer.reporting.pairing import asked, read_samples

CANDIDATES = 20_000
OF_DOCUMENT = 1_000
"""Candidates of one document, the kept ones and the largest gains first."""
CHARACTERS = 30_000_000
"""Of texts, calls and results on a page, and as many of questions and answers."""
QUESTIONS = 1_000
"""Of each benchmark."""
RUNS = 12
"""Of each benchmark, the newest."""
LONGEST_TEXT = 20_000
LONGEST_ANSWER = 4_000
LONGEST_RESULT = 1_000
TARGETS = 20

# The words of annotation/merge.py, which applied them.
BELOW = "gain below the threshold"
BEATEN = "another sample at the position gains more"
NO_GAIN = "loss is not a number"

_COLUMNS = (
    "doc_id",
    "tool",
    "position",
    "sample",
    "call",
    "result",
    "status",
    "start_probability",
    *candidates.LOSSES,
    "gain",
)
_ANSWER = (
    "completion",
    "tool",
    "call_input",
    "call_result",
    "failed",
    "prediction",
    "score",
    "tokens",
    "seconds",
)


def data(evidence: Evidence) -> dict[str, Any] | None:
    """All that the page shows, or None where no run has candidates or answers.

    Raises:
        UserError: a file cannot be read.
    """
    found = {
        "candidates": annotated(evidence.annotation) if evidence.annotation else None,
        "questions": questions(evidence.sampled),
    }
    return found if any(found.values()) else None


def annotated(
    annotation: Annotation, limit: int = CANDIDATES, characters: int = CHARACTERS
) -> dict[str, Any] | None:
    """Documents, and the candidates in them in the order of the text; None where there are no candidates."""
    try:
        path = annotation.files["candidates.parquet"]
        names = pq.read_table(path, columns=["doc_id"])["doc_id"].to_pylist()
        in_texts = candidates.kept(annotation.files["dataset_augmented.parquet"])
        ids = _drawn(annotation, Counter(names), {doc_id for doc_id, _, _ in in_texts}, limit)
        wanted = ds.field("doc_id").isin(pa.array(ids, pa.string()))
        rows = ds.dataset(path, format="parquet").to_table(columns=list(_COLUMNS), filter=wanted).to_pylist()
        texts = {
            row["doc_id"]: row
            for name in candidates.TEXTS
            if name in annotation.files
            for row in ds.dataset(annotation.files[name], format="parquet")
            .to_table(columns=["doc_id", "text", "url", "date"], filter=wanted)
            .to_pylist()
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"the candidates of generate run {annotation.run.run_id} cannot be read ({type(error).__name__}): run "
            "`toolformer generate` again"
        ) from error
    if not rows:
        return None
    for row in rows:
        row["gain"] = _gain(row, annotation.baseline)
    best = _best(rows, in_texts)
    of: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of.setdefault(row["doc_id"], []).append(row)
    shown = _fitting({doc_id: _first(of[doc_id], best, limit) for doc_id in ids}, texts, limit, characters)
    tools = in_order({row["tool"] for own in shown.values() for row in own})
    documents = [
        _document(doc_id, texts.get(doc_id, {}), len(of[doc_id]) - len(own)) for doc_id, own in shown.items()
    ]
    place = {doc_id: number for number, doc_id in enumerate(shown)}
    listed = [
        {
            "document": place[row["doc_id"]],
            "tool": tools.index(row["tool"]),
            "position": row["position"],
            "sample": row["sample"],
            "call": _cut(row["call"], LONGEST_RESULT),
            "result": _cut(row["result"], LONGEST_RESULT),
            "kept": best.get(_place(row)) == row["sample"],
            "reason": _reason(row, annotation, best),
            "gain": _figure(row["gain"]),
            "start": _figure(row["start_probability"]),
            "losses": [_figure(row[name]) for name in candidates.LOSSES],
        }
        for own in shown.values()
        for row in sorted(own, key=lambda row: (row["position"], row["tool"], row["sample"]))
    ]
    thresholds = [annotation.gains[tool].threshold if tool in annotation.gains else None for tool in tools]
    return {
        "tools": [paper.TOOLS.get(tool, tool) for tool in tools],
        "thresholds": thresholds,
        "documents": documents,
        "rows": listed,
        "total": len(names),
        "drawn": _said_drawn(len(listed), len(names), f"{limit:,} candidates", characters),
        "run": annotation.run.run_id[:8],
        "gain": annotation.difference,
    }


def _drawn(annotation: Annotation, counts: Mapping[str, int], with_calls: set[str], limit: int) -> list[str]:
    """The documents with the lowest lots that have about `limit` candidates, in the order of the corpus.

    Where the run does not hold the texts of all documents without calls, those beyond the lots that it holds are left
    out, and so are those with calls: the sample stays even, and has its texts.
    """
    bound = 2**64
    if candidates.WITHOUT_CALLS in annotation.files:
        path = annotation.files[candidates.WITHOUT_CALLS]
        held = set(pq.read_table(path, columns=["doc_id"])["doc_id"].to_pylist())
        if held and counts.keys() - with_calls - held:
            bound = max(map(lot, held))
    drawn: set[str] = set()
    room = limit
    for doc_id in sorted((one for one in counts if lot(one) <= bound), key=lot):
        if room <= 0:
            break
        room -= min(counts[doc_id], OF_DOCUMENT)
        drawn.add(doc_id)
    return [doc_id for doc_id in counts if doc_id in drawn]


def _first(rows: list[dict[str, Any]], best: Mapping[Any, int], limit: int) -> list[dict[str, Any]]:
    """What of a document's candidates is shown."""

    def worth(row: dict[str, Any]) -> tuple[bool, float]:
        gain = row["gain"]
        return best.get(_place(row)) != row[
            "sample"
        ], -gain if gain is not None and gain == gain else math.inf

    most = min(OF_DOCUMENT, limit)
    return rows if len(rows) <= most else sorted(rows, key=worth)[:most]


def _fitting(
    rows: Mapping[str, list[dict[str, Any]]], texts: Mapping[str, Any], limit: int, characters: int
) -> dict[str, list[dict[str, Any]]]:
    """Those with the lowest lots that a page has room for, in the order of the corpus; one at least."""
    fitting: set[str] = set()
    for doc_id in sorted(rows, key=lot):
        limit -= len(rows[doc_id])
        characters -= min(len((texts.get(doc_id) or {}).get("text") or ""), LONGEST_TEXT)
        characters -= sum(len(row["call"] or "") + len(row["result"] or "") for row in rows[doc_id])
        if fitting and (limit < 0 or characters < 0):
            break
        fitting.add(doc_id)
    return {doc_id: own for doc_id, own in rows.items() if doc_id in fitting}


def _said_drawn(shown: int, total: int, most: str, characters: int) -> str:
    """What the count's line says where not everything is on the page."""
    if shown == total:
        return ""
    return f"evenly drawn from {total:,}: a page holds {most} and {characters / 1e6:g} million characters"


def _document(doc_id: str, row: Mapping[str, Any], left: int) -> dict[str, Any]:
    text = row.get("text")
    return {
        "id": doc_id,
        "text": None if text is None else text[:LONGEST_TEXT],
        "cut": len(text or "") > LONGEST_TEXT,
        "left": left,
        "url": row.get("url"),
        "date": row.get("date"),
    }


def _place(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["doc_id"], row["tool"], row["position"]


def _gain(row: Mapping[str, Any], baseline: str) -> float | None:
    """The gain that the filter saw, as `candidates.gain_of` has it; None for what was not scored."""
    losses = [row[name] for name in candidates.LOSSES]
    if row["status"] != "scored" or any(loss is None or math.isnan(loss) for loss in losses):
        return None
    return row["loss_none"] - row["loss_result"] if baseline == "plain" else row["gain"]


def _best(
    rows: Sequence[Mapping[str, Any]], in_texts: set[tuple[str, str, int]]
) -> dict[tuple[str, str, int], int]:
    """The sample that stands in the text, by place: that with the largest gain, of equal ones the first."""
    found: dict[tuple[str, str, int], tuple[float, int]] = {}
    for row in rows:
        if _place(row) in in_texts and row["gain"] is not None and row["gain"] == row["gain"]:
            found[_place(row)] = max(found.get(_place(row), (-math.inf, 0)), (row["gain"], -row["sample"]))
    return {place: -sample for place, (_, sample) in found.items()}


def _reason(row: Mapping[str, Any], annotation: Annotation, best: Mapping[tuple[str, str, int], int]) -> str:
    """Why a candidate is not kept; empty if it is."""
    if row["status"] != "scored":
        return str(row["status"])
    if row["gain"] is None or math.isnan(row["gain"]):
        return NO_GAIN
    if best.get(_place(row)) == row["sample"]:
        return ""
    threshold = annotation.gains[row["tool"]].threshold if row["tool"] in annotation.gains else None
    above = threshold is not None and row["gain"] >= threshold
    return BEATEN if above else BELOW


def questions(
    sampled: Sequence[Sampled], limit: int = QUESTIONS, characters: int = CHARACTERS
) -> list[dict[str, Any]]:
    """Of each benchmark with scored answers: its questions, and the answers of every run that was asked."""
    tasks = {task for one in sampled for task in one.files if not task.endswith("perplexity")}
    found = []
    for task in [*(task for task in TASKS if task in tasks), *sorted(tasks - set(TASKS))]:
        runs, paths = _newest(sampled, task)
        if not runs:
            continue
        # First only what was asked; answers are read of the questions that are drawn.
        asked_of = [{asked(row): number for number, row in enumerate(read_samples(path))} for path in paths]
        times = Counter(key for keys in asked_of for key in keys)
        common = sorted(times, key=lambda key: -times[key])
        drawn = [
            common[n] for n in np.unique(np.linspace(0, len(common) - 1, min(len(common), limit)).astype(int))
        ]
        answered: dict[str, dict[str, Any]] = {}
        for number, (path, keys) in enumerate(zip(paths, asked_of, strict=True)):
            numbers = [keys[key] for key in drawn if key in keys]
            for row in read_samples(path, _ANSWER, numbers):
                question = answered.setdefault(asked(row), _question(row, len(runs)))
                question["answers"][number] = _answer(row)
        rows = _within([answered[key] for key in drawn], characters // len(tasks))
        found.append(
            {
                "task": TASKS.get(task, task),
                "runs": [{"title": one.title, "run": one.run_id[:8], "system": one.system} for one in runs],
                "rows": rows,
                "total": len(common),
                "drawn": _said_drawn(len(rows), len(common), f"{limit:,} questions a benchmark", characters),
            }
        )
    return found


def _newest(sampled: Sequence[Sampled], task: str) -> tuple[list[Sampled], list[Path]]:
    """The newest runs that have samples of a task, and these, in the order of the systems; no other file is fetched."""
    found: list[tuple[Sampled, Path]] = []
    for one in sampled:
        if len(found) < RUNS and (path := one.files.get(task)):
            found.append((one, path))
    names = list(SYSTEMS.values())
    found.sort(key=lambda one: names.index(one[0].system) if one[0].system in names else len(names))
    return [one for one, _ in found], [path for _, path in found]


def _within(rows: list[dict[str, Any]], characters: int) -> list[dict[str, Any]]:
    """Every n-th question, so that all together have no more characters; one at least."""
    every = 1
    while len(found := rows[::every]) > 1 and sum(map(_length, found)) > characters:
        every += 1
    return found


def _length(value: Any) -> int:
    """The characters of all texts in it."""
    if isinstance(value, Mapping):
        value = list(value.values())
    return (
        sum(map(_length, value)) if isinstance(value, list) else len(value) if isinstance(value, str) else 0
    )


def _question(row: Mapping[str, Any], runs: int) -> dict[str, Any]:
    targets = [_cut(str(target), LONGEST_RESULT) for target in row["target"][:TARGETS]]
    return {
        "id": str(row["id"]),
        "prompt": _cut(row["prompt"], LONGEST_ANSWER, end=True),
        "target": targets,
        "more": max(0, len(row["target"]) - TARGETS),
        "answers": [None] * runs,
    }


def _answer(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "completion": _cut(row["completion"], LONGEST_ANSWER),
        "tool": row["tool"],
        "input": _cut(row["call_input"], LONGEST_RESULT),
        "result": _cut(row["call_result"], LONGEST_RESULT),
        "failed": row["failed"],
        "prediction": _cut(row["prediction"], LONGEST_ANSWER),
        "score": _figure(row["score"]),
        "tokens": _figure(row["tokens"]),
        "seconds": _figure(row["seconds"]),
    }


def _cut(text: str | None, longest: int, *, end: bool = False) -> str | None:
    """At most so many characters, of a prompt its end."""
    if text is None or len(text) <= longest:
        return text
    return f"… {text[-longest:]}" if end else f"{text[:longest]} …"


def _figure(value: float | None) -> float | None:
    """Five digits, for a page; None for what is no number."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
