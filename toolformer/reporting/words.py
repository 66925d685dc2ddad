"""What a command is told so that it does as a run did: words in the grammar of Hydra's overrides, from the run's parameters.

Knows how a command line reads a value, but neither Hydra nor a store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolformer.credentials import MASK
from toolformer.tracking import Run


@dataclass(frozen=True)
class Conf:
    """What the words of a command compose to, and the names that they can have."""

    composed: Callable[..., Mapping[str, str]]
    """By words, the configuration, flat as runs log it."""
    experiments: Collection[str] = ()
    settings: Collection[str] = ()


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


def quoted(value: str) -> str:
    """A value of an override as Hydra's grammar reads it back."""
    # An id such as 5123e678 would be read as a number.
    if re.fullmatch(r"[\w./+-][\w./:+-]*", value, re.ASCII) and not re.fullmatch(r"\d+[eE]\d+", value):
        return value
    # Backslashes stand for themselves, but before a quote.
    return '"' + re.sub(r'(\\*)("|\Z)', lambda one: one[1] * 2 + ('\\"' if one[2] else ""), value) + '"'
