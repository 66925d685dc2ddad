"""The numbers of a smoke run on a tiny model, pinned: candidates, C*, answers and likelihoods.

`UPDATE_GOLDEN=1 pytest tests/test_golden.py` writes the pins anew; a commit that does so says why. Decisions are compared
exactly, floats within what another processor's rounding moves.
"""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

PINS = Path(__file__).parent / "golden" / "smoke.json"
CALLS = ("doc_id", "tool", "position", "sample", "call", "result", "status")
FLOATS = ("start_probability", "loss_none", "loss_no_result", "loss_result", "gain")


def produced(root: Path) -> dict[str, Any]:
    """What a smoke run made, without names of runs, times and paths."""
    (candidates,) = root.glob("generate/*/candidates.parquet")
    rows = pq.read_table(candidates).to_pylist()
    (augmented,) = root.glob("generate/*/dataset_augmented.parquet")
    answers: list[list[Any]] = []
    likelihoods: list[float] = []
    for answer in sorted(root.glob("evaluate/*/samples/dateset.parquet")):
        for row in pq.read_table(answer).to_pylist():
            answers.append([row["id"], row["completion"], row["call_result"], row["correct"]])
    for answer in sorted(root.glob("evaluate/*/samples/heldout_perplexity.parquet")):
        likelihoods += [row["log_likelihood"] for row in pq.read_table(answer).to_pylist()]
    return {
        "candidates": [[row[name] for name in CALLS] for row in rows],
        "losses": [[row[name] for name in FLOATS] for row in rows],
        "augmented": [[row["doc_id"], row["text"]] for row in pq.read_table(augmented).to_pylist()],
        "answers": sorted(answers),
        "likelihoods": sorted(likelihoods),
    }


def test_a_smoke_run_makes_what_it_always_made(smoke_runs: Path) -> None:
    now = json.loads(json.dumps(produced(smoke_runs)))
    if os.environ.get("UPDATE_GOLDEN"):
        PINS.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    pinned = json.loads(PINS.read_text(encoding="utf-8"))
    assert now["candidates"] == pinned["candidates"]
    for row, expected in zip(now["losses"], pinned["losses"], strict=True):
        assert row == pytest.approx(expected, abs=2e-3)
    assert now["augmented"] == pinned["augmented"]
    assert now["answers"] == pinned["answers"]
    assert now["likelihoods"] == pytest.approx(pinned["likelihoods"], rel=1e-3)
