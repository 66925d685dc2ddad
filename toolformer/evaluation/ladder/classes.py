"""Why an answer is right or wrong: one class of every example, by what its rungs came to."""

from dataclasses import dataclass

CLASSES = {
    "right_without_need": "right without need",
    "helped": "helped",
    "did_not_call": "did not call",
    "wrong_tool": "wrong tool",
    "wrong_input": "wrong input",
    "tool_failed": "tool failed",
    "result_unused": "result unused",
    "harmed": "harmed",
    "out_of_reach": "out of reach",
}
"""By their names in metrics, those in tables."""

RUNGS = {
    "own": "as it is",
    "free": "calls forbidden",
    "forced": "forced call",
    "gold_input": "gold input",
    "gold_result": "gold result",
    "gold_passage": "gold passage",
}
"""By their names in metrics, those in tables."""


@dataclass(frozen=True)
class Rungs:
    """What the rungs of an example came to. None is a rung that the data has nothing for.

    Its call is the one that it made; of an example without one, the one that it makes when a call is forced.
    """

    own: bool
    """Right as it is."""
    free: bool
    """Right with calls forbidden."""
    called: bool
    """Made a call of its own that was executed."""
    taken_back: bool
    """Began a call of its own that gave no result: malformed, not ended, or refused by its tool."""
    forced: bool
    """Right where a call is started at the best place, and the model writes tool and input."""
    gold_input: bool | None
    """Right behind the right call, answered by the tool."""
    gold_result: bool
    """Right behind the right call, answered rightly."""
    gold_passage: bool | None
    """Right behind the right call, answered with a passage that holds the answer."""
    other_tool: bool
    """Its call asks a tool that could not answer; false without a call."""
    right_input: bool
    """Its call asks a tool that could answer, with the right input."""
    used: bool
    """Its call's result holds the answer, or it is the very call that makes another rung right."""
    answered: bool
    """The tool answers the right call rightly."""


def classify(rungs: Rungs) -> str:
    """The class of an example, a key of `CLASSES`: the first line of the table in docs/ladder.md that holds."""
    if rungs.own:
        return "right_without_need" if rungs.free else "helped"
    if rungs.free:
        return "harmed"
    if not (rungs.forced or rungs.gold_input or rungs.gold_result or rungs.gold_passage):
        return "out_of_reach"
    if rungs.forced and not rungs.called:
        return "wrong_input" if rungs.taken_back else "did_not_call"
    # A better call makes it right: the forced one, or the right input; where the data has none, the right result.
    if rungs.forced or (rungs.gold_result if rungs.gold_input is None else rungs.gold_input):
        if rungs.other_tool:
            return "wrong_tool"
        return "result_unused" if rungs.used else "tool_failed" if rungs.right_input else "wrong_input"
    # Only a better result makes it right.
    return "result_unused" if rungs.used or rungs.answered else "tool_failed"
