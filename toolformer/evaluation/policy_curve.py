"""Scores of every policy that decides when a call starts, read off traced decodes, and the choice of the best one."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from toolformer.decoding.trace import NO_OTHERS, Trace
from toolformer.statistics.crossed import LEVEL, holm
from toolformer.statistics.paired import mcnemar

POINTS = 40
"""Most values of a policy that are tried."""


@dataclass(frozen=True)
class Example:
    """An example's answers under every policy."""

    id: str
    trace: Trace
    scores: Sequence[float]
    """Scores in percent of `trace.completions`, of which the first has no call."""


@dataclass(frozen=True)
class Point:
    """A policy with a value on `n` examples of a benchmark.

    A call helps where the score with it is higher than that without one, and harms where it is lower.
    """

    policy: str
    value: float
    by_tool: Mapping[str, float]
    """The values of tools that override `value`."""
    n: int
    score: float
    """Mean, in percent."""
    disabled: float
    """Mean without calls."""
    calls: int
    """Examples with an executed call."""
    helped: int
    harmed: int
    needed: int
    """Examples that a call at one of the traced positions helps."""
    tokens: float
    """Mean tokens that the model wrote, without those of calls that were rolled back."""
    p_holm: float = 1.0
    """`p_value` corrected for the number of benchmarks (Holm), by `points`."""

    @property
    def figures(self) -> dict[str, float]:
        """Metrics by name; shares are 0 to 1, without those whose denominator is 0."""
        shares = {
            "call_share": (self.calls, self.n),
            "precision": (self.helped, self.calls),
            "recall": (self.helped, self.needed),
            "harm_rate": (self.harmed, self.calls),
        }
        means = {"score": self.score, "disabled": self.disabled, "tokens": self.tokens}
        return means | {name: part / whole for name, (part, whole) in shares.items() if whole}

    @property
    def p_value(self) -> float:
        """Two-sided exact McNemar against no calls."""
        return mcnemar(self.harmed, self.helped)


def point(
    examples: Sequence[Example], policy: str, value: float, by_tool: Mapping[str, float] = NO_OTHERS
) -> Point:
    """A policy with its value and those of tools that override it, measured on examples.

    ValueError without examples, or if the traces do not reach the value.
    """
    numbers = [example.trace.number(policy, value, by_tool) for example in examples]
    answered = list(zip(examples, numbers, strict=True))
    chosen = [example.trace.completions[number] for example, number in answered]
    scores = np.array([example.scores[number] for example, number in answered])
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


def points(by_task: Mapping[str, Sequence[Example]], *policy: Any) -> dict[str, Point]:
    """`point` on each of several benchmarks; `policy` has its arguments: the policy, its value, those of tools."""
    return corrected({task: point(examples, *policy) for task, examples in by_task.items()})


def corrected(measured: Mapping[str, Point]) -> dict[str, Point]:
    """One point per benchmark with its p corrected for their number (Holm)."""
    p_holm = zip(measured, holm([at.p_value for at in measured.values()]), strict=True)
    return {task: replace(measured[task], p_holm=1.0 if p is None else p) for task, p in p_holm}


def values(examples: Sequence[Example], policy: str, limit: float) -> list[float]:
    """The values of a policy, up to its limit, that change an answer, from the strictest on.

    Every k; of biases and thresholds those halfway between two positions, evenly thinned to `POINTS`, and the limit.
    """
    if policy == "topk":
        return [float(k) for k in range(int(limit) + 1)]
    seen = {example.trace.measures[policy][n] for example in examples for n in example.trace.called}
    strict = sorted(seen, reverse=policy == "threshold")
    cuts = [sum(pair) / 2 for pair in itertools.pairwise(strict)]
    within = [cut for cut in cuts if (cut > limit if policy == "threshold" else cut < limit)]
    kept = np.linspace(0, len(within) - 1, min(len(within), POINTS - 1)).round().astype(int)
    return [*(within[n] for n in kept), limit]


Chosen = tuple[str, float, dict[str, float]]
"""A policy, its value, and those of tools that override it."""


def choose(
    by_task: Mapping[str, Sequence[Example]], grid: Mapping[str, Sequence[float]], tools: Sequence[str] = ()
) -> Chosen:
    """The policy and value with the best mean score over benchmarks that harms none; of equal ones that with fewest calls.

    A benchmark is harmed where its score is significantly below that without calls (McNemar, Holm over benchmarks).
    Top-k with k = 0 never harms, therefore a choice always exists. From the best value of each policy, each of `tools` gets
    a separate value, one tool after the other, for as long as that is better.
    """

    def merit(choice: Chosen) -> tuple[float, float]:
        measured = {task: point(examples, *choice) for task, examples in by_task.items()}
        lower = [task for task, at in measured.items() if at.score < at.disabled and at.p_value < LEVEL]
        if lower and any(corrected(measured)[task].p_holm < LEVEL for task in lower):
            return -np.inf, 0.0
        scores, calls = zip(*((at.score, at.calls / at.n) for at in measured.values()), strict=True)
        return float(np.mean(scores)), -float(np.mean(calls))

    # `max` keeps the first of equal ones.
    best: list[Chosen] = []
    for policy, candidates in grid.items():
        chosen: Chosen = max(((policy, value, {}) for value in candidates), key=merit)
        if tools and chosen[:2] == (
            "topk",
            0.0,
        ):  # k = 0 allows no call at all; a tool may still be worth one
            chosen = "topk", 1.0, dict.fromkeys(tools, 0.0)
        before = None
        while tools and chosen != before:
            before = chosen
            for tool in tools:
                _, value, by_tool = chosen
                others = ((policy, value, by_tool | {tool: other}) for other in candidates)
                chosen = max([chosen, *others], key=merit)
        best.append(chosen)
    policy, value, by_tool = max(best, key=merit)
    return policy, value, {tool: other for tool, other in by_tool.items() if other != value}
