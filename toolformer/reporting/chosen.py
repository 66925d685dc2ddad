"""Which of several evaluations, trainings and annotations a report shows, and what it says about the others.

Works on runs as tracking gives them, the newest first. A system's figures are all of one training; asks nothing of a
store and knows no table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolformer.reporting import paper
from toolformer.reporting.cells import SYSTEMS, TASKS, shown_count, title_of
from toolformer.tracking import Run

DEFAULT_K = "10"
DATA = {"toolformer": "augmented", "toolformer_disabled": "augmented", "model_cc": "plain"}
"""What the systems that are trained are trained on; two of them are one model."""
MADE = {"augmented": "Toolformer", "plain": SYSTEMS["model_cc"]}
"""Data -> the name of the model that it makes."""


@dataclass(frozen=True)
class Figure:
    """What a system has on a task, and where from."""

    run: Run
    value: float
    """Percent, or perplexity."""
    fewer: Run | None = None
    """A newer evaluation, passed over because it has fewer examples."""


def measured(run: Run) -> Iterator[tuple[str, float]]:
    """The tasks of an evaluation with their scores or perplexities."""
    for name, value in run.metrics.items():
        task, _, kind = name.rpartition("/")
        if kind in ("score", "perplexity") and "/" not in task:
            yield task, value


def k_of(run: Run) -> str:
    return run.tags.get("decoding.k") or run.params.get("decoding.k", DEFAULT_K)


def is_of_tables(run: Run) -> bool:
    """Whether it measured one of the paper's systems, Toolformer with the paper's k."""
    system = run.tags.get("system", "")
    return system in paper.SYSTEMS and (system != "toolformer" or k_of(run) == DEFAULT_K)


def examples(run: Run, task: str) -> int | None:
    n = run.metrics.get(f"{task}/n")
    return None if n is None else round(n)


def data_of(run: Run) -> str:
    """What the model that an evaluation asked was trained on; empty for one that was not trained here."""
    return DATA.get(run.tags.get("system", ""), "")


def training_of(run: Run) -> str:
    """The id of the training behind an evaluation; empty where it names none."""
    return run.tags.get("lineage.train_run_id", "")


def trainings(runs: Iterable[Run]) -> dict[str, str]:
    """By data, the training whose model has most figures; of several the one measured last."""
    found: dict[str, dict[str, set[tuple[str, str, str]]]] = {}
    for run in runs:
        if data := data_of(run):
            own = found.setdefault(data, {}).setdefault(training_of(run), set())
            own |= {(run.tags["system"], k_of(run), task) for task, _ in measured(run)}
    return {data: max(own, key=lambda one: len(own[one])) for data, own in found.items()}


def of_trainings(runs: Iterable[Run], chosen: Mapping[str, str]) -> list[Run]:
    """The evaluations without those of models from other trainings."""
    return [run for run in runs if not (data := data_of(run)) or training_of(run) == chosen.get(data)]


def figures(runs: Iterable[Run], name: Callable[[Run], str]) -> dict[tuple[str, str], Figure]:
    """By `name` and task, the evaluation with most examples, of equal ones the newest. Nameless ones are left out."""
    found: dict[tuple[str, str], Figure] = {}
    for run in runs:
        for task, value in measured(run) if name(run) else ():
            key = (name(run), task)
            shown = found.get(key)
            if shown is None:
                found[key] = Figure(run, value)
            elif (examples(run, task) or 0) > (examples(shown.run, task) or 0):
                found[key] = Figure(run, value, shown.fewer or shown.run)
    return found


def of_tables(runs: Iterable[Run]) -> dict[tuple[str, str], Figure]:
    """By system and task."""
    return figures(runs, lambda run: run.tags["system"] if is_of_tables(run) else "")


def sizes(
    runs: Sequence[Run], models: Mapping[str, str]
) -> tuple[dict[tuple[str, str, str], Figure], dict[str, float]]:
    """The figures of every model of known size, each of one training, and the sizes."""
    found: dict[tuple[str, str, str], Figure] = {}
    known: dict[str, float] = {}
    for model in dict.fromkeys(models[run.run_id] for run in runs):
        own = [run for run in runs if models[run.run_id] == model]
        told = [run.metrics["parameters"] for run in own if run.metrics.get("parameters")]
        size = next(iter(told), None) or paper.PARAMETERS.get(model.rpartition("/")[2])
        if model and size:
            known[model] = size
            of_one = of_trainings(own, trainings(own))
            for (system, task), one in of_tables(of_one).items():
                found[model, system, task] = one
    return found, {model: size for model, size in known.items() if model in {one for one, _, _ in found}}


def dataset_behind(
    chosen: Mapping[str, str], runs: Sequence[Run], trained: Mapping[str, Run]
) -> dict[str, str]:
    """By data, the annotation that the chosen training read, by the training or by what its evaluations say."""
    found: dict[str, str] = {}
    for data, train_id in chosen.items():
        told = [trained[train_id]] if train_id in trained else []
        told += [run for run in runs if data_of(run) == data and training_of(run) == train_id]
        ids = [run.tags.get("lineage.dataset_run_id", "") for run in told]
        found[data] = next((one for one in ids if one), "")
    return found


def remarks(
    runs: Sequence[Run],
    shown: Mapping[tuple[str, str], Figure],
    chosen: Mapping[str, str],
    trained: Mapping[str, Run],
    datasets: Mapping[str, str],
) -> Iterator[str]:
    """A sentence for everything that the tables mix or leave out.

    `runs` are all evaluations of the tables' model, `trained` the trainings that the store still has, by id.
    """
    for data, train_id in chosen.items():
        others = sorted({training_of(run) for run in runs if data_of(run) == data} - {train_id})
        if others:
            yield (
                f"The figures of {MADE[data]} are all of the model of {_training(train_id)}, which has most of them; "
                f"{_listed(map(_training, others))} {'was' if len(others) == 1 else 'were'} evaluated too and "
                "left out of the tables."
            )
        if train_id and train_id not in trained:
            yield (
                f"Train run {train_id[:8]}, which made {MADE[data]}, is gone: neither its cost nor its curves are shown."
            )
    if len({one for one in datasets.values() if one}) > 1:
        read = _listed(f"{MADE[data]} on that of {one[:8]}" for data, one in datasets.items())
        yield f"The models were trained on different annotations: {read}."
    smaller = [(system, task, one) for (system, task), one in shown.items() if one.fewer]
    for system, task, one in smaller:
        assert one.fewer is not None
        yield (
            f"{SYSTEMS[system]} on {TASKS.get(task, task)}: shown are the {shown_count(examples(one.run, task))} "
            f"examples of run {one.run.run_id[:8]}; the newer run {one.fewer.run_id[:8]} has only "
            f"{shown_count(examples(one.fewer, task))}."
        )
    if uneven := uneven_tasks({key: examples(one.run, key[1]) for key, one in shown.items()}):
        yield (
            f"Not all systems were asked the same number of examples on {_listed(TASKS.get(task, task) for task in uneven)}: "
            "no figure is bold there. The table of significance pairs those that are the same."
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
