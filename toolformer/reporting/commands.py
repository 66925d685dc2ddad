"""The commands that fill what is missing, so that their figures stand beside those that are shown.

Knows neither Hydra nor a store; what makes a command like a run is in `words`.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence

from benchmarks import GROUPS
from toolformer.reporting.chosen import DATA, DEFAULT_K
from toolformer.reporting.evidence import DATASET, Evidence
from toolformer.reporting.grammar import absent, key_of, quoted
from toolformer.reporting.layout import Command
from toolformer.reporting.words import (
    CORPORA,
    LIMITS,
    PERPLEXITY_LIMITS,
    SAMPLES,
    is_rule_of_annotation,
    limits_of,
)
from toolformer.unread import UNREAD, is_below

AWAY = "Not to be had now: the server that has it does not answer."


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
    """The command of a training; where figures are of one that is gone, also those that measure them with the new one."""
    reads = evidence.reads.get(DATASET)
    words = [f"data={data}", *([f"dataset={quoted(reads)}"] if reads else []), *evidence.recipe]
    annotated = evidence.annotation or DATASET in evidence.away
    first = [] if annotated else [stage_command(evidence, "generate")]
    return joined([*first, stage_command(evidence, "train", *words), *_again(evidence, data)])


def _again(evidence: Evidence, data: str, *more: str) -> Iterator[Command]:
    """The commands that measure what was measured of the model trained on this data: with fewer figures than the one
    that is shown, another is not shown."""
    for system in (one for one, made_of in DATA.items() if made_of == data):
        if tasks := [task for one, task in evidence.scores if one == system]:
            yield from _evaluations(evidence, "evaluate", [f"system={system}"], tasks, *more)
    swept: dict[str, list[str]] = {}
    for k, task in sorted(evidence.by_k) if data == DATA["toolformer"] else ():
        if str(k) != DEFAULT_K:
            swept.setdefault(task, []).append(str(k))
    for ks in dict.fromkeys(map(tuple, swept.values())):
        tasks = [task for task, own in swept.items() if tuple(own) == ks]
        words = ["system=toolformer", f"decoding.k={','.join(ks)}"]
        yield from _evaluations(evidence, "evaluate -m", words, tasks, *more)


def no_annotation(evidence: Evidence) -> tuple[str, str]:
    """What is said in place of an annotation, and the command that makes it; that of a silent server is not made again."""
    if DATASET in evidence.away:
        return AWAY, ""
    return "No annotation:", stage_command(evidence, "generate")


def no_training(evidence: Evidence, data: str) -> tuple[str, str]:
    """The same of a training."""
    return (AWAY, "") if data in evidence.away else ("No training:", train_command(evidence, data))


def annotation_command(evidence: Evidence, tools: Sequence[str]) -> Command:
    """The commands that show an annotation with these tools: the one shown is behind the scores, so that they follow it."""
    with_tools = f"tools=[{','.join(tools)}]"
    steps = [stage_command(evidence, "generate", with_tools)]
    for data in dict.fromkeys(DATA.values()):
        measured = list(_again(evidence, data, with_tools))
        if measured or data in evidence.trained:
            steps.append(stage_command(evidence, "train", f"data={data}", with_tools, *evidence.recipe))
            steps += measured
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
            data = DATA[system]
            if data not in evidence.trained and data not in evidence.away:
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
