"""The commands that fill what is missing, so that their figures stand beside those that are shown.

Knows neither Hydra nor a store; what makes a command like a run is in `words`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from toolformer.reporting.evidence import Evidence
from toolformer.reporting.words import quoted


def stage_command(evidence: Evidence, stage: str, *overrides: str) -> str:
    """The command of a stage as the shown runs were made, so that its run stands beside them."""
    words = stage.split()
    return shlex.join(["toolformer", *words, *evidence.overrides, *overrides])


def train_command(evidence: Evidence, data: str) -> str:
    reads = evidence.reads.get("dataset")
    words = [f"data={data}", *([f"dataset={quoted(reads)}"] if reads else []), *evidence.recipe]
    return stage_command(evidence, "train", *words)


def annotation_command(evidence: Evidence, tools: Sequence[str]) -> str:
    """The commands that show an annotation with these tools: the one shown is behind the scores, so that they follow it."""
    if not evidence.annotation:
        return stage_command(evidence, "generate")
    with_tools = f"tools=[{','.join(tools)}]"
    steps = [stage_command(evidence, "generate", with_tools)]
    measured: dict[str, list[str]] = {}
    for system, task in evidence.scores:
        if system in ("toolformer", "toolformer_disabled"):
            measured.setdefault(system, []).append(task)
    if measured:
        steps.append(stage_command(evidence, "train", "data=augmented", with_tools, *evidence.recipe))
    for system, tasks in measured.items():
        asked = f"benchmarks=[{','.join(tasks)}]"
        steps.append(stage_command(evidence, "evaluate", f"system={system}", asked, with_tools))
    return " && ".join(steps)


def evaluation_command(
    evidence: Evidence, system: str, tasks: Sequence[str], *more: str, stage: str = "evaluate"
) -> str:
    """The command, or commands, that measure a system: what it is made of comes first where it is missing."""
    steps, reads = [], ""
    if system != "model":
        data = "plain" if system == "model_cc" else "augmented"
        if not evidence.annotation:
            steps.append(stage_command(evidence, "generate"))
        if data not in evidence.trained:
            steps.append(train_command(evidence, data))
        reads = evidence.reads.get(data, "")
    words = [
        f"system={system}",
        *([f"checkpoint={quoted(reads)}"] if reads else []),
        f"benchmarks=[{','.join(tasks)}]",
    ]
    return " && ".join([*steps, stage_command(evidence, stage, *words, *more)])
