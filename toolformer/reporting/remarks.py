"""What a report says about what it mixes or leaves out, in sentences. Knows no store and no table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolformer.reporting.cells import SYSTEMS, TASKS, shown_count, title_of
from toolformer.reporting.chosen import MADE, Figure, Sizes, data_of, examples, faults, training_of
from toolformer.reporting.evidence import Curve
from toolformer.reporting.words import deciding
from toolformer.tracking import Run

_NAMED = 4
"""Settings that are named of those that differ."""
_LONGEST = 60
"""Characters of a setting's value."""


def remarks(
    runs: Sequence[Run],
    shown: Mapping[tuple[str, str], Figure],
    chosen: Mapping[str, str],
    lost: Mapping[str, str],
    datasets: Mapping[str, str],
) -> Iterator[str]:
    """A sentence for everything that the tables mix or leave out.

    `runs` are all evaluations of the tables' model, `lost` says by id what became of trainings that are not found.
    """
    for data, train_id in chosen.items():
        others = sorted({training_of(run) for run in runs if data_of(run) == data} - {train_id})
        if others:
            yield (
                f"The figures of {MADE[data]} are all of the model of {_training(train_id)}, which has most of them; "
                f"{_listed(map(_training, others))} {'was' if len(others) == 1 else 'were'} evaluated too and "
                "left out of the tables."
            )
        if train_id in lost:
            yield (
                f"Train run {train_id[:8]}, which made {MADE[data]}, {lost[train_id]}: neither its cost nor its curves "
                "are shown."
            )
    if len({one for one in datasets.values() if one}) > 1:
        read = _listed(f"{MADE[data]} on that of {one[:8]}" for data, one in datasets.items())
        yield f"The models were trained on different annotations: {read}."
    for (system, task), one in shown.items():
        if one.passed:
            why = (
                f"run {one.passed.run_id[:8]} is left out, in which {_broken(one.passed, task)}"
                if faults(one.passed, task)
                else f"the newer run {one.passed.run_id[:8]} has only {shown_count(examples(one.passed, task))}"
            )
            yield (
                f"{SYSTEMS[system]} on {title_of(task)}: shown are the {shown_count(examples(one.run, task))} "
                f"examples of run {one.run.run_id[:8]}; {why}."
            )
    yield from _settings(shown)
    if uneven := uneven_tasks({key: examples(one.run, key[1]) for key, one in shown.items()}):
        yield (
            f"Not all systems were asked the same number of examples on {_listed(TASKS.get(task, task) for task in uneven)}: "
            "no figure is bold there. The table of significance pairs those that are the same."
        )


def broken(figures: Iterable[tuple[str, str, Run]]) -> Iterator[str]:
    """A sentence for every shown figure (its system's name, task and run) whose tools broke down."""
    for name, task, run in figures:
        if faults(run, task):
            yield f"{name} on {title_of(task)}: in run {run.run_id[:8]} {_broken(run, task)}, which count as they are."


def _broken(run: Run, task: str) -> str:
    n = faults(run, task)
    return f"{shown_count(n)} of {shown_count(examples(run, task))} answers met a fault (a tool or a server that broke down)"


def _settings(shown: Mapping[tuple[str, str], Figure]) -> Iterator[str]:
    """A sentence for every system whose figures were measured with different settings."""
    for system, name in SYSTEMS.items():
        runs = {task: one.run for (own, task), one in shown.items() if own == system}
        values: dict[str, dict[str, list[str]]] = {}
        for task, run in runs.items():
            for key in deciding(run.params, tools=system == "toolformer"):
                if not (key.startswith("decoding.") and task.endswith("perplexity")):
                    values.setdefault(key, {}).setdefault(run.params[key], []).append(title_of(task))
        differ = [key for key, by_value in values.items() if len(by_value) > 1]
        if differ:
            said = [
                f"{key} is " + _listed(f"{_cut(value)} on {_listed(on)}" for value, on in values[key].items())
                for key in differ[:_NAMED]
            ]
            more = f"; {len(differ) - _NAMED} further settings differ" if len(differ) > _NAMED else ""
            yield f"The figures of {name} were not all measured alike: {'; '.join(said)}{more}."


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"


def other_models(model: str, models: set[str], in_figure: set[str]) -> Iterator[str]:
    """What is said of measured models that are not the tables'; Figure 4 may draw some of them."""
    rest = models - {model, ""}
    for others, where in (
        (rest & in_figure, ": Figure 4"),
        (rest - in_figure, ", and left out of the tables"),
    ):
        if others:
            yield (
                f"The tables of scores are of {model}, which has the most figures; {', '.join(sorted(others))} "
                f"{'were' if len(others) > 1 else 'was'} measured too{where}."
            )


def tools_of_figure_4(sizes: Sizes) -> Iterator[str]:
    """What is said of evaluations that Figure 4 leaves out for their tools."""
    if sizes.left:
        others = _listed(
            f"{model} with {' or '.join(sorted(map(_tools, left)))}"
            for model, left in sorted(sizes.left.items())
        )
        yield f"Figure 4 has only evaluations with {_tools(sizes.tools)}; left out of it: {others}."


def _tools(tools: frozenset[str]) -> str:
    return ", ".join(sorted(tools)) or "tools unknown"


def without_curves(trainings: Mapping[str, Run], curves: Mapping[str, Sequence[Curve]]) -> Iterator[str]:
    """A sentence for each training that the figure of training lacks, where it shows another one."""
    for data, run in trainings.items():
        if not curves.get(data) and any(curves.values()):
            yield (
                f"The curves of {MADE.get(data, data)} ({_training(run.run_id)}) are not to be had: the training has one "
                "step, or its store does not give them."
            )


def other_questions(asked_otherwise: Iterable[str], uneven: Sequence[str]) -> Iterator[str]:
    """A sentence on the tasks of which systems were asked as many questions, but not the same."""
    left = set(asked_otherwise) - set(uneven)
    if tasks := [task for task in (*TASKS, *sorted(left - set(TASKS))) if task in left]:
        yield (
            f"Not all systems were asked the same examples on {_listed(map(title_of, tasks))}, though as many: no figure "
            "is bold there. The table of significance pairs those that are the same."
        )


def uneven_tasks(sizes: Mapping[tuple[str, str], int | None]) -> list[str]:
    """The tasks on which systems have different numbers of examples; `sizes` by system and task."""
    found: dict[str, set[int | None]] = {}
    for (_, task), n in sizes.items():
        found.setdefault(task, set()).add(n)
    return [task for task in [*TASKS, *sorted(set(found) - set(TASKS))] if len(found.get(task, ())) > 1]


def _training(train_id: str) -> str:
    return f"train run {train_id[:8]}" if train_id else "an unknown training"


def _listed(words: Iterable[str]) -> str:
    found = list(words)
    return ", ".join(found[:-1]) + f" and {found[-1]}" if len(found) > 1 else "".join(found)
