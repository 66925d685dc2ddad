"""Which differences between the systems are more than chance: paired comparisons on the same samples.

Works on the files `samples/<task>.parquet` of evaluations; knows no tracking.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.metrics import RESAMPLES
from toolformer.errors import UserError
from toolformer.reporting.pairing import Compared, Row, asked, compare_task

PAIRS = (
    ("toolformer", "toolformer_disabled"),
    ("toolformer", "model"),
    ("toolformer_disabled", "model"),
    ("model_cc", "model"),
)
"""A system and what it is compared with; differences are the first minus the second."""
LEVEL = 0.05

DATE = "current_date"
"""What the calendar answers with, where an example has a day of its own; a part of the question."""
_SCORED = ["id", "prompt", "target", "score"]
_PERPLEXITY = ["id", "text_sha256", "log_likelihood", "tokens", "words"]


def compare_systems(
    files: Mapping[tuple[str, str], Path], seed: int = 0, resamples: int = RESAMPLES
) -> dict[tuple[str, str, str], Compared]:
    """Comparisons by task, system and the system it is compared with, as far as there are common samples.

    `files` holds the samples by system and task.

    Raises:
        UserError: a file of samples cannot be read.
    """
    found: dict[tuple[str, str, str], Compared] = {}
    for task in dict.fromkeys(task for _, task in files):
        rows = {system: read(path) for (system, name), path in files.items() if name == task}
        for system, other in PAIRS:
            if system in rows and other in rows:
                compared = compare_task(task, rows[other], rows[system], seed, resamples)
                if compared:
                    found[task, system, other] = compared
    return found


def read(path: Path) -> list[Row]:
    """The columns of a file of samples that a comparison needs.

    Raises:
        UserError: it holds no samples.
    """
    try:
        names = pq.read_schema(path).names
        columns = _SCORED if "score" in names else _PERPLEXITY
        columns = [*columns, *({DATE} & set(names))]
        rows: list[Row] = pq.read_table(path, columns=columns).to_pylist()
        for row in rows:
            asked(row)
    except (OSError, ValueError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise UserError(
            f"{path} holds no samples ({type(error).__name__}): run `toolformer evaluate` again"
        ) from error
    return rows


def is_significant(compared: Compared) -> bool:
    """Whether the difference is more than chance: McNemar's p below 0.05, or a 95 % interval without 0.

    A single sample, or a difference that is no finite number, says nothing.
    """
    if compared.scores:
        if compared.scores.p_value is not None:
            return compared.scores.p_value < LEVEL
        estimate = compared.scores.difference
    else:
        assert compared.perplexity is not None
        estimate = compared.perplexity.difference
    ends = (estimate.low, estimate.high)
    return all(map(math.isfinite, ends)) and ends[0] < ends[1] and not ends[0] <= 0 <= ends[1]
