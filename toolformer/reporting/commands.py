"""The commands that fill what is missing, so that their figures stand beside those that are shown.

Knows how a command line reads a value, but neither Hydra nor a store.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolformer.credentials import MASK
from toolformer.reporting.evidence import Evidence
from toolformer.tracking import Run

PLACES = ("corpus.path", "heldout.path", "paths.data_dir", "paths.tasks_dir")
LIMITS = ("evaluation.limit", "evaluation.perplexity_limit", "decoding.min_new_tokens")
CORPORA = ("corpus.", "heldout.")
CARRIED = ("seed", "tools", *CORPORA, "decoding.", "evaluation.limit", "evaluation.perplexity_limit")
"""Keys, and with a dot beginnings of keys, that a further run has to share with those that are shown."""
RECIPE = ("trainer.",)
SWEPT = ("decoding.k",)
"""Keys that a command sets itself where it needs to."""
_UNSET = ("null", "0", "''")


def overrides_like(
    runs: Iterable[Run], model: str = "", composed: Mapping[str, str] | None = None
) -> list[str]:
    """What makes a further run like the first of these that logged a configuration: its model (or `model`), data and limits.

    `composed` is what a command composes to without these words, flat as runs log it; what is as there is left out.
    """
    params = next((run.params for run in runs if run.params.get("model")), {})
    words = {"model": model or params.get("model", "")}
    words |= {key: params[key] for key in PLACES if params.get(key, "null") not in _UNSET}
    if composed is None:
        words |= {key: params[key] for key in LIMITS if params.get(key, "null") not in _UNSET}
        for part in CORPORA:
            if f"{part}path" in words:
                words |= {key: value for key, value in params.items() if key.startswith(part)}
        return [f"{key}={_written(value)}" for key, value in words.items() if value and _is_whole(value)]
    written = [f"{key}={_written(value)}" for key, value in words.items() if value and _is_whole(value)]
    return [*written, *(word for word in differing(params, composed, CARRIED) if word not in written)]


def differing(
    params: Mapping[str, str], composed: Mapping[str, str], keys: Sequence[str] = RECIPE
) -> Iterator[str]:
    """The words that make of a composed configuration that of a run, as far as these keys go."""
    for key, value in params.items():
        wanted = key in keys or any(key.startswith(one) for one in keys if one.endswith("."))
        if not wanted or key in SWEPT or value == composed.get(key, value) or not _is_whole(value):
            continue
        if key == "tools" and not all(f"tool.{tool}.name" in composed for tool in _listed(value)):
            continue  # tools of one's own are known only where their sources are named
        yield f"{key}={_written(value)}"


def places_of_figure_4(params: Mapping[str, str], composed: Mapping[str, str] | None) -> list[str]:
    """What the command of Figure 4 needs to know of data; `DIR` where the runs read none of their own."""
    words: list[str] = []
    for part in CORPORA:
        path = params.get(f"{part}path", "null")
        if path in _UNSET:
            words.append(f"{part}path=DIR")
        else:
            words += differing(params, composed, (part,)) if composed else [f"{part}path={_written(path)}"]
    folders = (key for key in PLACES if key.startswith("paths.") and params.get(key, "null") not in _UNSET)
    return [*words, *(f"{key}={_written(params[key])}" for key in folders)]


def _is_whole(value: str) -> bool:
    """Whether a logged value is neither cut nor masked."""
    return "…" not in value and value != MASK


def _listed(value: str) -> list[str]:
    try:
        found = json.loads(value)
    except ValueError:
        return []
    return [str(one) for one in found] if isinstance(found, list) else []


def _written(value: str) -> str:
    """A logged value as a command line has it."""
    if value.startswith("[") and (listed := _listed(value)):
        return f"[{','.join(map(quoted, listed))}]"
    return value if value in ("''", "[]") else quoted(value)


def stage_command(evidence: Evidence, stage: str, *overrides: str) -> str:
    """The command of a stage as the shown runs were made, so that its run stands beside them."""
    words = stage.split()
    return shlex.join(["toolformer", *words, *evidence.overrides, *overrides])


def quoted(value: str) -> str:
    """A value of an override as Hydra's grammar reads it back."""
    # An id such as 5123e678 would be read as a number.
    if re.fullmatch(r"[\w./+-][\w./:+-]*", value, re.ASCII) and not re.fullmatch(r"\d+[eE]\d+", value):
        return value
    # Backslashes stand for themselves, but before a quote.
    return '"' + re.sub(r'(\\*)("|\Z)', lambda one: one[1] * 2 + ('\\"' if one[2] else ""), value) + '"'


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
