"""How much of an annotation rounding moves: by the shape of a batch, and against float32.

    python -m benchmarks.speed.rounding [documents=8] [model=smollm2] [dtype=bfloat16] [tools=calculator,calendar]
        [k=5] [m=5]

The same texts are annotated in `dtype` all together and one by one, with the same draws: what differs, batches of another
shape have moved. Then the same in float32, for the tolerance of `dtype`. Prints one JSON object on the last line:
`samples_that_differ` (share of the sampled calls), `calls_that_differ` (share of the calls kept at τ_f), and against
float32 the largest and the median difference of the start probabilities of positions that both tried
(`start_probability_*`) and, in nats, of the gains of calls that both scored (`gain_*`).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.speed.annotate import configured
from benchmarks.speed.arguments import given, run
from benchmarks.speed.machine import machine
from toolformer.annotation import pipeline
from toolformer.data import Document
from toolformer.lm.language_model import LanguageModel
from toolformer.stages import instantiate

Rows = Sequence[Mapping[str, Any]]


def main(arguments: Sequence[str]) -> None:
    options = given(
        arguments, {
            "documents": "8", "model": "smollm2", "dtype": "bfloat16", "tools": "calculator,calendar",
            "k": "5", "m": "5",
        },
    )  # fmt: skip
    config, settings, documents = configured(options)

    def annotated(dtype: str, batches: Iterable[Sequence[Document]]) -> list[dict[str, object]]:
        model = LanguageModel.from_pretrained(config.model, dtype, config.lm.device)
        annotator = pipeline.Annotator(model, settings, instantiate.tools(config))
        return [row for batch in batches for row in annotator.annotate(batch).rows]

    together = annotated(config.lm.dtype, [documents])
    alone = annotated(config.lm.dtype, ([document] for document in documents))
    exact = annotated("float32", [documents])
    thresholds = {one.key: one.filter_threshold for one in settings}
    print(f"{len(documents)} documents, {len(together)} samples, {config.model}; {machine()}")
    figures = {
        "samples_that_differ": _differ(_texts(together), _texts(alone)),
        "calls_that_differ": _differ(_kept(together, thresholds), _kept(alone, thresholds)),
        **_distances("start_probability", _starts(together), _starts(exact)),
        **_distances("gain", _gains(together), _gains(exact)),
    }
    print(json.dumps(figures))


def _texts(rows: Rows) -> dict[object, object]:
    return {(row["doc_id"], row["tool"], row["position"], row["sample"]): row["call"] for row in rows}


def _kept(rows: Rows, thresholds: Mapping[str, float]) -> dict[object, object]:
    """What stays of each position; a call that several samples wrote once."""
    return {
        (row["doc_id"], row["tool"], row["position"], row["call"]): True
        for row in rows
        if row["gain"] is not None and row["gain"] >= thresholds[row["tool"]]
    }


def _starts(rows: Rows) -> dict[object, float]:
    return {(row["doc_id"], row["tool"], row["position"]): row["start_probability"] for row in rows}


def _gains(rows: Rows) -> dict[object, float]:
    return {
        (row["doc_id"], row["tool"], row["position"], row["call"]): row["gain"]
        for row in rows
        if row["gain"] is not None
    }


def _differ(one: Mapping[object, object], other: Mapping[object, object]) -> float | None:
    """The share of all keys that have another value on the other side, or none; None if there are no keys."""
    keys = one.keys() | other.keys()
    return round(sum(one.get(key) != other.get(key) for key in keys) / len(keys), 4) if keys else None


def _distances(
    name: str, one: Mapping[object, float], other: Mapping[object, float]
) -> dict[str, float | int | None]:
    found = [abs(one[key] - other[key]) for key in one.keys() & other.keys()]
    return {
        f"{name}_max_difference": round(max(found), 5) if found else None,
        f"{name}_median_difference": round(statistics.median(found), 6) if found else None,
        f"{name}_compared": len(found),
    }


if __name__ == "__main__":
    run("rounding", main)
