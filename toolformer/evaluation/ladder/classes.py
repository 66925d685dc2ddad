"""Why an answer is right or wrong: one class per example, from its answers under the oracle conditions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CLASSES = {
    "right_without_need": "call not needed",
    "helped": "helped",
    "did_not_call": "did not call",
    "wrong_tool": "wrong tool",
    "wrong_input": "wrong input",
    "tool_failed": "tool failed",
    "result_unused": "result unused",
    "harmed": "harmed",
    "out_of_reach": "wrong under every oracle",
}
"""Titles in tables by names in metrics."""

RUNGS = {
    "own": "as it is",
    "free": "calls forbidden",
    "forced": "forced call",
    "gold_input": "gold input",
    "gold_result": "gold result",
    "gold_passage": "gold passage",
}
"""Titles in tables by names in metrics."""


@dataclass(frozen=True)
class Rungs:
    """The results of one example under the oracle conditions; None where the data has no oracle.

    The example's call is the one that the model made, or else the one that it makes when a call is forced.
    """

    own: bool
    """Right without an oracle."""
    free: bool
    """Right with calls forbidden."""
    called: bool
    """Made a call that was executed."""
    rolled_back: bool
    """Began a call without a result: malformed, unfinished, or rejected by its tool."""
    forced: bool
    """Right if a call is started at the best position, and the model writes tool and input."""
    gold_input: bool | None
    """Right after the right call with the tool's answer."""
    gold_result: bool
    """Right after the right call with the right answer."""
    gold_passage: bool | None
    """Right after the right call with a passage that contains the answer."""
    other_tool: bool
    """Its call is to a tool that cannot answer; false without a call."""
    right_input: bool
    """Its call is to a tool that can answer, with the right input."""
    used: bool
    """Its call's result contains the answer, or the same call makes another condition right."""
    answered: bool
    """The tool answers the right call rightly."""


def classify(rungs: Rungs) -> str:
    """The class of an example, a key of `CLASSES`: the first line of the table in docs/ladder.md that applies."""
    if rungs.own:
        return "right_without_need" if rungs.free else "helped"
    if rungs.free:
        return "harmed"
    if not (rungs.forced or rungs.gold_input or rungs.gold_result or rungs.gold_passage):
        return "out_of_reach"
    if rungs.forced and not rungs.called:
        return "wrong_input" if rungs.rolled_back else "did_not_call"
    # A better call makes it right: the forced one, or the right input; where the data has none, the right result.
    if rungs.forced or (rungs.gold_result if rungs.gold_input is None else rungs.gold_input):
        if rungs.other_tool:
            return "wrong_tool"
        return "result_unused" if rungs.used else "tool_failed" if rungs.right_input else "wrong_input"
    # Only a better result makes it right.
    return "result_unused" if rungs.used or rungs.answered else "tool_failed"


def metrics_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """n, how many examples have each class, and by condition the percent right and of how many."""
    counts = Counter(row["class"] for row in rows)
    metrics: dict[str, float] = {"n": len(rows), **{f"class/{name}": counts[name] for name in CLASSES}}
    for rung in RUNGS:
        if right := [row[f"{rung}_right"] for row in rows if row[f"{rung}_right"] is not None]:
            metrics |= {f"rung/{rung}": 100 * sum(right) / len(right), f"rung_n/{rung}": len(right)}
    return metrics
