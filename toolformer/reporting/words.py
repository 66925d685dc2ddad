"""What a command is told so that it does as a run did: words in the grammar of Hydra's overrides, from the run's parameters.

Knows which keys count, but neither Hydra nor a store; how a word is written is in `grammar`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from toolformer.errors import UserError
from toolformer.reporting.grammar import Value, gathered, listed, quoted, word_of, written
from toolformer.tools.keys import ANNOTATING, HANDLING, OF_SOURCES, PATIENCE
from toolformer.tracking import Run
from toolformer.unread import RULES, is_below


@dataclass(frozen=True)
class Conf:
    """What the words of a command compose to, and the names that they can have."""

    composed: Callable[..., Mapping[str, str]]
    """By words, the configuration, flat as runs log it."""
    experiments: Collection[str] = ()
    settings: Collection[str] = ()
    tools: Collection[str] = ()
    """Configurations of tools, each named by its tool, or by that with a further part."""
    places: Sequence[str] = ()
    """The words that say where the runs are, where a command would look elsewhere."""


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
CORPORA = ("corpus", "heldout")
SOURCES = "tool_sources"
CARRIED = (
    *("seed", SOURCES, "tools", *CORPORA, "lm", "tool", *RULES, "decoding"),
    *(*LIMITS, *PERPLEXITY_LIMITS),
)
"""Keys, with all below them, that a further run has to share with those that are shown."""
RECIPE = ("trainer",)
LEFT = ("decoding.k", "decoding.batch_size", "lm.device")
"""Keys that a command sets itself where it needs to, and those that decide no result."""
_RULES_OF_TOOLS = tuple(f"tool.*.{key}" for key in ANNOTATING)
_ARGUMENT = re.compile(r"tool\.(\w+)\.(?:implementation|inference)(?:\.[^.]+)+$")
_UNSET = ("null", "0", "''")


def limits_of(task: str, samples: bool = False) -> tuple[str, ...]:
    """The keys that say which examples of a benchmark are asked; `samples` that are named go with no limit of either kind."""
    if samples:
        return (*LIMITS, PERPLEXITY_LIMITS[0])
    return PERPLEXITY_LIMITS if task.endswith("perplexity") else LIMITS


def overrides_like(
    runs: Iterable[Run],
    model: str = "",
    composed: Mapping[str, str] | None = None,
    annotated: Run | None = None,
) -> list[str]:
    """What makes a further run like the first of these that logged a configuration: its model (or `model`), data and limits.

    `composed` is what a command composes to without these words, flat as runs log it; what is as there is left out.
    Without it, what a command composes to is not known, and words say model, places and limits alone. Corpus and rules
    are those of the annotation, if there is one.
    """
    like = next((run for run in runs if run.params.get("model")), None)
    if like is None:
        return [f"model={quoted(model)}"] if model else []
    params = as_annotated(like, annotated).params

    def run_of(key: str) -> str:
        return annotated.run_id if annotated and annotated.params and _of_annotation(key) else like.run_id

    words = {"model": model or params["model"]}
    words |= {key: params[key] for key in PLACES if params.get(key, "null") not in _UNSET}
    told = [word_of(key, value, run_of(key)) for key, value in words.items()]
    wanted = CARRIED if composed is not None else (*LIMITS, *PERPLEXITY_LIMITS)
    return list(dict.fromkeys([*told, *differing(params, composed or {}, wanted, run_of)]))


def limits_by_task(
    shown: Mapping[tuple[str, str], Run], composed: Mapping[str, str] | None
) -> dict[str, tuple[str, ...]]:
    """By task, the words for the limit that most of its runs have, of several the one of most examples.

    `shown` are the runs by system and task; those that logged no configuration say nothing.
    """
    found: dict[str, list[Run]] = {}
    first: dict[str, str] = {}  # by samples, so that equal ones make equal words
    for (_, task), run in shown.items():
        if run.params.get("model"):
            found.setdefault(task, []).append(run)
            first.setdefault(_samples(run), run.run_id)
    limits = {}
    for task, runs in found.items():
        words = [_limits(run, task, composed or {}, first[_samples(run)])
                 for run in sorted(runs, key=lambda run: -run.metrics.get(f"{task}/n", 0))]  # fmt: skip
        limits[task] = max(words, key=words.count)
    return limits


def _limits(run: Run, task: str, composed: Mapping[str, str], run_id: str) -> tuple[str, ...]:
    keys = limits_of(task, bool(_samples(run)))
    return tuple(differing(run.params, composed, keys, lambda _: run_id))


def _samples(run: Run) -> str:
    """The examples that an evaluation names, as it logged them; empty where it names none."""
    found = gathered(run.params, (SAMPLES,)).get(SAMPLES, "null")
    return "" if found == "null" else str(found)


def differing(
    params: Mapping[str, str],
    composed: Mapping[str, str],
    keys: tuple[str, ...] = RECIPE,
    run_of: Callable[[str], str] = lambda key: "",
) -> Iterator[str]:
    """The words that make of a composed configuration that of a run, as far as these keys go; of tools those in use.

    A key that the composed one lacks is added where arguments of a tool may have any name; elsewhere it is one of older
    runs. With nothing composed, what is set is said. What cannot be written is said to be as in the run of its key.
    """
    tools = listed(params["tools"]) if "tools" in params else None
    ours, theirs = (gathered(one, (SAMPLES,)) for one in (params, composed))
    for key, value in ours.items():
        if not is_below(key, keys) or key in LEFT or _is_idle(key, tools) or _is_of_source(key, ours):
            continue
        if value == theirs.get(key, None if composed else "null"):
            continue
        if key in theirs or not composed:
            yield word_of(key, value, run_of(key))
        elif (found := _ARGUMENT.match(key)) and f"tool.{found[1]}.name" in theirs:
            yield word_of(key, value, run_of(key), plus="++")
    gone = (_gone(key, ours) for key in theirs if is_below(key, keys) and not _is_idle(key, tools))
    for key in dict.fromkeys(one for one in gone if one):
        # Of an older run a new argument is missing too: only another class has others.
        target = f"{key.rpartition('.')[0]}._target_"
        if target in ours and ours[target] != theirs.get(target):
            yield f"~{key}"


def deciding(params: Mapping[str, str], tools: bool) -> Iterator[str]:
    """The keys of an evaluation that decide its answers besides what is asked and of which model; those of tools on demand."""
    used = listed(params.get("tools", "[]")) if tools else []
    for key in params:
        if key in LEFT or _is_idle(key, used) or (key == "tools" and not tools):
            continue
        if is_below(key, ("seed", "tools", "lm", "tool", "decoding")) and not is_rule_of_annotation(key):
            yield key


def is_rule_of_annotation(key: str) -> bool:
    """Whether it is a tool's key that only annotation reads."""
    return is_below(key, _RULES_OF_TOOLS)


def _of_annotation(key: str) -> bool:
    """Whether an annotation says it, and the configuration of a later stage need not."""
    return is_below(key, (CORPORA[0], *RULES, *_RULES_OF_TOOLS))


def as_annotated(run: Run, annotated: Run | None) -> Run:
    """The run with the corpus and the rules of the annotation."""
    told = {
        key: value for key, value in (annotated.params if annotated else {}).items() if _of_annotation(key)
    }
    rest = {key: value for key, value in run.params.items() if not (told and _of_annotation(key))}
    return replace(run, params=rest | told)


def _is_idle(key: str, tools: Sequence[str] | None) -> bool:
    """Whether a tool's key decides no result: that of a tool that is not in use, or of how it is called."""
    found = re.match(r"tool\.(\w+)\.(.+)", key)
    return found is not None and (
        (tools is not None and found[1] not in tools) or found[2] in (*HANDLING, *PATIENCE)
    )


def _is_of_source(key: str, params: Mapping[str, Value]) -> bool:
    """Whether the source that a tool is of says the value of its key."""
    tool, _, rest = key.removeprefix("tool.").partition(".")
    made_of = params.get(f"tool.{tool}.implementation._target_")
    if not key.startswith("tool.") or made_of not in OF_SOURCES or params.get(SOURCES, "[]") == "[]":
        return False
    return rest.startswith("implementation.") or (rest == "name" and params[key] == tool)


def _gone(key: str, params: Mapping[str, Value]) -> str:
    """The topmost argument above a key, or itself, of which a run that logged this tool has nothing; empty where it has."""
    found = _ARGUMENT.match(key)
    if not found or f"tool.{found[1]}.name" not in params:
        return ""
    parts = key.split(".")
    above = (".".join(parts[:n]) for n in range(4, len(parts) + 1))
    return next((one for one in above if not any(f"{other}.".startswith(f"{one}.") for other in params)), "")


def chosen_tools(params: Mapping[str, str], conf: Conf, *words: str) -> list[str]:
    """The words that choose for each tool in use the configuration of conf/tool which is nearest to that of a run.

    One that conf/ does not have is added, so that its keys can be set.
    """
    composed = conf.composed(*words)
    found = []
    for tool in (one for one in listed(params.get("tools", "[]")) if f"tool.{one}.name" in params):
        if f"tool.{tool}.name" not in composed:
            with suppress(UserError):
                conf.composed(*words, f"+tool@tool.{tool}=user")
                found.append(f"+tool@tool.{tool}=user")
            continue
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
        path = params.get(f"{part}.path", "null")
        if path in _UNSET:
            words.append(f"{part}.path=DIR")
        else:
            words += differing(params, composed, (part,)) if composed else [f"{part}.path={written(path)}"]
    folders = {key: params.get(key, "null") for key in PLACES if key.startswith("paths.")}
    words += [f"{key}={written(value)}" for key, value in folders.items() if value not in _UNSET]
    return words if folders["paths.data_dir"] not in _UNSET else [*words, "paths.data_dir=DIR"]
