"""What every policy of when a call starts comes to on a benchmark, read off traced decodes, and which is best."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from toolformer.decoding.trace import NO_OTHERS, Trace
from toolformer.statistics.paired import mcnemar
from toolformer.statistics.power import LEVEL, holm

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
    by_tool: Mapping[str, float]
    """The values of tools that have their own."""
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


def point(
    examples: Sequence[Example], policy: str, value: float, by_tool: Mapping[str, float] = NO_OTHERS
) -> Point:
    """A policy with its value and those of tools with their own, measured on examples.

    ValueError without examples, or if the value is out of the traces' reach.
    """
    numbers = [example.trace.number(policy, value, by_tool) for example in examples]
    chosen = [one.trace.completions[number] for one, number in zip(examples, numbers, strict=True)]
    scores = np.array([one.scores[number] for one, number in zip(examples, numbers, strict=True)])
    without = np.array([example.scores[0] for example in examples])
    return Point(
        policy,
        value,
        by_tool,
        len(examples),
        float(scores.mean()),
        float(without.mean()),
        sum(bool(completion.calls) for completion in chosen),
        int((scores > without).sum()),
        int((scores < without).sum()),
        sum(max(example.scores) > example.scores[0] for example in examples),
        float(np.mean([completion.tokens for completion in chosen])),
    )


def points(drawn: Mapping[str, Sequence[Example]], *policy: Any) -> dict[str, Point]:
    """`point` on each of several benchmarks, `policy` as there: by itself, its value, those of tools."""
    return corrected({task: point(examples, *policy) for task, examples in drawn.items()})


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


Chosen = tuple[str, float, dict[str, float]]
"""A policy, its value, and those of tools that have their own."""


def choose(
    drawn: Mapping[str, Sequence[Example]], grid: Mapping[str, Sequence[float]], tools: Sequence[str] = ()
) -> Chosen:
    """The policy and value with the best mean score over benchmarks that harms none; of equal ones that with fewest calls.

    A benchmark is harmed where its score is significantly below that without calls (McNemar, Holm over benchmarks).
    Top-k with k = 0 never harms, so there is always one. From the best value of each policy each of `tools` gets one of its
    own, one after the other, for as long as that makes it better.
    """

    def merit(choice: Chosen) -> tuple[float, float]:
        found = {task: point(examples, *choice) for task, examples in drawn.items()}
        below = [task for task, one in found.items() if one.score < one.disabled and one.p_value < LEVEL]
        if below and any(corrected(found)[task].p_holm < LEVEL for task in below):
            return -np.inf, 0.0
        ends = found.values()
        return float(np.mean([one.score for one in ends])), -float(
            np.mean([one.calls / one.n for one in ends])
        )

    # `max` keeps the first of equal ones.
    best: list[Chosen] = []
    for policy, several in grid.items():
        chosen: Chosen = max(((policy, value, {}) for value in several), key=merit)
        if tools and chosen[:2] == ("topk", 0.0):  # k = 0 is no tool's call; here one may yet have its own
            chosen = "topk", 1.0, dict.fromkeys(tools, 0.0)
        before = None
        while tools and chosen != before:
            before = chosen
            for tool in tools:
                _, value, own = chosen
                chosen = max([chosen, *((policy, value, own | {tool: each}) for each in several)], key=merit)
        best.append(chosen)
    policy, value, own = max(best, key=merit)
    return policy, value, {tool: each for tool, each in own.items() if each != value}
