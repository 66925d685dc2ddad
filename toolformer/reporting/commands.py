"""The commands that fill what is missing, so that their figures stand beside those that are shown.

Knows neither Hydra nor a store; what makes a command like a run is in `words`.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence

from benchmarks import GROUPS
from toolformer.reporting.evidence import Evidence
from toolformer.reporting.grammar import absent, key_of, quoted
from toolformer.reporting.layout import Footnote
from toolformer.reporting.words import (
    CORPORA,
    LIMITS,
    PERPLEXITY_LIMITS,
    SAMPLES,
    is_rule_of_annotation,
    limits_of,
)
from toolformer.unread import UNREAD, is_below


class Command(str):
    """A command line, and what it lacks to do as the shown runs did."""

    lacks: tuple[tuple[str, str], ...] = ()
    """(key, id of the run that has it) of values that no word can say."""
    steps: tuple[Command, ...] = ()
    """Those that it joins, if it does."""


def footnote(mark: str, text: str, command: str = "") -> Footnote:
    """A footnote whose text, up to its colon, names what its command lacks."""
    by_run: dict[str, list[str]] = {}
    for key, run_id in command.lacks if isinstance(command, Command) else ():
        by_run.setdefault(run_id[:8], []).append(key)
    lacks = "".join(f", with {' and '.join(keys)} as in run {run_id}" for run_id, keys in by_run.items())
    return Footnote(mark, f"{text.removesuffix(':')}{lacks}:" if lacks else text, command)


def stage_command(evidence: Evidence, stage: str, *overrides: str) -> Command:
    """The command of a stage as the shown runs were made, so that its run stands beside them."""
    return _command(stage, evidence.overrides, *overrides)


def figure_4_command(evidence: Evidence) -> Command:
    """The command of all stages of Figure 4."""
    return _command("run", ["experiment=figure4", *evidence.places])


def _command(stage: str, like: Iterable[str], *overrides: str) -> Command:
    name, *flags = stage.split()
    set_here = {key_of(word) for word in overrides}
    words = [*_told(name, [word for word in like if key_of(word) not in set_here]), *overrides]
    said = [word for word in words if not absent(word)]
    return _lacking(shlex.join(["toolformer", name, *flags, *said]), filter(None, map(absent, words)))


def _lacking(line: str, lacks: Iterable[tuple[str, str]]) -> Command:
    made = Command(line)
    made.lacks = tuple(dict.fromkeys(lacks))
    return made


def _told(stage: str, words: Sequence[str]) -> list[str]:
    """The words on what a stage reads."""
    added = {_place(word) for word in words if word.startswith("+tool@")}
    told = [word for word in words if _is_read(stage, _place(word), added)]
    empty = {one for one in added if not any(_place(word).startswith(f"{one}.") for word in told)}
    return [word for word in told if _place(word) not in empty]


def _is_read(stage: str, place: str, added: Collection[str]) -> bool:
    if is_below(place, CORPORA):
        return True  # no stage begins without knowing both
    if stage == "train" and added and is_below(place, tuple(added)):
        return not is_rule_of_annotation(place)  # nor with a tool that is not there
    return not is_below(place, UNREAD.get(stage, ()))


def _place(word: str) -> str:
    """What a word sets or chooses, from the top of the configuration."""
    key = key_of(word)
    return key.partition("@")[2] or key


def joined(commands: Iterable[Command]) -> Command:
    """Several commands as one, each of their steps once."""
    steps = tuple(dict.fromkeys(step for one in commands for step in one.steps or (one,)))
    made = _lacking(" && ".join(steps), (lack for step in steps for lack in step.lacks))
    made.steps = steps
    return made


def train_command(evidence: Evidence, data: str) -> Command:
    reads = evidence.reads.get("dataset")
    words = [f"data={data}", *([f"dataset={quoted(reads)}"] if reads else []), *evidence.recipe]
    return stage_command(evidence, "train", *words)


def annotation_command(evidence: Evidence, tools: Sequence[str]) -> Command:
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
        steps += _evaluations(evidence, "evaluate", [f"system={system}"], tasks, with_tools)
    return joined(steps)


def evaluation_command(
    evidence: Evidence,
    systems: str | Sequence[str],
    tasks: Sequence[str],
    *more: str,
    stage: str = "evaluate",
) -> Command:
    """The command, or commands, that measure systems: what they are made of comes first where it is missing."""
    steps: list[Command] = []
    for system in [systems] if isinstance(systems, str) else systems:
        words = [f"system={system}"]
        if system != "model":
            data = "plain" if system == "model_cc" else "augmented"
            if not evidence.annotation:
                steps.append(stage_command(evidence, "generate"))
            if data not in evidence.trained:
                steps.append(train_command(evidence, data))
            if reads := evidence.reads.get(data, ""):
                words.append(f"checkpoint={quoted(reads)}")
        steps += _evaluations(evidence, stage, words, tasks, *more)
    return joined(steps)


def _evaluations(
    evidence: Evidence, stage: str, words: Sequence[str], tasks: Sequence[str], *more: str
) -> Iterator[Command]:
    """A command for the benchmarks of each limit."""
    like = [word for word in evidence.overrides if key_of(word) not in (*LIMITS, *PERPLEXITY_LIMITS)]
    for own, limits in _by_limit(evidence, tasks):
        yield _command(stage, [*like, *limits], *words, f"benchmarks=[{','.join(own)}]", *more)


def _by_limit(evidence: Evidence, tasks: Sequence[str]) -> list[tuple[Sequence[str], Sequence[str]]]:
    """The benchmarks by the limit of the runs in their columns, with its words; together where one command has all limits."""
    parts: dict[tuple[str, ...], list[str]] = {}
    samples = any(key_of(word) == SAMPLES for word in evidence.overrides)
    for task in (one for name in tasks for one in GROUPS.get(name, (name,))):
        keys = limits_of(task, samples)
        usual = tuple(word for word in evidence.overrides if key_of(word) in keys)
        parts.setdefault((limits_of(task)[0], *evidence.limits.get(task, usual)), []).append(task)
    read = [key for key, *_ in parts]
    # Both kinds of benchmarks read some keys alike; each has one that it alone reads.
    alike = {tuple(word for word in words if key_of(word) != key) for key, *words in parts}
    if len(read) == len(set(read)) and len(alike) == 1:
        return [(tasks, list(dict.fromkeys(word for _, *words in parts for word in words)))]
    return [(own, words) for (_, *words), own in parts.items()]
