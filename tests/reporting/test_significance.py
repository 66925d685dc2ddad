"""Which differences are called more than chance, and of which samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolformer.errors import UserError
from toolformer.reporting.pairing import Unpaired, compare_task, read_samples
from toolformer.reporting.significance import compare_systems, is_significant


def scored(one: int, score: float, **more: Any) -> dict[str, Any]:
    return {"id": str(one), "prompt": f"p{one}", "target": [str(one)], "score": score, **more}


def text(one: int, log_likelihood: float) -> dict[str, Any]:
    return {
        "id": str(one),
        "text_sha256": f"s{one}",
        "log_likelihood": log_likelihood,
        "tokens": 4,
        "words": 3,
    }


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_the_same_words_on_another_day_are_not_paired(tmp_path: Path) -> None:
    days = ("2020-01-01", "2021-01-01")
    files = {
        (system, "dateset"): write(
            tmp_path / f"{system}.parquet", [scored(n, 100.0, current_date=day) for n in range(9)]
        )
        for system, day in zip(("toolformer", "model"), days, strict=True)
    }
    assert compare_systems(files) == {}
    assert read_samples(files["model", "dateset"])[0]["current_date"] == days[1]


def test_files_without_a_date_are_paired(tmp_path: Path) -> None:
    files = {
        ("toolformer", "svamp"): write(tmp_path / "a.parquet", [scored(n, 100.0) for n in range(9)]),
        ("model", "svamp"): write(tmp_path / "b.parquet", [scored(n, 0.0) for n in range(9)]),
    }
    (found,) = compare_systems(files).values()
    assert found.unpaired == Unpaired() and is_significant(found)


@pytest.mark.parametrize(
    ("first", "second", "significant"),
    [
        ([-8.0] * 9, [-4.0] * 9, False),  # all differences equal: no interval to speak of
        ([-8.0, -9.0, -8.5] * 6, [-4.0, -4.2, -4.1] * 6, True),
        ([-8.0, -4.0] * 6, [-4.0, -8.0] * 6, False),
        ([-1e9] * 9, [-1e9] * 9, False),
        ([-8.0], [-1.0], False),
        ([float("nan"), -8.0, -9.0], [-4.0, -4.1, -4.2], False),
    ],
)
def test_perplexities(first: list[float], second: list[float], significant: bool) -> None:
    one, two = ([text(n, value) for n, value in enumerate(values)] for values in (first, second))
    found = compare_task("wikitext_perplexity", one, two, 0, 200)
    assert found and is_significant(found) is significant


def test_files_of_earlier_evaluations_are_read_and_others_refused(tmp_path: Path) -> None:
    (row,) = read_samples(write(tmp_path / "a.parquet", [scored(1, 0.0)]), ["seconds"])
    assert row["seconds"] is None and row["current_date"] is None and row["score"] == 0.0
    (tmp_path / "text").write_text("no parquet")
    for path in (tmp_path / "none", tmp_path / "text", write(tmp_path / "b.parquet", [{"score": 1.0}])):
        with pytest.raises(UserError, match="holds no samples"):
            read_samples(path)
