"""Reading what a report shows of a generate run with many candidates: seconds, and the whole process's peak memory.

    python -m benchmarks.speed.report [candidates=10000000]

The file is made up: ten scored candidates of a document, one document in ten with a kept call. Prints one JSON object on the
last line.
"""

from __future__ import annotations

import datetime
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.speed.arguments import given, run
from benchmarks.speed.machine import machine
from toolformer.annotation.results import DATASET
from toolformer.annotation.shards import CANDIDATES
from toolformer.errors import UserError
from toolformer.reporting import reader, samples_page
from toolformer.tracking import Run, Tracker

TEXT = "On that day we met again, and spoke of the weather, of the harvest and of the road to the sea. " * 4
CALL = {"position": 0, "tool": "calculator", "input": "1 + 1", "result": "2", "gain": 1.0}
ROWS = 500_000
"""Written together."""


class Files:
    """A store of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def artifact_path(self, run: Run, name: str) -> Path:
        if not (self.folder / name).exists():
            raise UserError(f"no {name}")
        return self.folder / name


def main(arguments: Sequence[str]) -> None:
    candidates = int(given(arguments, {"candidates": "10000000"})["candidates"])
    with tempfile.TemporaryDirectory() as place:
        # In a process of its own, whose memory is not this one's.
        writer = multiprocessing.get_context("spawn").Process(target=write, args=(Path(place), candidates))
        writer.start()
        writer.join()
        made = Run("0" * 32, "made up", "FINISHED", datetime.datetime.now(datetime.UTC), {}, {}, {}, "")
        started = time.monotonic()
        annotation = reader.annotation_of(cast(Tracker, Files(Path(place))), made)
        page = samples_page.annotated(annotation)
        seconds = time.monotonic() - started
        assert page and annotation.examples
        mib = (Path(place) / "candidates.parquet").stat().st_size / 2**20
    print(machine(), file=sys.stderr)
    figures = {"candidates": candidates, "file_mib": round(mib), "seconds": round(seconds, 1)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(figures | {"peak_gib": round(peak, 2)}))


def write(folder: Path, candidates: int) -> None:
    """The files of a generate run."""
    chance = np.random.default_rng(0)
    names = ("dataset_augmented", "dataset_plain")
    augmented, plain = (pq.ParquetWriter(folder / f"{name}.parquet", DATASET) for name in names)
    with pq.ParquetWriter(folder / "candidates.parquet", CANDIDATES) as writer, augmented, plain:
        for start in range(0, candidates, ROWS):
            n = np.arange(start, min(start + ROWS, candidates))
            two, gain = np.full(len(n), 2.0), chance.normal(0, 1, len(n))
            columns = {
                "doc_id": [f"{number:016x}" for number in n // 10], "tool": ["calculator"] * len(n), "position": n % 10,
                "sample": n % 5, "call": ["[Calculator(1 + 1)]"] * len(n), "result": ["2"] * len(n),
                "status": ["scored"] * len(n), "start_probability": two / 4, "loss_result": two - gain,
                "loss_no_result": two, "loss_none": two, "gain": gain,
            }  # fmt: skip
            nothing = [None] * len(n)
            arrays = [pa.array(columns.get(field.name, nothing), field.type) for field in CANDIDATES]
            writer.write_table(pa.table(arrays, schema=CANDIDATES), row_group_size=10_000)
            ids = [f"{number:016x}" for number in n[::100] // 10]
            for file, calls in ((augmented, [CALL]), (plain, [])):
                rows = [{"doc_id": doc_id, "text": TEXT, "calls": calls} for doc_id in ids]
                file.write_table(pa.Table.from_pylist(rows, schema=DATASET))
    (folder / "funnel.json").write_text("{}")


if __name__ == "__main__":
    run("report", main)
