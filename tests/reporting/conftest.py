"""Small runs of every stage, in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.reporting.memory import Memory
from toolformer.annotation.merge import keep, merge
from toolformer.annotation.results import SCHEMAS
from toolformer.annotation.shards import CANDIDATES
from toolformer.calls import ApiCall, linearise
from toolformer.data import Document
from toolformer.reporting import Report, build

HOSTILE = 'x</td><script>alert("1")</script>|`a`\\input{/etc/passwd} $1 & 50% #_^~{} 中文 ế \x00\u202e\ud800'.encode(
    "utf-8", "replace"
).decode()

TEXTS = {
    "math": "Of the 1400 people who took part in the long study, 400 passed the test, which is 29 percent of them.",
    "date": "The library will be open on Friday, March 10, and Sunday, March 19 for regular hours.",
    "nile": "The Nile has an approximate length of 6,853 kilometers, the White Nile being its main source.",
    "evil": f"Before it {HOSTILE} stands the call and after it <img src=x onerror=alert(2)> the rest.",
}
ROWS: list[tuple[str, str, int, int, str, str, str, float | None]] = [
    # doc, tool, position, sample, input, result, status, gain
    ("math", "calculator", 77, 0, "400 / 1400", "0.29", "scored", 2.5),
    ("math", "calculator", 77, 1, "400/1400", "0.29", "scored", 2.25),
    ("math", "calculator", 60, 0, "1400 - 400", "1000", "scored", 0.75),
    ("math", "calculator", 10, 0, "1 + 1", "2", "scored", -0.5),
    ("date", "calendar", 35, 0, "", "Today is Thursday, March 9, 2017.", "scored", 2.0),
    ("date", "calendar", 51, 0, "", "Today is Thursday, March 9, 2017.", "scored", 1.5),
    ("lost", "calendar", 3, 0, "", "Today is Monday, May 1, 2017.", "scored", 0.1),
    ("nile", "qa", 37, 0, "What is the length of the Nile?", "6,853 km", "scored", 2.08),
    ("nile", "qa", 37, 1, "What?", "unknown", "no result", None),
    ("evil", "qa", 10, 0, HOSTILE, HOSTILE, "scored", 1.2),
]
NAMES = {"calculator": "Calculator", "calendar": "Calendar", "qa": "QA"}
STEPS = "documents selected windows positions sampled well_formed executed scored kept".split()


def funnel(*counts: int | None, **reasons: dict[str, int]) -> dict[str, Any]:
    steps = {step: count for step, count in zip(STEPS, counts, strict=True) if count is not None}
    return {**steps, "reasons": {}, "drop_reasons": {}, **reasons}


FUNNEL = {
    "calculator": funnel(
        *(40, 9, 11, 50, 120, 95, 80, 60, 1),
        reasons={"numbers that compute": 9, "fewer than three numbers": 31},
        drop_reasons={"invalid expression": 40},
        window_reasons={"no start probability above the threshold": 2},
        filter_reasons={"gain below the threshold": 59},
    ),
    "calendar": funnel(40, 30, None, 20, 90, None, 90, 90, 2),
    "qa": funnel(
        *(40, 40, None, 100, 400, None, 350, 300, 2),
        reasons={"selected": 40},
        drop_reasons={"<b>odd</b> | reason": 50},
    ),
    "search": funnel(40, 40, None, 0, 0, None, 0, 0, 0),
}


EXECUTED = {f"{tool}/executed": float(entry["executed"]) for tool, entry in FUNNEL.items()}
"""Metrics of a generate run."""


def call_of(tool: str, call_input: str, result: str | None) -> ApiCall:
    call = ApiCall(NAMES[tool], call_input, quoted=tool == "qa")
    return call if result is None else call.with_result(result)


def write_annotation(folder: Path, rows: Sequence[Any] = ROWS, threshold: float = 1.0) -> list[Path]:
    """The artifacts of a generate run, as the stage writes them."""
    candidates: list[dict[str, Any]] = []
    for doc_id, tool, position, sample, call_input, result, status, gain in rows:
        call = linearise(call_of(tool, call_input, None)).strip()
        row = {"doc_id": doc_id, "tool": tool, "position": position, "sample": sample, "call": call}
        row |= {
            "call_input": call_input,
            "result": result,
            "status": status,
            "gain": gain,
            "start_probability": 0.5,
        }
        if gain is not None:
            row |= {"loss_result": 1.0, "loss_no_result": 1.0 + gain, "loss_none": 1.0 + gain}
        candidates.append(dict.fromkeys(CANDIDATES.names) | row)
    kept = keep(candidates, dict.fromkeys(NAMES, threshold))
    documents = [Document(doc_id, text) for doc_id, text in TEXTS.items() if doc_id in kept]
    contents = {
        "candidates": candidates,
        "dataset_augmented": [merge(document, kept[document.doc_id]) for document in documents],
        "dataset_plain": [merge(document, []) for document in documents],
    }
    paths = [folder / f"{name}.parquet" for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        pq.write_table(pa.Table.from_pylist(content, schema=SCHEMAS[path.name]), path)
    (folder / "funnel.json").write_text(json.dumps(FUNNEL))
    return [*paths, folder / "funnel.json"]


def log_run(
    tracker: Memory,
    stage: str,
    metrics: Mapping[str, float] | None = None,
    files: Sequence[Path] = (),
    dotted: Mapping[str, str] | None = None,
    **named: str,
) -> str:
    """One finished run; `dotted` are tags whose names are no identifiers."""
    tags = {"device": "cpu", "device_name": "A Processor", "experiment": "default", **named, **(dotted or {})}
    with tracker.run(stage=stage, tags=tags) as run:
        run.metrics(metrics or {})
        for file in files:
            run.artifact(file)
    return run.run_id


def accuracy(task: str, value: float, n: int = 1000, **shares: float) -> dict[str, float]:
    """Metrics of a benchmark; `shares` of the examples have a call of a tool."""
    metrics = {"score": value, "ci_low": value - 2, "ci_high": value + 2, "n": float(n)}
    metrics |= {f"call_share/{tool}": share for tool, share in shares.items()}
    metrics |= {"call_share": sum(shares.values())} if shares else {}
    return {f"{task}/{name}": number for name, number in metrics.items()}


def perplexity(task: str, value: float, n: int = 60) -> dict[str, float]:
    metrics = {"perplexity": value, "ci_low": value - 1, "ci_high": value + 1, "n": float(n)}
    return {f"{task}/{name}": number for name, number in metrics.items()}


@pytest.fixture(scope="session")
def empty() -> Memory:
    """A store without a run."""
    return Memory()


@pytest.fixture(scope="session")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """Runs of all stages; ASDiv, MAWPS and the whole of M + CC on math are missing."""
    tracker = Memory()
    skipped = {"rows_skipped": 4.0, "rows_skipped/malformed JSON": 3.0, "rows_skipped/empty text": 1.0}
    files = write_annotation(tmp_path_factory.mktemp("artifacts"))
    dataset = log_run(tracker, "generate", skipped | EXECUTED, files=files)
    augmented, plain = (
        log_run(tracker, "train", data=data, dotted={"lineage.dataset_run_id": dataset})
        for data in ("augmented", "plain")
    )
    log_run(tracker, "evaluate", accuracy("svamp", 99.0), system="model")
    for system, svamp, dateset, wikitext, train in (
        ("model", 4.0, 3.0, 20.5, ""),
        ("model_cc", None, 2.5, 21.25, plain),
        ("toolformer_disabled", 5.0, 2.0, 20.5, augmented),
        ("toolformer", 12.34, 40.0, None, augmented),
    ):
        shares: dict[str, Any] = {"calculator": 0.5, "qa": 0.25} if system == "toolformer" else {}
        metrics = accuracy("svamp", svamp, **shares) if svamp is not None else {}
        metrics |= accuracy("dateset", dateset, n=9400 if system == "model" else 500, **shares)
        metrics |= perplexity("wikitext_perplexity", wikitext) if wikitext is not None else {}
        dotted = {"decoding.k": "10"} | ({"lineage.train_run_id": train} if train else {})
        log_run(tracker, "evaluate", metrics, system=system, dotted=dotted)
    # A run of a sweep over k must not stand in for the plain one.
    log_run(tracker, "evaluate", accuracy("svamp", 77.0), system="toolformer", dotted={"decoding.k": "1"})
    log_run(tracker, "evaluate", accuracy("svamp", 33.0), system="toolformer", experiment="other")
    return tracker


@pytest.fixture(scope="session")
def report(tracker: Memory, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return build(tracker, "default", tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def bare(empty: Memory, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return build(empty, None, tmp_path_factory.mktemp("bare"))
