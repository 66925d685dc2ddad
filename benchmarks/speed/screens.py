"""What a cheaper annotation saves and what it misses, against one that scores every call.

    python -m benchmarks.speed.screens tools=[calculator] corpus.limit=200 [KEY=VALUE ...] -- screen.context=16 [KEY=VALUE ...]

The words are those of `toolformer generate`; those behind `--` make it cheaper. Both annotations are runs under
`paths.root`: they resume, and another cheaper one is compared with the same dear one. Prints one JSON object on the last
line: the calls kept at τ_f by each, the share of the former's that the latter keeps too, kept calls a minute of annotation
with the words over those without, and the largest difference in nats between the gains of a call that both kept. Minutes
are the machine's: leave it nothing else to do, and with OMP_NUM_THREADS=1 they are CPU minutes.
"""

import sys
from collections.abc import Sequence

import pyarrow.parquet as pq

from toolformer.annotation.merge import keep
from toolformer.benchmarks.speed.script import show
from toolformer.calls import linearise
from toolformer.errors import UserError
from toolformer.stages import instantiate
from toolformer.stages.config import compose, validate
from toolformer.stages.generate import generate

Kept = dict[tuple[str, str, int, str], float]
"""Gains by document, tool, position and call."""


def annotated(words: Sequence[str]) -> tuple[Kept, float]:
    """The kept calls, and how many there are a minute."""
    config = validate(compose("generate", words))
    run = generate(config)
    rows = pq.read_table(instantiate.tracker(config).artifact_path(run, "candidates.parquet")).to_pylist()
    thresholds = {key: instantiate.tool_settings(config, key).filter_threshold for key in config.tools}
    kept = {
        (doc_id, call.tool, call.position, linearise(call.call)): call.gain
        for doc_id, calls in keep(rows, thresholds, config.filter.baseline).items()
        for call in calls
    }
    return kept, 60 * len(kept) / run.metrics["annotation_seconds"]


def main(words: Sequence[str]) -> None:
    if "--" not in words or "--" == words[-1]:
        raise UserError("put -- and the words that make it cheaper behind the words of both annotations")
    at = words.index("--")
    (every, rate), (cheap, cheap_rate) = annotated(words[:at]), annotated([*words[:at], *words[at + 1 :]])
    both = every.keys() & cheap.keys()
    figures = {
        "kept": len(every),
        "kept_cheaply": len(cheap),
        "kept_share": round(len(both) / len(every), 4) if every else None,
        "kept_per_minute_ratio": round(cheap_rate / rate, 2) if every else None,
        "largest_gain_difference": max((abs(every[key] - cheap[key]) for key in both), default=None),
    }
    rates = {"all": {"kept calls a minute": rate}, "cheaply": {"kept calls a minute": cheap_rate}}
    show(" ".join(words), rates, figures)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"benchmarks.speed.screens: {error}", file=sys.stderr)
        sys.exit(2)
