"""Whether figures that stand beside each other were measured alike; what differs, in sentences. Knows no store and no table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from toolformer.reporting.cells import SYSTEMS, listing, title_of
from toolformer.reporting.chosen import Figure
from toolformer.reporting.words import deciding
from toolformer.tracking import Run

_NAMED = 4
"""Settings that are named of those that differ."""
_LONGEST = 60
"""Characters of a setting's value."""
_OF_CALLS = ("decoding.max_calls", "decoding.max_call_tokens", "decoding.max_result_tokens")


def within_rows(shown: Mapping[tuple[str, str], Figure]) -> Iterator[str]:
    """A sentence for every system whose figures were measured with different settings; `shown` by system and task."""
    for system, name in SYSTEMS.items():
        if differ := _differing(
            (title_of(task), one.run, _keys(one.run, task, system == "toolformer"))
            for (own, task), one in shown.items()
            if own == system
        ):
            yield f"The figures of {name} were not all measured alike: {differ}."


def within_columns(
    shown: Mapping[tuple[str, str], Figure], baselines: Mapping[tuple[str, str], Figure]
) -> Iterator[str]:
    """A sentence for the benchmarks on which systems were measured with settings that decide answers without a call."""
    columns: dict[str, list[tuple[str, Run, list[str]]]] = {}
    for figures in (shown, baselines):
        for (system, task), one in figures.items():
            keys = _keys(one.run, task, False)
            columns.setdefault(task, []).append((SYSTEMS.get(system, system), one.run, keys))
    for differ, tasks in _together({task: _differing(column) for task, column in columns.items()}):
        yield f"Not all systems were measured alike on {tasks}: {differ}."


def along_k(swept: Mapping[tuple[int, str], Figure]) -> Iterator[str]:
    """A sentence for the benchmarks on which Table 9 has different settings besides k; `swept` by k and task."""
    columns: dict[str, list[tuple[str, Run, list[str]]]] = {}
    for (k, task), one in sorted(swept.items(), key=lambda item: item[0][0]):
        columns.setdefault(task, []).append((f"k = {k}", one.run, _keys(one.run, task, k > 0)))
    for differ, tasks in _together({task: _differing(column) for task, column in columns.items()}):
        yield f"Table 9 has further differences between its rows on {tasks}: {differ}."


def _keys(run: Run, task: str, calls: bool) -> list[str]:
    """The settings that decide the answers of a run, those of calls on demand."""
    unread = ["decoding."] if task.endswith("perplexity") else []
    # An endpoint computes and decodes as it likes.
    unread += ["lm.", "decoding."] if run.tags.get("system") == "endpoint" else []
    unread += [] if calls else _OF_CALLS
    # What `auto` came to is in a run's tag; in that of an older run it is not.
    unread += ["lm.dtype"] if _value(run, "lm.dtype") == "auto" else []
    return [key for key in deciding(run.params, calls) if not key.startswith(tuple(unread))]


def _differing(named: Iterable[tuple[str, Run, Iterable[str]]]) -> str:
    """`KEY is A on X and B on Y` for the keys in which runs differ that have them; empty where they do not."""
    values: dict[str, dict[str, list[str]]] = {}
    for name, run, keys in named:
        for key in keys:
            values.setdefault(key, {}).setdefault(_value(run, key), []).append(name)
    differ = [key for key, by_value in values.items() if len(by_value) > 1]
    said = [
        f"{key} is " + listing(f"{_cut(value)} on {listing(on)}" for value, on in values[key].items())
        for key in differ[:_NAMED]
    ]
    more = f"; {len(differ) - _NAMED} further settings differ" if len(differ) > _NAMED else ""
    return "; ".join(said) + more


def _value(run: Run, key: str) -> str:
    value = run.params.get(key, "")
    return run.tags.get("dtype", value) if key == "lm.dtype" else value


def _together(said: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What is said, and the benchmarks of which it is said alike."""
    tasks: dict[str, list[str]] = {}
    for task, differ in said.items():
        tasks.setdefault(differ, []).append(title_of(task))
    yield from ((differ, listing(names)) for differ, names in tasks.items() if differ)


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"
