"""The figures of a task beside its score: how often tools were called, scores with and without a call, speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolformer.evaluation.suite import TaskResult

Sample = Mapping[str, Any]
FAULTS = "n_faults"
"""Figure: examples answered without a tool, or not at all, since it (or the model's server) broke down."""

GOLD_NATS = "gold_nats"
"""Figure, and column of samples: −log p of the gold answer, given the prompt and the result of the call, if any."""
MOST_FAMILIES = 10
"""Families of questions that a benchmark may have for each to get a score of its own."""


def figures(result: TaskResult, tool_keys: Mapping[str, str] | None = None) -> dict[str, float]:
    """A task's figures by name (docs/benchmarks.md lists them); what was not measured is left out.

    `tool_keys` gives the configuration key of a tool by its name in a call; scores are percent, shares 0 to 1.
    AC and NC are the examples with and without an executed call (paper, table 9).
    """
    interval, samples = result.interval, result.samples
    measure = "perplexity" if result.is_perplexity else "score"
    found: dict[str, float] = {
        measure: interval.value,
        "ci_low": interval.low,
        "ci_high": interval.high,
        "n": interval.n,
        **speed(samples),
    }
    if result.is_perplexity:
        return found | {name: other.value for name, other in result.others.items()}
    if gold := result.gold_nats:
        found |= {GOLD_NATS: gold.value, f"{GOLD_NATS}/ci_low": gold.low, f"{GOLD_NATS}/ci_high": gold.high}
    cut = [sample["prompt_cut"] for sample in samples]
    if None not in cut:
        found["n_cut"] = sum(tokens > 0 for tokens in cut)
    keys = tool_keys or {}
    called = [sample for sample in samples if sample["tool"]]
    uncalled = [sample for sample in samples if not sample["tool"]]
    found |= {"call_share": len(called) / interval.n, "n_ac": len(called), "n_nc": len(uncalled)}
    found |= _score("score_ac", called) | _score("score_nc", uncalled)
    families = sorted({sample["family"] for sample in samples if sample["family"]})
    for family in families if len(families) <= MOST_FAMILIES else ():
        found |= _score(f"score/{family}", [sample for sample in samples if sample["family"] == family])
    # An example with several calls (decoding.max_calls) counts once for each of its tools.
    for name, count in sorted(Counter(name for sample in called for name in set(sample["tools"])).items()):
        key = keys.get(name, name)
        found |= {f"call_share/{key}": count / interval.n, f"n_ac/{key}": count}
        found |= _score(f"score_ac/{key}", [sample for sample in called if name in sample["tools"]])
    reasons = [(sample["failed"], sample["fault"]) for sample in samples if sample["failed"]]
    failed = Counter(reason for reason, fault in reasons if not fault)
    faults = Counter(reason for reason, fault in reasons if fault)
    found |= {"failed_share": failed.total() / interval.n, "n_failed": failed.total()}
    found |= {f"n_failed/{reason}": count for reason, count in sorted(failed.items())}
    return found | {FAULTS: faults.total()} | {f"{FAULTS}/{one}": n for one, n in sorted(faults.items())}


def speed(samples: Sequence[Sample]) -> dict[str, float]:
    """Seconds, and examples and tokens a second, over the samples whose time was measured.

    Times are kept with the answers, so that they are right for an evaluation that was interrupted.
    """
    timed = [sample for sample in samples if sample["seconds"] is not None]
    seconds = sum(sample["seconds"] for sample in timed)
    if not timed or seconds <= 0:
        return {}
    found = {"seconds": seconds, "examples_per_second": len(timed) / seconds}
    tokens = [sample["tokens"] for sample in timed]
    return found if None in tokens else found | {"tokens_per_second": sum(tokens) / seconds}


def _score(name: str, samples: Sequence[Sample]) -> dict[str, float]:
    return {name: sum(sample["score"] for sample in samples) / len(samples)} if samples else {}
