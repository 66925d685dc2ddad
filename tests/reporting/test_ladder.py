"""Where an annotation's yield is lost, and the ladder's table and picture."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.ladder.classes import CLASSES, RUNGS
from tests.reporting.conftest import NOTE, TEXTS
from toolformer.annotation.shards import CANDIDATES
from toolformer.reporting import candidate_stats, plots
from toolformer.reporting.annotation_tables import nearest
from toolformer.reporting.candidate_stats import FATES
from toolformer.reporting.data import Annotation
from toolformer.reporting.ladder import ladder, picture

NO_GAIN = {"status": "scored", "call_input": "1", "result": "1"}


def candidate(doc_id: str, tool: str, position: int, gain: float | None, **more: Any) -> dict[str, Any]:
    row = {"doc_id": doc_id, "tool": tool, "position": position, "sample": 0, "call": "[Calculator(1)]"}
    if gain is not None:
        row |= {"gain": gain, "loss_result": 1.0, "loss_no_result": 1.0 + gain, "loss_none": 1.0 + gain}
    return dict.fromkeys(CANDIDATES.names) | row | NO_GAIN | more


ROWS = [
    candidate("math", "calculator", 10, None, call_input=None, result=None, status="malformed call"),
    candidate("date", "calculator", 3, None, call_input=None, result=None, status="malformed call"),
    candidate("date", "calculator", 3, None, result=None, status="invalid expression"),
    candidate("date", "qa", 3, 1.0),
    candidate("nile", "calculator", 4, -0.5),
    candidate("nile", "calculator", 5, None, status="result not ahead"),
    candidate("evil", "calculator", 4, -0.5),
    candidate("evil", "calculator", 5, 0.25),
    candidate("evil", "calculator", 5, 0.75, sample=1),
    candidate("evil", "calculator", 9, 0.5),
    candidate("kept", "calculator", 5, 1.0),
]
THRESHOLDS = {"calculator": 1.0, "qa": 2.0}


def test_every_text_tried_is_lost_once_and_the_nearest_misses_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates, texts = tmp_path / "candidates.parquet", tmp_path / "dataset_plain.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS, schema=CANDIDATES), candidates)
    pq.write_table(pa.table({"doc_id": list(TEXTS), "text": list(TEXTS.values())}), texts)
    for rows in (1, 2, 100):
        monkeypatch.setattr(candidate_stats, "ROWS", rows)
        found = candidate_stats.lost(
            candidates, "paper", THRESHOLDS, {"calculator": 9, "qa": 1, "calendar": 3}
        )
        assert found["calculator"] == dict(zip(FATES, (4, 1, 1, 1, 1, 1), strict=True))
        assert found["qa"] == dict.fromkeys(FATES, 0) | {"below τ_f": 1}
        assert found["calendar"]["no position"] == 3 == sum(found["calendar"].values())
    files = {path.name: path for path in (candidates, texts)}
    annotation = Annotation(NOTE, {}, {}, (), thresholds=THRESHOLDS, files=files)
    misses = candidate_stats.misses(annotation, count=3)
    assert [(one.tool, one.gain, one.kept) for one in misses] == [
        ("calculator", 0.75, False), ("calculator", 0.5, False), ("calculator", -0.5, False), ("qa", 1.0, False),
    ]  # fmt: skip
    assert misses[-1].before == "The" and "[Calculator(1) -> 1]" in nearest(misses).rows[-1][2].text


def test_a_column_and_a_bar_for_each_benchmark() -> None:
    one = {f"class/{name}": 10.0 for name in CLASSES} | {f"rung/{name}": 25.0 for name in RUNGS}
    ladders = {"svamp": one | {"n": 90.0, "rung_n/gold_input": 45.0}, "mine": one | {"n": 90.0}}
    table = ladder(ladders)
    assert [column.label for column in table.columns] == ["", "SVAMP", "mine"]
    assert [row[0].text for row in table.rows[: len(CLASSES)]] == list(CLASSES.values())
    assert sum(int(row[1].text) for row in table.rows[: len(CLASSES)]) == 90
    assert table.rows[-3][1].detail == "(of 45)" and table.rows[-3][2].detail == ""
    figure = picture(ladders)
    assert figure and all(name in plots.files(figure)["ladder.svg"].decode() for name in CLASSES.values())
    assert picture({}) is None and not ladder({}).rows
