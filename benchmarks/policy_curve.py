"""What every policy of when a call starts comes to on a benchmark, read off traced decodes, and which is best."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.paired import mcnemar
from benchmarks.power import LEVEL, holm
from toolformer.decoding.trace import Trace

POINTS = 40
"""Values of a policy that are looked at, at most."""


@dataclass(frozen=True)
class Example:
    """An example's answers under every policy."""

    id: str
    trace: Trace
    scores: Sequence[float]
    """In percent, of `trace.completions`: the first is that without a call."""


@dataclass(frozen=True)
class Point:
    """A policy with a value on `n` examples of a benchmark.

    A call helps where the score with it is higher than that without one, and harms where it is lower.
    """

    policy: str
    value: float
    n: int
    score: float
    """Mean, in percent."""
    disabled: float
    """The same without calls."""
    calls: int
    """Examples with an executed call."""
    helped: int
    harmed: int
    needed: int
    """Examples that a call at one of the traced places helps."""
    tokens: float
    """Mean tokens that the model wrote, without those of calls that were taken back."""
    p_holm: float = 1.0
    """`p_value` corrected for the number of benchmarks (Holm), by `points`."""

    @property
    def figures(self) -> dict[str, float]:
        """By name, what there is to say of it; shares from 0 to 1, left out where they are of nothing."""
        shares = {
            "call_share": (self.calls, self.n),
            "precision": (self.helped, self.calls),
            "recall": (self.helped, self.needed),
            "harm_rate": (self.harmed, self.calls),
        }
        found = {"score": self.score, "disabled": self.disabled, "tokens": self.tokens}
        return found | {name: part / whole for name, (part, whole) in shares.items() if whole}

    @property
    def p_value(self) -> float:
        """Two-sided exact McNemar against no calls."""
        return mcnemar(self.harmed, self.helped)


def point(examples: Sequence[Example], policy: str, value: float) -> Point:
    """A policy with a value, measured on examples.

    Raises:
        ValueError: no examples, or the value is out of the traces' reach.
    """
    chosen = [example.trace.under(policy, value) for example in examples]
    scores = np.array([example.scores[example.trace.number(policy, value)] for example in examples])
    without = np.array([example.scores[0] for example in examples])
    return Point(
        policy,
        value,
        len(examples),
        float(scores.mean()),
        float(without.mean()),
        sum(bool(completion.calls) for completion in chosen),
        int((scores > without).sum()),
        int((scores < without).sum()),
        sum(max(example.scores) > example.scores[0] for example in examples),
        float(np.mean([completion.tokens for completion in chosen])),
    )


def points(drawn: Mapping[str, Sequence[Example]], policy: str, value: float) -> dict[str, Point]:
    """A policy with a value, measured on the examples of each of several benchmarks; raises as `point`."""
    return corrected({task: point(examples, policy, value) for task, examples in drawn.items()})


def corrected(found: Mapping[str, Point]) -> dict[str, Point]:
    """A point of each benchmark with its p corrected for their number (Holm)."""
    p_holm = zip(found, holm([one.p_value for one in found.values()]), strict=True)
    return {task: replace(found[task], p_holm=1.0 if p is None else p) for task, p in p_holm}


def values(examples: Sequence[Example], policy: str, limit: float) -> list[float]:
    """The values of a policy up to its limit that tell answers apart, the strictest first.

    Every k; of biases and thresholds those halfway between two places, evenly thinned to `POINTS`, and the limit.
    """
    if policy == "topk":
        return [float(k) for k in range(int(limit) + 1)]
    seen = {one.trace.measures[policy][place] for one in examples for place in one.trace.called}
    strict = sorted(seen, reverse=policy == "threshold")
    cuts = [sum(pair) / 2 for pair in itertools.pairwise(strict)]
    within = [cut for cut in cuts if (cut > limit if policy == "threshold" else cut < limit)]
    kept = np.linspace(0, len(within) - 1, min(len(within), POINTS - 1)).round().astype(int)
    return [*(within[n] for n in kept), limit]


def choose(drawn: Mapping[str, Sequence[Example]], grid: Mapping[str, Sequence[float]]) -> tuple[str, float]:
    """The policy and value with the best mean score over benchmarks that harms none; of equal ones that with fewest calls.

    A benchmark is harmed where its score is significantly below that without calls (McNemar, Holm over benchmarks).
    Top-k with k = 0 never harms, so there is always one.
    """
    best, chosen = (-np.inf, 0.0), ("topk", 0.0)
    for policy, several in grid.items():
        for value in several:
            found = points(drawn, policy, value).values()
            if any(one.score < one.disabled and one.p_holm < LEVEL for one in found):
                continue
            merit = (
                float(np.mean([one.score for one in found])),
                -float(np.mean([one.calls / one.n for one in found])),
            )
            if merit > best:
                best, chosen = merit, (policy, value)
    return chosen
