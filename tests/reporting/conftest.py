"""A store with small real runs of every stage, made once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolformer.calls import ApiCall, insert, linearise
from toolformer.reporting import Report, build
from toolformer.tracking import Tracker

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
FUNNEL = {
    "calculator": {
        "documents": 40,
        "selected": 9,
        "windows": 11,
        "positions": 50,
        "sampled": 120,
        "well_formed": 95,
        "executed": 80,
        "scored": 60,
        "kept": 1,
    }
    | {
        "reasons": {"numbers that compute": 9, "fewer than three numbers": 31},
        "drop_reasons": {"invalid expression": 40},
        "window_reasons": {"no start probability above the threshold": 2},
        "filter_reasons": {"gain below the threshold": 59},
    },
    "calendar": {
        "documents": 40,
        "selected": 30,
        "positions": 20,
        "sampled": 90,
        "executed": 90,
        "scored": 90,
        "kept": 2,
    }
    | {"reasons": {}, "drop_reasons": {}},
    "qa": {
        "documents": 40,
        "selected": 40,
        "positions": 100,
        "sampled": 400,
        "executed": 350,
        "scored": 300,
        "kept": 2,
    }
    | {"reasons": {"selected": 40}, "drop_reasons": {"<b>odd</b> | reason": 50}},
    "search": {
        "documents": 40,
        "selected": 40,
        "positions": 0,
        "sampled": 0,
        "executed": 0,
        "scored": 0,
        "kept": 0,
    }
    | {"reasons": {}, "drop_reasons": {}},
}


def call_of(tool: str, call_input: str, result: str | None) -> ApiCall:
    call = ApiCall(NAMES[tool], call_input, quoted=tool == "qa")
    return call if result is None else call.with_result(result)


def write_annotation(folder: Path, rows: Sequence[Any] = ROWS, threshold: float = 1.0) -> list[Path]:
    """The four artifacts of a generate run, as the stage writes them."""
    candidates, kept = [], {}
    for doc_id, tool, position, sample, call_input, result, status, gain in rows:
        candidates.append(
            {
                "doc_id": doc_id,
                "tool": tool,
                "position": position,
                "token_position": 1,
                "start_probability": 0.5,
            }
            | {
                "sample": sample,
                "call": linearise(call_of(tool, call_input, None)).strip(),
                "call_input": call_input,
            }
            | {"result": result, "status": status, "gain": gain}
            | {"loss_result": gain, "loss_no_result": gain, "loss_none": gain}
        )
        if gain is not None and gain >= threshold and (doc_id, tool, position) not in kept:
            kept[doc_id, tool, position] = (call_of(tool, call_input, result), gain)
    augmented: list[dict[str, Any]] = []
    plain: list[dict[str, Any]] = []
    for doc_id, text in TEXTS.items():
        calls = [
            (position, tool, *value) for (doc, tool, position), value in sorted(kept.items()) if doc == doc_id
        ]
        if calls:
            rest = {"url": None, "date": None, "doc_id": doc_id}
            inserted = insert(text, [(position, call) for position, _, call, _ in calls])
            listed = [
                {"position": p, "tool": t, "input": c.input, "result": c.result, "gain": g}
                for p, t, c, g in calls
            ]
            augmented.append({"text": inserted, "calls": listed, **rest})
            plain.append({"text": text, "calls": [], **rest})
    floats = ("gain", "loss_result", "loss_no_result", "loss_none")
    schema = pa.schema(
        [
            (key, pa.float64()) if key in floats else pa.field(key, _kind(value))
            for key, value in candidates[0].items()
        ]
    )
    pq.write_table(pa.Table.from_pylist(candidates, schema=schema), folder / "candidates.parquet")
    call_type = [
        ("position", pa.int64()),
        ("tool", pa.string()),
        ("input", pa.string()),
        ("result", pa.string()),
    ]
    dataset = pa.schema(
        [("text", pa.string()), ("calls", pa.list_(pa.struct([*call_type, ("gain", pa.float64())])))]
        + [(key, pa.string()) for key in ("url", "date", "doc_id")]
    )
    pq.write_table(pa.Table.from_pylist(augmented, schema=dataset), folder / "dataset_augmented.parquet")
    pq.write_table(pa.Table.from_pylist(plain, schema=dataset), folder / "dataset_plain.parquet")
    (folder / "funnel.json").write_text(json.dumps(FUNNEL))
    return [folder / f"{name}.parquet" for name in ("candidates", "dataset_augmented", "dataset_plain")] + [
        folder / "funnel.json"
    ]


def _kind(value: object) -> pa.DataType:
    return pa.int64() if isinstance(value, int) else pa.float64() if isinstance(value, float) else pa.string()


def log_run(
    tracker: Tracker,
    stage: str,
    metrics: Mapping[str, float] | None = None,
    files: Sequence[Path] = (),
    fingerprint: str = "f",
    dotted: Mapping[str, str] | None = None,
    **named: str,
) -> str:
    """One finished run; `dotted` are tags whose names are no identifiers."""
    tags = (
        {"device": "cpu", "device_name": "A Processor", "experiment": "default"} | named | dict(dotted or {})
    )
    with tracker.run(stage=stage, name=stage, fingerprint=fingerprint, config={}, tags=tags) as run:
        run.metrics(metrics or {})
        for file in files:
            run.artifact(file)
    return run.run_id


def accuracy(task: str, value: float, n: int = 1000, **shares: Any) -> dict[str, float]:
    found = {
        f"{task}/score": value,
        f"{task}/ci_low": value - 2,
        f"{task}/ci_high": value + 2,
        f"{task}/n": float(n),
    }
    if shares:
        found[f"{task}/call_share"] = sum(shares.values())
    return found | {f"{task}/call_share/{tool}": share for tool, share in shares.items()}


def perplexity(task: str, value: float, n: int = 60) -> dict[str, float]:
    return {
        f"{task}/perplexity": value,
        f"{task}/ci_low": value - 1,
        f"{task}/ci_high": value + 1,
        f"{task}/n": float(n),
    }


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    """A store without a run."""
    return Tracker(None, tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="session")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    """Runs of all stages; ASDiv, MAWPS and the whole of M + CC on math are missing."""
    tracker = Tracker(None, tmp_path_factory.mktemp("runs"))
    skipped = {"rows_skipped": 4.0, "rows_skipped/malformed JSON": 3.0, "rows_skipped/empty text": 1.0}
    dataset = log_run(
        tracker, "generate", skipped, files=write_annotation(tmp_path_factory.mktemp("artifacts"))
    )
    augmented = log_run(tracker, "train", data="augmented", dotted={"lineage.dataset_run_id": dataset})
    plain = log_run(
        tracker, "train", data="plain", fingerprint="g", dotted={"lineage.dataset_run_id": dataset}
    )
    log_run(tracker, "evaluate", accuracy("svamp", 99.0), fingerprint="old", system="model")
    for system, svamp, dateset, wikitext, train in (
        ("model", 4.0, 3.0, 20.5, ""),
        ("model_cc", None, 2.5, 21.25, plain),
        ("toolformer_disabled", 5.0, 2.0, 20.5, augmented),
        ("toolformer", 12.34, 40.0, None, augmented),
    ):
        metrics: dict[str, float] = {}
        shares: dict[str, Any] = {"calculator": 0.5, "qa": 0.25} if system == "toolformer" else {}
        if svamp is not None:
            metrics |= accuracy("svamp", svamp, **shares)
        metrics |= accuracy("dateset", dateset, n=9400 if system == "model" else 500, **shares)
        if wikitext is not None:
            metrics |= perplexity("wikitext_perplexity", wikitext)
        dotted = {"decoding.k": "10"} | ({"lineage.train_run_id": train} if train else {})
        log_run(tracker, "evaluate", metrics, fingerprint=system, system=system, dotted=dotted)
    # A run of a sweep over k must not stand in for the plain one.
    log_run(
        tracker,
        "evaluate",
        accuracy("svamp", 77.0),
        fingerprint="k",
        system="toolformer",
        dotted={"decoding.k": "1"},
    )
    log_run(
        tracker,
        "evaluate",
        accuracy("svamp", 33.0),
        fingerprint="other",
        system="toolformer",
        experiment="other",
    )
    return tracker


@pytest.fixture(scope="session")
def report(tracker: Tracker, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return build(tracker, "default", tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def bare(empty: Tracker, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return build(empty, None, tmp_path_factory.mktemp("bare"))
