"""Time saved and calls missed by a cheaper annotation, against one that scores every call.

    python -m benchmarks.speed.screens tools=[calculator] corpus.limit=200 [KEY=VALUE ...] -- screen.context=16 [KEY=VALUE ...]

The overrides are those of `toolformer generate`; those after `--` make it cheaper. Both annotations are runs under
`paths.root`: they resume, and several cheaper ones can be compared with the same full one. Prints one JSON object on the last
line: the calls that each keeps at τ_f, the share of the full one's that the cheaper one keeps too, the ratio of their kept
calls per minute of annotation, and the largest difference in nats between the gains of a call that both kept. The minutes are
wall time: leave the machine otherwise idle; with OMP_NUM_THREADS=1 they are CPU minutes.
"""

import sys
from collections.abc import Sequence

import pyarrow.parquet as pq

from toolformer.annotation.merge import keep
from toolformer.benchmarks.speed.script import refused_in_one_line, show
from toolformer.calls import linearise
from toolformer.errors import UserError
from toolformer.stages import instantiate
from toolformer.stages.config import compose, validate
from toolformer.stages.generate import generate

Kept = dict[tuple[str, str, int, str], float]
"""Gains by document, tool, position and call."""


def annotate(overrides: Sequence[str]) -> tuple[Kept, float]:
    """The kept calls, and their number per minute of annotation."""
    config = validate(compose("generate", overrides))
    run = generate(config)
    rows = pq.read_table(run.folder / "candidates.parquet").to_pylist()
    thresholds = {key: instantiate.tool_settings(config, key).filter_threshold for key in config.tools}
    kept = {
        (doc_id, call.tool, call.position, linearise(call.call)): call.gain
        for doc_id, calls in keep(rows, thresholds, config.filter.baseline).items()
        for call in calls
    }
    return kept, 60 * len(kept) / run.metrics["annotation_seconds"]


def main(arguments: Sequence[str]) -> None:
    if "--" not in arguments[:-1]:
        raise UserError("after the overrides of both annotations add -- and the overrides of the cheaper one")
    end = arguments.index("--")
    shared, cheaper = arguments[:end], arguments[end + 1 :]
    (every, rate), (cheap, cheap_rate) = annotate(shared), annotate([*shared, *cheaper])
    both = every.keys() & cheap.keys()
    results = {
        "kept": len(every),
        "kept_cheaply": len(cheap),
        "kept_share": round(len(both) / len(every), 4) if every else None,
        "kept_per_minute_ratio": round(cheap_rate / rate, 2) if every else None,
        "largest_gain_difference": max((abs(every[key] - cheap[key]) for key in both), default=None),
    }
    rates = {"all": {"kept calls per minute": rate}, "cheaply": {"kept calls per minute": cheap_rate}}
    show(" ".join(arguments), rates, results)


if __name__ == "__main__":
    with refused_in_one_line():
        main(sys.argv[1:])
