"""Effect of rounding on an annotation: of the shape of its batches, and against float32.

    python -m benchmarks.speed.rounding [documents=8] [model=smollm2] [dtype=bfloat16] [tools=calculator,calendar]
        [k=5] [m=5]

The same texts are annotated in `dtype` all together and one by one, with the same random numbers: every difference comes
from the shape of the batches. Then the same in float32, for the tolerance of `dtype`. Prints one JSON object on the last line:
`samples_that_differ` (share of the sampled calls), `calls_that_differ` (share of the calls kept at τ_f), and against
float32 the largest and the median difference of the start probabilities of positions that both tried
(`start_probability_*`) and, in nats, of the gains of calls that both scored (`gain_*`).
"""

from dataclasses import dataclass

import pandas

from toolformer.annotation.pipeline import Annotator
from toolformer.benchmarks.speed import annotate
from toolformer.benchmarks.speed.script import run, show
from toolformer.lm.language_model import LanguageModel
from toolformer.stages import instantiate

POSITION = ["doc_id", "tool", "position"]


@dataclass
class Options(annotate.Options):
    """What is annotated."""

    documents: int = 8
    dtype: str = "bfloat16"
    tools: str = "calculator,calendar"
    k: int = 5


def main(options: Options) -> None:
    config, settings, documents = annotate.configured(options)

    def annotated(dtype: str, size: int) -> pandas.DataFrame:
        model = LanguageModel.from_pretrained(config.model, dtype, config.lm.device)
        annotator = Annotator(model, settings, instantiate.tools(config))
        batches = (documents[start : start + size] for start in range(0, len(documents), size))
        rows = [row for batch in batches for row in annotator.annotate(batch).rows]
        return pandas.DataFrame(rows).astype({"gain": float})

    together, alone = annotated(options.dtype, len(documents)), annotated(options.dtype, 1)
    exact = annotated("float32", len(documents))
    thresholds = {tool.key: tool.filter_threshold for tool in settings}
    kept = [rows[rows["gain"] >= rows["tool"].map(thresholds)] for rows in (together, alone)]
    results = {
        "samples_that_differ": _differ(together, alone, [*POSITION, "sample"]),
        "calls_that_differ": _differ(kept[0], kept[1], [*POSITION, "call"]),
        **_distances("start_probability", together, exact, POSITION),
        **_distances("gain", together, exact, [*POSITION, "call"]),
    }
    known = {name: value for name, value in results.items() if value == value}  # NaN: nothing compared
    show(f"{len(documents)} documents, {len(together)} samples, {config.model}", {}, known)


def _differ(one: pandas.DataFrame, other: pandas.DataFrame, key: list[str]) -> float:
    """The share of all keys whose call differs between the sides or is missing on one."""
    calls = [rows.drop_duplicates(key).set_index(key, drop=False)["call"] for rows in (one, other)]
    first, second = calls[0].align(calls[1])
    return round(float((first != second).mean()), 4)


def _distances(name: str, one: pandas.DataFrame, other: pandas.DataFrame, key: list[str]) -> dict[str, float]:
    """Distances between the values of a column, over the keys that both sides have."""
    values = [rows.drop_duplicates(key).set_index(key)[name] for rows in (one, other)]
    distances = (values[0] - values[1]).abs().dropna()
    return {
        f"{name}_max_difference": round(float(distances.max()), 5),
        f"{name}_median_difference": round(float(distances.median()), 6),
        f"{name}_compared": len(distances),
    }


if __name__ == "__main__":
    run(Options, main)
