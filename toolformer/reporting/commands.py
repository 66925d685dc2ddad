"""The commands that fill what is missing, so that their figures stand beside those that are shown.

Knows how a command line reads a value, but neither Hydra nor a store.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from toolformer.reporting.evidence import Evidence
from toolformer.tracking import Run

PLACES = ("corpus.path", "heldout.path", "paths.data_dir", "paths.tasks_dir")
LIMITS = ("evaluation.limit", "evaluation.perplexity_limit", "decoding.min_new_tokens")
_UNSET = ("null", "0", "''")


def overrides_like(runs: Iterable[Run], model: str = "") -> list[str]:
    """What makes a further run like the first of these that logged a configuration: its model (or `model`), data and limits."""
    params = next((run.params for run in runs if run.params.get("model")), {})
    words = {"model": model or params.get("model", "")}
    words |= {key: params[key] for key in (*PLACES, *LIMITS) if params.get(key, "null") not in _UNSET}
    return [f"{key}={quoted(value)}" for key, value in words.items() if value and "…" not in value]


def stage_command(evidence: Evidence, stage: str, *overrides: str) -> str:
    """The command of a stage as the shown runs were made, so that its run stands beside them."""
    words = stage.split()
    return shlex.join(["toolformer", *words, *evidence.overrides, *overrides])


def quoted(value: str) -> str:
    """A value of an override as Hydra's grammar reads it back."""
    if re.fullmatch(r"[\w./+-][\w./:+-]*", value, re.ASCII):
        return value
    # Backslashes stand for themselves, but before a quote.
    return '"' + re.sub(r'(\\*)("|\Z)', lambda one: one[1] * 2 + ('\\"' if one[2] else ""), value) + '"'


def train_command(evidence: Evidence, data: str) -> str:
    reads = evidence.reads.get("dataset")
    return stage_command(evidence, "train", f"data={data}", *([f"dataset={reads}"] if reads else []))


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
        *([f"checkpoint={reads}"] if reads else []),
        f"benchmarks=[{','.join(tasks)}]",
    ]
    return " && ".join([*steps, stage_command(evidence, stage, *words, *more)])
