"""Which of several evaluations, trainings and annotations a report shows; what it says about the others is in `remarks`.

Works on runs as tracking gives them, the newest first. A system's figures are all of one training; asks nothing of a
store and knows no table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks import GROUPS
from benchmarks.figures import FAULTS
from toolformer.reporting import paper
from toolformer.reporting.cells import SYSTEMS
from toolformer.reporting.grammar import listed
from toolformer.tracking import Run

DEFAULT_K = "10"
FIGURE4 = "figure4"
"""The experiment of Figure 4."""
DRAWN = frozenset((*GROUPS["lama"], *GROUPS["math"], *GROUPS["qa"]))
"""The benchmarks of Figure 4."""
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
    passed: Run | None = None
    """Another evaluation, passed over: a newer one of fewer examples, or one in which tools broke down."""


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


def faults(run: Run, task: str) -> int:
    """Answers that were given while a tool, or the server of the model, was broken down."""
    return round(run.metrics.get(f"{task}/{FAULTS}", 0))


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
    """By `name` and task, of the evaluations without a fault the one with most examples, of equal ones the newest.

    One with faults only where there is no other. Nameless ones are left out.
    """
    found: dict[tuple[str, str], Figure] = {}
    for run in runs:
        for task, value in measured(run) if name(run) else ():
            key = (name(run), task)
            shown = found.get(key)
            if shown is None:
                found[key] = Figure(run, value)
            elif _worth(run, task) > _worth(shown.run, task):
                found[key] = Figure(run, value, shown.passed or shown.run)
            elif not shown.passed and not faults(shown.run, task) and faults(run, task):
                found[key] = replace(shown, passed=run)
    return found


def _worth(run: Run, task: str) -> tuple[bool, int]:
    return not faults(run, task), examples(run, task) or 0


def of_tables(runs: Iterable[Run]) -> dict[tuple[str, str], Figure]:
    """By system and task."""
    return figures(runs, lambda run: run.tags["system"] if is_of_tables(run) else "")


def by_k(runs: Iterable[Run]) -> dict[tuple[int, str], Figure]:
    """Toolformer's, by k and task."""
    found = figures(
        (run for run in runs if run.tags.get("decoding.k", "").isdecimal()),
        lambda run: run.tags["decoding.k"] if run.tags.get("system") == "toolformer" else "",
    )
    return {(int(k), task): one for (k, task), one in found.items()}


@dataclass(frozen=True)
class Sizes:
    """What Figure 4 draws from."""

    figures: Mapping[tuple[str, str, str], Figure]
    """By model, system and task; of trained systems all with the same tools."""
    parameters: Mapping[str, float]
    """Of these models."""
    tools: frozenset[str] = frozenset()
    left: Mapping[str, frozenset[frozenset[str]]] = field(default_factory=dict)
    """By model, the other tools that it was evaluated with, where the figure is one of several models."""


def sizes(runs: Sequence[Run], models: Mapping[str, str]) -> Sizes:
    """The figures of every model of known size, each of one training, all trained ones with the same tools.

    These are the tools of the experiment of Figure 4 where it was run, else those with most figures.
    """
    known = _known_sizes(runs, models)
    counted = [run for run in runs if models[run.run_id] in known and _in_figure_4(run)]
    own = [run for run in counted if run.tags.get("experiment") == FIGURE4]
    measured_with: dict[frozenset[str], set[tuple[str, str, str]]] = {}
    for run in own or counted:
        found = measured_with.setdefault(tools_of(run), set())
        found |= {(models[run.run_id], run.tags["system"], task) for task, _ in measured(run)}
    tools = max(measured_with, key=lambda one: len(measured_with[one]), default=frozenset())
    alike = [run for run in runs if not data_of(run) or data_of(run) == "plain" or tools_of(run) == tools]
    drawn: dict[tuple[str, str, str], Figure] = {}
    for model in known:
        of_model = [run for run in alike if models[run.run_id] == model]
        of_figure = [run for run in of_model if run.tags.get("experiment") == FIGURE4]
        one_training = of_trainings(of_model, trainings(of_model) | trainings(of_figure))
        drawn |= {(model, *key): one for key, one in of_tables(one_training).items()}
    left: dict[str, frozenset[frozenset[str]]] = {}
    for run in counted if len({models[run.run_id] for run in counted}) > 1 else ():
        if tools_of(run) != tools:
            left[models[run.run_id]] = left.get(models[run.run_id], frozenset()) | {tools_of(run)}
    shown = {model for model, _, _ in drawn}
    return Sizes(drawn, {model: size for model, size in known.items() if model in shown}, tools, left)


def _known_sizes(runs: Sequence[Run], models: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for model in dict.fromkeys(models[run.run_id] for run in runs):
        own = (run.metrics.get("parameters") for run in runs if models[run.run_id] == model)
        size = next((one for one in own if one), None) or paper.PARAMETERS.get(model.rpartition("/")[2])
        if model and size:
            found[model] = size
    return found


def _in_figure_4(run: Run) -> bool:
    """Whether an evaluation has a figure that Figure 4 may draw."""
    tasks = {task for task, _ in measured(run)}
    return data_of(run) == "augmented" and is_of_tables(run) and not tasks.isdisjoint(DRAWN)


def tools_of(run: Run) -> frozenset[str]:
    """The tools of an evaluation; none where it logged none."""
    return frozenset(listed(run.params.get("tools", "[]")))


def dataset_behind(
    chosen: Mapping[str, str], runs: Sequence[Run], trained: Mapping[str, Run]
) -> dict[str, str]:
    """By data, the annotation that the training read, by itself (`trained`, those that are shown) or its evaluations."""
    found: dict[str, str] = {}
    for data in dict.fromkeys([*chosen, *trained]):
        told = [trained[data]] if data in trained else []
        told += [run for run in runs if data_of(run) == data and training_of(run) == chosen.get(data)]
        ids = [run.tags.get("lineage.dataset_run_id", "") for run in told]
        found[data] = next((one for one in ids if one), "")
    return found
