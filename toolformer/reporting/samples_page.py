"""The data of the samples page: candidate calls with their texts, and answers of evaluations side by side.

Plain lists and dictionaries for JSON, read from a run's Parquet files. A page holds a sample: the documents with the lowest
hashes, whose texts a generate run stores, and evenly spaced questions. It states the total.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from toolformer.benchmarks.declared import is_perplexity
from toolformer.calls import ApiCall, linearise
from toolformer.data.parquet import read_table
from toolformer.data.sampling import Sample, hash64
from toolformer.evaluation.ladder.classes import CLASSES
from toolformer.reporting import candidate_stats
from toolformer.reporting.data import NEWEST, Annotation, Evidence, Sampled
from toolformer.reporting.formatting import SYSTEMS, in_order, in_table_order, title_of, tool_name
from toolformer.reporting.pairing import question_key, read_samples

CANDIDATES = 2_000
OF_DOCUMENT = 200
"""Candidates of one document: the kept ones first, then the largest gains."""
QUESTIONS = 300
"""Questions per benchmark."""
LONGEST_TEXT = 20_000
LONGEST_ANSWER = 4_000
LONGEST_RESULT = 1_000
TARGETS = 20
UNPUBLISHED = "The text of this question is not published with the answers."

_COLUMNS = "doc_id tool position sample written call start_probability kept reason filter_gain".split()
_WRITTEN = ("completion", "prediction")
_CALL = ("tool", "call_input", "call_result", "failed")
_FIGURES = ("score", "tokens", "seconds")
_ANSWERED = (*_WRITTEN, *_CALL, *_FIGURES)

Row = dict[str, Any]


def data(evidence: Evidence) -> Row | None:
    """`candidates` and `questions` for the page, or None where no run has either."""
    candidates = annotated(evidence.annotation) if evidence.annotation else None
    page = {"candidates": candidates, "questions": questions(evidence.sampled)}
    return page if any(page.values()) else None


def annotated(annotation: Annotation, limit: int = CANDIDATES) -> Row | None:
    """Documents, and about `limit` candidates in the order of the text; None where there are no candidates."""
    ids, total = _draw(annotation, limit)
    if not ids:
        return None
    columns = [*_COLUMNS, *candidate_stats.LOSSES]
    rows = candidate_stats.of_documents(annotation.files["candidates.parquet"], columns, ids)
    texts = candidate_stats.texts(annotation.files, ids)
    tools = in_order(row["tool"] for row in rows)
    documents, listed = [], []
    for index, doc_id in enumerate(ids):
        candidates = [row for row in rows if row["doc_id"] == doc_id]
        candidates.sort(
            key=lambda row: (not row["kept"], math.inf if row["filter_gain"] is None else -row["filter_gain"])
        )
        text = texts.get(doc_id, {})
        full_text = text.get("text")
        documents.append({
            "id": doc_id, "url": text.get("url"), "date": text.get("date"), "left": len(candidates[OF_DOCUMENT:]),
            "text": full_text and full_text[:LONGEST_TEXT], "cut": len(full_text or "") > LONGEST_TEXT,
        })  # fmt: skip
        candidates = sorted(
            candidates[:OF_DOCUMENT], key=lambda row: (row["position"], row["tool"], row["sample"])
        )
        listed += [_candidate(row, index, tools) for row in candidates]
    return {
        "tools": [tool_name(tool) for tool in tools],
        "thresholds": [annotation.thresholds.get(tool) for tool in tools],
        "documents": documents,
        "rows": listed,
        "drawn": _drawn(len(listed), total),
        "gain": annotation.difference,
    }


def _draw(annotation: Annotation, limit: int) -> tuple[list[str], int]:
    """The documents with the lowest hashes that together have about `limit` candidates, in the order of the corpus.

    And the number of all candidates. A run may store the texts of only some documents without calls, those with the lowest
    hashes. Then no document beyond them is sampled, with calls or without: the sample is even and has its texts.
    """
    draw: Sample[tuple[str, int]] = Sample(limit, 0)
    total = documents = 0
    for doc_id, count in candidate_stats.sizes(annotation.files["candidates.parquet"]):
        draw.add(doc_id, 0, (doc_id, count))
        total, documents = total + count, documents + 1
    highest = 2**64
    if file := annotation.files.get(candidate_stats.WITHOUT_CALLS):
        stored = [hash64(doc_id) for doc_id, _ in candidate_stats.sizes(file)]
        with_calls = pq.read_metadata(annotation.files["dataset_augmented.parquet"]).num_rows
        if stored and documents > with_calls + len(stored):
            highest = max(stored)
    drawn = set()
    for doc_id, count in sorted(draw.items(), key=lambda entry: hash64(entry[0])):
        if limit <= 0 or hash64(doc_id) > highest:
            break
        limit -= min(count, OF_DOCUMENT)
        drawn.add(doc_id)
    return [doc_id for doc_id, _ in draw.items() if doc_id in drawn], total


def _candidate(row: Row, document: int, tools: Sequence[str]) -> Row:
    call = ApiCall.of_row(row["call"]) if row["call"] else None
    return {
        **{name: row[name] for name in ("position", "sample", "kept", "reason")},
        "document": document,
        "tool": tools.index(row["tool"]),
        "call": _cut(linearise(replace(call, result=None)).strip() if call else row["written"]),
        "result": _cut(call.result) if call else None,
        "gain": _rounded(row["filter_gain"]),
        "start": _rounded(row["start_probability"]),
        "losses": [_rounded(row[name]) for name in candidate_stats.LOSSES],
    }


def _drawn(shown: int, total: int) -> str:
    """The text after the count if a page holds a part."""
    return f", evenly drawn from {total:,}" if shown < total else ""


def questions(sampled: Sequence[Sampled], limit: int = QUESTIONS) -> list[Row]:
    """For each benchmark with scores: at most `limit` questions, with the answers of the newest runs."""
    page = []
    names = list(SYSTEMS.values())
    for task in in_table_order(task for run in sampled for task in run.files):
        if is_perplexity(task):
            continue
        runs = [run for run in sampled if task in run.files][:NEWEST]
        runs.sort(key=lambda run: names.index(run.system) if run.system in names else len(names))
        rows_of = [
            {question_key(row): row for row in read_samples(run.files[task], _ANSWERED)} for run in runs
        ]
        classes = [_classes(run.classes.get(task)) for run in runs]
        times = Counter(key for rows in rows_of for key in rows)
        keys = sorted(times, key=lambda key: -times[key])  # those that most runs were asked come first
        even = np.unique(np.linspace(0, len(keys) - 1, min(len(keys), limit)).astype(int))
        drawn = [_question([rows.get(keys[index]) for rows in rows_of], classes) for index in even]
        page.append({
            "task": title_of(task),
            "runs": [{"title": run.title, "run": run.run_id[:8], "system": run.system} for run in runs],
            "rows": drawn,
            "drawn": _drawn(len(drawn), len(keys)),
        })  # fmt: skip
    return page


def _question(rows: Sequence[Row | None], classes: Sequence[Mapping[str, str]]) -> Row:
    """A question with the answer of each run, None of those that were not asked."""
    row = next(row for row in rows if row)
    # A published run may lack the texts of its questions.
    prompt, target = row["prompt"] or UNPUBLISHED, row["target"] or ()
    return {
        "id": str(row["id"]),
        "prompt": prompt if len(prompt) <= LONGEST_ANSWER else f"… {prompt[-LONGEST_ANSWER:]}",
        "target": [_cut(str(target)) for target in target[:TARGETS]],
        "more": max(0, len(target) - TARGETS),
        "answers": [
            row and _answer(row) | {"class": classes_by_id.get(str(row["id"]))}
            for row, classes_by_id in zip(rows, classes, strict=True)
        ],
    }


def _classes(path: Path | None) -> dict[str, str]:
    """Why each sample is right or wrong, by id, as it is shown."""
    rows = read_table(path, ["id", "class"]).to_pylist() if path else []
    return {row["id"]: CLASSES.get(row["class"], row["class"]) for row in rows}


def _answer(row: Mapping[str, Any]) -> Row:
    return {
        **{name: _cut(row[name], LONGEST_ANSWER) for name in _WRITTEN},
        **{name: _cut(row[name]) for name in _CALL},
        **{name: _rounded(row[name]) for name in _FIGURES},
    }


def _cut(text: str | None, longest: int = LONGEST_RESULT) -> str | None:
    return text if text is None or len(text) <= longest else f"{text[:longest]} …"


def _rounded(value: float | None) -> float | None:
    """Five significant digits; None for what is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
