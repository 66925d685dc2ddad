"""What a command is told so that it does as a run did: words in the grammar of Hydra's overrides, from the run's parameters.

Knows how a command line reads a value, but neither Hydra nor a store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from toolformer.credentials import MASK
from toolformer.errors import UserError
from toolformer.tools.keys import ANNOTATING, HANDLING, PATIENCE
from toolformer.tracking import Run


@dataclass(frozen=True)
class Conf:
    """What the words of a command compose to, and the names that they can have."""

    composed: Callable[..., Mapping[str, str]]
    """By words, the configuration, flat as runs log it."""
    experiments: Collection[str] = ()
    settings: Collection[str] = ()
    tools: Collection[str] = ()
    """Configurations of tools, each named by its tool, or by that with a further part."""


def named(experiment: str, conf: Conf | None) -> str:
    """The word that puts a run of any stage into the report of this name: an experiment or a setting where one goes by it."""
    for group, known in (("experiment", conf.experiments), ("setting", conf.settings)) if conf else ():
        if experiment in known:
            found = conf.composed(f"{group}={experiment}") if conf else {}
            # An experiment that is made of others is no stage's, and many go by the name of their setting.
            if found.get("name") == experiment and found.get("run.experiments", "[]") == "[]":
                return f"{group}={experiment}"
    return f"name={quoted(experiment)}"


PLACES = ("corpus.path", "heldout.path", "paths.data_dir", "paths.tasks_dir")
SAMPLES = "evaluation.samples"
LIMITS = ("evaluation.limit", SAMPLES)
PERPLEXITY_LIMITS = ("evaluation.perplexity_limit", SAMPLES)
"""Keys that say which examples of a benchmark are asked; the first is read by this kind of benchmark alone."""
CORPORA = ("corpus.", "heldout.")
SOURCES = "tool_sources"
RULES = ("propose.", "score.", "filter.", "generate.", "prompts")
"""Keys, and beginnings of keys, that only annotation reads; those of a tool are `keys.ANNOTATING`."""
CARRIED = (
    *("seed", SOURCES, "tools", *CORPORA, "lm.", "tool.", *RULES, "decoding."),
    *(*LIMITS, *PERPLEXITY_LIMITS),
)
"""Keys, and with a dot beginnings of keys, that a further run has to share with those that are shown."""
RECIPE = ("trainer.",)
LEFT = ("decoding.k", "decoding.batch_size", "lm.device")
"""Keys that a command sets itself where it needs to, and those that decide no result."""
_ARGUMENT = re.compile(r"tool\.(\w+)\.(?:implementation|inference)(?:\.(?!\d+(?:\.|$))[^.]+)+$")
_UNSET = ("null", "0", "''")


def key_of(word: str) -> str:
    """The key that an override sets."""
    return word.lstrip("+~").partition("=")[0]


def is_of(key: str, keys: Iterable[str]) -> bool:
    """Whether it is one of these keys, or begins as one of those that end in a dot."""
    return any(key == one or (one.endswith(".") and key.startswith(one)) for one in keys)


def limits_of(task: str, samples: bool = False) -> tuple[str, ...]:
    """The keys that say which examples of a benchmark are asked; `samples` that are named go with no limit of either kind."""
    if samples:
        return (*LIMITS, PERPLEXITY_LIMITS[0])
    return PERPLEXITY_LIMITS if task.endswith("perplexity") else LIMITS


def overrides_like(
    runs: Iterable[Run], model: str = "", composed: Mapping[str, str] | None = None
) -> list[str]:
    """What makes a further run like the first of these that logged a configuration: its model (or `model`), data and limits.

    `composed` is what a command composes to without these words, flat as runs log it; what is as there is left out.
    Without it, what a command composes to is not known, and words say model, places and limits alone.
    """
    params = next((run.params for run in runs if run.params.get("model")), {})
    words = {"model": model or params.get("model", "")}
    words |= {key: params[key] for key in PLACES if params.get(key, "null") not in _UNSET}
    written = [f"{key}={_written(value)}" for key, value in words.items() if value and _is_whole(value)]
    wanted = CARRIED if composed is not None else (*LIMITS, *PERPLEXITY_LIMITS)
    return list(dict.fromkeys([*written, *differing(params, composed or {}, wanted)]))


def limits_by_task(
    shown: Mapping[tuple[str, str], Run], composed: Mapping[str, str] | None
) -> dict[str, tuple[str, ...]]:
    """By task, the words for the limit that most of its runs have, of several the one of most examples.

    `shown` are the runs by system and task; those that logged no configuration say nothing.
    """
    found: dict[str, list[Run]] = {}
    for (_, task), run in shown.items():
        if run.params.get("model"):
            found.setdefault(task, []).append(run)
    limits = {}
    for task, runs in found.items():
        by_size = sorted(runs, key=lambda run: -run.metrics.get(f"{task}/n", 0))
        words = [
            tuple(
                differing(
                    run.params, composed or {}, limits_of(task, run.params.get(SAMPLES, "null") != "null")
                )
            )
            for run in by_size
        ]
        limits[task] = max(words, key=words.count)
    return limits


def differing(
    params: Mapping[str, str], composed: Mapping[str, str], keys: Sequence[str] = RECIPE
) -> Iterator[str]:
    """The words that make of a composed configuration that of a run, as far as these keys go; of tools those in use.

    A key that the composed one lacks is added where arguments of a tool may have any name; elsewhere it is one of older
    runs. With nothing composed, what is set is said.
    """
    tools = listed(params["tools"]) if "tools" in params else None
    own = [key for key in params if is_of(key, keys) and key not in LEFT and not _is_idle(key, tools)]
    for key in own:
        value = params[key]
        if not _is_whole(value) or value == composed.get(key, None if composed else "null"):
            continue
        if key == "tools" and not (
            SOURCES in params or all(f"tool.{one}.name" in composed for one in tools or ())
        ):
            continue  # sources that are no plain list of names are not carried
        if key in composed or not composed:
            yield f"{key}={_written(value)}"
        elif (found := _ARGUMENT.match(key)) and f"tool.{found[1]}.name" in composed:
            yield f"++{key}={_written(value)}"
    gone = (_gone(key, params) for key in composed if is_of(key, keys) and not _is_idle(key, tools))
    for key in dict.fromkeys(one for one in gone if one):
        # Of an older run a new argument is missing too: only another class has others.
        target = f"{key.rpartition('.')[0]}._target_"
        if target in params and params[target] != composed.get(target):
            yield f"~{key}"


def deciding(params: Mapping[str, str], tools: bool) -> Iterator[str]:
    """The keys of an evaluation that decide its answers besides what is asked and of which model; those of tools on demand."""
    used = listed(params.get("tools", "[]")) if tools else []
    for key in params:
        if key in LEFT or _is_idle(key, used) or (key == "tools" and not tools):
            continue
        if is_of(key, ("seed", "tools", "lm.", "tool.", "decoding.")) and not is_rule_of_annotation(key):
            yield key


def is_rule_of_annotation(key: str) -> bool:
    """Whether it is a tool's key that only annotation reads."""
    return key.startswith("tool.") and key.split(".", 2)[2].split(".")[0] in ANNOTATING


def as_annotated(run: Run, annotated: Run | None) -> Run:
    """The run with the corpus and the rules of the annotation: the configuration of a later stage need not name them."""

    def is_told(key: str) -> bool:
        return is_of(key, (CORPORA[0], *RULES)) or is_rule_of_annotation(key)

    told = {key: value for key, value in (annotated.params if annotated else {}).items() if is_told(key)}
    rest = {key: value for key, value in run.params.items() if not (told and is_told(key))}
    return replace(run, params=rest | told)


def _is_idle(key: str, tools: Sequence[str] | None) -> bool:
    """Whether a tool's key decides no result: that of a tool that is not in use, or of how it is called."""
    found = re.match(r"tool\.(\w+)\.(.+)", key)
    return found is not None and (
        (tools is not None and found[1] not in tools) or found[2] in (*HANDLING, *PATIENCE)
    )


def _gone(key: str, params: Mapping[str, str]) -> str:
    """The topmost argument above a key, or itself, of which a run that logged this tool has nothing; empty where it has."""
    found = _ARGUMENT.match(key)
    if not found or f"tool.{found[1]}.name" not in params:
        return ""
    parts = key.split(".")
    above = (".".join(parts[:n]) for n in range(4, len(parts) + 1))
    return next((one for one in above if not any(f"{other}.".startswith(f"{one}.") for other in params)), "")


def chosen_tools(params: Mapping[str, str], conf: Conf, *words: str) -> list[str]:
    """The words that choose for each tool in use the configuration of conf/tool which is nearest to that of a run."""
    composed = conf.composed(*words)
    found = []
    for tool in (one for one in listed(params.get("tools", "[]")) if f"tool.{one}.name" in params):
        nearest, distance = "", _distance(params, composed, tool)
        if any(params.get(key) != value for key, value in composed.items() if _is_target(key, tool)):
            for option in (one for one in conf.tools if one.startswith(f"{tool}_")):
                word = f"tool@tool.{tool}={option}"
                with suppress(UserError):
                    apart = _distance(params, conf.composed(*words, word), tool)
                    nearest, distance = (word, apart) if apart < distance else (nearest, distance)
        found += [nearest] if nearest else []
    return found


def _is_target(key: str, tool: str) -> bool:
    return key.startswith(f"tool.{tool}.") and key.endswith("._target_")


def _distance(params: Mapping[str, str], composed: Mapping[str, str], tool: str) -> int:
    """In how many settings of a tool two configurations differ."""
    first, second = (
        {item for item in one.items() if item[0].startswith(f"tool.{tool}.")} for one in (params, composed)
    )
    return len(first ^ second)


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


def listed(value: str) -> list[str]:
    """A logged list's words; none of what is no list."""
    try:
        found = json.loads(value)
    except ValueError:
        return []
    values = found if isinstance(found, list) else []
    return [one if isinstance(one, str) else json.dumps(one) for one in values]


def _written(value: str) -> str:
    """A logged value as a command line has it."""
    if value.startswith("[") and (found := listed(value)):
        return f"[{','.join(map(quoted, found))}]"
    return value if value in ("''", "[]", "{}") else quoted(value)


def quoted(value: str) -> str:
    """A value of an override as Hydra's grammar reads it back."""
    # An id such as 5123e678 would be read as a number.
    if re.fullmatch(r"[\w./+-][\w./:+-]*", value, re.ASCII) and not re.fullmatch(r"\d+[eE]\d+", value):
        return value
    # Backslashes stand for themselves, but before a quote.
    return '"' + re.sub(r'(\\*)("|\Z)', lambda one: one[1] * 2 + ('\\"' if one[2] else ""), value) + '"'
