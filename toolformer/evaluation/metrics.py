"""Metrics of a task beside its score: how often tools were called, scores with and without a call, speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolformer.evaluation.suite import TaskResult

Sample = Mapping[str, Any]
FAULTS = "n_faults"
"""Metric: examples whose tool, or whose model's server, failed."""

GOLD_NATS = "gold_nats"
"""Metric, and column of samples: −log p of the gold answer, given the prompt and the result of the call, if any."""
COUNTED = ("results_begun", "results_cut", "calls_in_calls")
"""Columns of samples whose sums are metrics, with `n_` before the name: calls, as `Completion` counts them."""
MOST_FAMILIES = 10
"""Families get separate scores in benchmarks with at most this many."""


def count_faults(tasks: Mapping[str, Mapping[str, float]]) -> Counter[str]:
    """How many answers met a fault, by reason, from the metrics of an evaluation's benchmarks."""
    counts: Counter[str] = Counter()
    for metrics in tasks.values():
        for name, count in metrics.items():
            if name.startswith(f"{FAULTS}/"):
                counts[name.removeprefix(f"{FAULTS}/")] += int(count)
    return counts


def task_metrics(result: TaskResult, tool_keys: Mapping[str, str] | None = None) -> dict[str, float]:
    """The metrics of a task by name, as docs/benchmarks.md lists them, without those that were not measured.

    `tool_keys` gives the configuration key of a tool by its name in a call; scores are percent, shares 0 to 1.
    AC and NC are the examples with and without an executed call (paper, table 9).
    """
    interval, samples = result.interval, result.samples
    measure = "perplexity" if result.is_perplexity else "score"
    metrics: dict[str, float] = {
        measure: interval.value,
        "ci_low": interval.low,
        "ci_high": interval.high,
        "n": interval.n,
        **speed(samples),
    }
    if result.is_perplexity:
        return metrics | {name: perplexity.value for name, perplexity in result.perplexities.items()}
    if gold := result.gold_nats:
        metrics |= {GOLD_NATS: gold.value, f"{GOLD_NATS}/ci_low": gold.low, f"{GOLD_NATS}/ci_high": gold.high}
    cut = [sample["prompt_cut"] for sample in samples]
    if None not in cut:
        metrics["n_cut"] = sum(tokens > 0 for tokens in cut)
    keys = tool_keys or {}
    called = [sample for sample in samples if sample["tool"]]
    uncalled = [sample for sample in samples if not sample["tool"]]
    metrics |= {"call_share": len(called) / interval.n, "n_ac": len(called), "n_nc": len(uncalled)}
    metrics |= _score("score_ac", called) | _score("score_nc", uncalled)
    families = sorted({sample["family"] for sample in samples if sample["family"]})
    for family in families if len(families) <= MOST_FAMILIES else ():
        metrics |= _score(f"score/{family}", [sample for sample in samples if sample["family"] == family])
    # An example with several calls (decoding.max_calls) counts once for each of its tools.
    for name, count in sorted(Counter(name for sample in called for name in set(sample["tools"])).items()):
        key = keys.get(name, name)
        metrics |= {f"call_share/{key}": count / interval.n, f"n_ac/{key}": count}
        metrics |= _score(f"score_ac/{key}", [sample for sample in called if name in sample["tools"]])
    reasons = [(sample["failed"], sample["fault"]) for sample in samples if sample["failed"]]
    failed = Counter(reason for reason, fault in reasons if not fault)
    faults = Counter(reason for reason, fault in reasons if fault)
    metrics |= {
        "failed_share": failed.total() / interval.n,
        "n_failed": failed.total(),
        FAULTS: faults.total(),
    }
    for name in COUNTED:
        counts = [sample[name] for sample in samples]
        if None not in counts:
            metrics[f"n_{name}"] = sum(counts)
    metrics |= {f"n_failed/{reason}": count for reason, count in sorted(failed.items())}
    return metrics | {f"{FAULTS}/{reason}": count for reason, count in sorted(faults.items())}


def speed(samples: Sequence[Sample]) -> dict[str, float]:
    """Seconds, examples per second and tokens per second, over the samples whose time was measured.

    Times are stored with the answers: an interrupted evaluation has them all.
    """
    timed = [sample for sample in samples if sample["seconds"] is not None]
    seconds = sum(sample["seconds"] for sample in timed)
    if not timed or seconds <= 0:
        return {}
    metrics = {"seconds": seconds, "examples_per_second": len(timed) / seconds}
    tokens = [sample["tokens"] for sample in timed]
    return metrics if None in tokens else metrics | {"tokens_per_second": sum(tokens) / seconds}


def _score(name: str, samples: Sequence[Sample]) -> dict[str, float]:
    return {name: sum(sample["score"] for sample in samples) / len(samples)} if samples else {}
