"""What a report says about what it mixes or leaves out, in sentences. Knows no store and no table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolformer.reporting.cells import TASKS, listing, shown_count, title_of
from toolformer.reporting.chosen import MADE, Figure, Sizes, data_of, examples, faults, training_of
from toolformer.reporting.evidence import Curve
from toolformer.tracking import Run


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
                f"{listing(map(_training, others))} {'was' if len(others) == 1 else 'were'} evaluated too and "
                "left out of the tables."
            )
        if train_id in lost:
            yield (
                f"Train run {train_id[:8]}, which made {MADE[data]}, {lost[train_id]}: neither its cost nor its curves "
                "are shown."
            )
    if len({one for one in datasets.values() if one}) > 1:
        read = listing(
            f"{MADE.get(data, data)} on that of {one[:8]}" for data, one in datasets.items() if one
        )
        yield f"The models were trained on different annotations: {read}."
    if uneven := uneven_tasks({key: examples(one.run, key[1]) for key, one in shown.items()}):
        yield (
            f"Not all systems were asked the same number of examples on {listing(TASKS.get(task, task) for task in uneven)}: "
            "no figure is bold there. The table of significance pairs those that are the same."
        )


def passed_over(figures: Iterable[tuple[str, str, Figure]]) -> Iterator[str]:
    """A sentence for every shown figure (its system's name, and its task) in whose place another run might stand."""
    for name, task, one in figures:
        if one.passed:
            why = (
                f"run {one.passed.run_id[:8]} is left out, in which {_broken(one.passed, task)}"
                if faults(one.passed, task)
                else f"the newer run {one.passed.run_id[:8]} has only {shown_count(examples(one.passed, task))}"
            )
            yield (
                f"{name} on {title_of(task)}: shown are the {shown_count(examples(one.run, task))} examples of run "
                f"{one.run.run_id[:8]}; {why}."
            )


def broken(figures: Iterable[tuple[str, str, Run]]) -> Iterator[str]:
    """A sentence for every shown figure (its system's name, task and run) whose tools broke down."""
    for name, task, run in figures:
        if faults(run, task):
            yield f"{name} on {title_of(task)}: in run {run.run_id[:8]} {_broken(run, task)}, which count as they are."


def _broken(run: Run, task: str) -> str:
    n = faults(run, task)
    return f"{shown_count(n)} of {shown_count(examples(run, task))} answers met a fault (a tool or a server that broke down)"


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
        others = listing(
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
            f"Not all systems were asked the same examples on {listing(map(title_of, tasks))}, though as many: no figure "
            "is bold there. The table of significance pairs those that are the same."
        )


def other_questions_by_k(asked_otherwise: Iterable[str], uneven: Sequence[str]) -> Iterator[str]:
    """A sentence on the tasks of which Table 9 has as many questions for each k, but not the same."""
    if tasks := sorted(set(asked_otherwise) - set(uneven)):
        yield (
            f"Not all k were asked the same examples on {listing(map(title_of, tasks))}, though as many: no figure of "
            "Table 9 is bold there."
        )


def uneven_tasks(sizes: Mapping[tuple[str, str], int | None]) -> list[str]:
    """The tasks on which systems have different numbers of examples; `sizes` by system and task."""
    found: dict[str, set[int | None]] = {}
    for (_, task), n in sizes.items():
        found.setdefault(task, set()).add(n)
    return [task for task in [*TASKS, *sorted(set(found) - set(TASKS))] if len(found.get(task, ())) > 1]


def _training(train_id: str) -> str:
    return f"train run {train_id[:8]}" if train_id else "an unknown training"
