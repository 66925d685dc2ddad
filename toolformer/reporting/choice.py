"""The runs that a report is made of: what `chosen` decides, of the runs that the store has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolformer.errors import UserError
from toolformer.reporting import chosen, lineage
from toolformer.reporting.chosen import Figure, Sizes, measured
from toolformer.reporting.lineage import Annotated, Lineage
from toolformer.reporting.samples import baseline_names
from toolformer.tracking import Run, Tracker
from toolformer.tracking.run import newest_first


@dataclass(frozen=True)
class Finished:
    """The finished runs of an experiment, or all, the newest first."""

    generated: Sequence[Run]
    trained: Sequence[Run]
    evaluated: Sequence[Run]
    further: Sequence[Run]
    """Evaluations that count in Figure 4 alone."""


def finished(tracker: Tracker, experiment: str | None) -> Finished:
    """What the store has.

    Raises:
        UserError: no finished run is of this experiment.
    """
    tags = {"experiment": experiment} if experiment else {}
    generated, trained, evaluated = (
        tracker.runs(stage, **tags) for stage in ("generate", "train", "evaluate")
    )
    if experiment and not (generated or trained or evaluated):
        raise UserError(
            f"no finished run is of the experiment {experiment}: run a stage with name={experiment}, or name another"
        )
    own_is_all = experiment in (None, chosen.FIGURE4)
    further = [] if own_is_all else tracker.runs("evaluate", experiment=chosen.FIGURE4)
    return Finished(generated, trained, evaluated, further)


@dataclass(frozen=True)
class Choice:
    """The runs that count."""

    models: Mapping[str, str]
    """The model that each evaluation's system is made of, by the evaluation's id."""
    model: str
    """That of the tables."""
    evaluated: set[str]
    """The models of all evaluations, without those that count in Figure 4 alone."""
    asked: Sequence[Run]
    """The evaluations of this model, and of baselines."""
    behind: Mapping[str, str]
    """By data, the id of the training behind the figures; empty where evaluations name none."""
    shown: Mapping[tuple[str, str], Figure]
    """By system and task."""
    swept: Mapping[tuple[int, str], Figure]
    """Toolformer's, by k and task."""
    baselines: Mapping[tuple[str, str], Figure]
    """By name and task."""
    sizes: Sizes
    trainings: Mapping[str, Run]
    """Those that are shown and found, by data."""
    datasets: Mapping[str, str]
    """By data, the id of the annotation that the training read."""
    annotated: Annotated


def choose(runs: Finished, known: Lineage) -> Choice:
    """Which runs count; trainings and annotations that they name are looked up."""
    every = newest_first([*runs.evaluated, *runs.further])
    models = lineage.models(every, known)
    model = _main_model(runs.evaluated, models)
    asked = [run for run in runs.evaluated if run.tags.get("baseline") or models[run.run_id] == model]
    behind = chosen.trainings(asked)
    counted = chosen.of_trainings(asked, behind)
    names = baseline_names(counted)
    trainings = lineage.trainings(behind, known, runs.trained, model)
    datasets = chosen.dataset_behind(behind, asked, trainings)
    dataset = next((datasets[data] for data in ("augmented", "plain") if datasets.get(data)), "")
    return Choice(
        models,
        model,
        {models[run.run_id] for run in runs.evaluated},
        asked,
        behind,
        shown=chosen.of_tables(counted),
        swept=chosen.by_k(counted),
        baselines=chosen.figures(counted, lambda run: names.get(run.run_id, "")),
        sizes=chosen.sizes(every, models),
        trainings=trainings,
        datasets=datasets,
        annotated=lineage.annotated(known, dataset, runs.generated),
    )


def _main_model(evaluated: Sequence[Run], models: Mapping[str, str]) -> str:
    """The model with the most figures, of several the one measured last."""
    found: dict[tuple[str, str, str], None] = {}  # in order, the newest first
    for run in evaluated:
        if not run.tags.get("baseline"):
            for task, _ in measured(run):
                found.setdefault((models[run.run_id], run.tags.get("system", ""), task))
    counted = Counter(model for model, _, _ in found).most_common(1)
    return counted[0][0] if counted else ""
