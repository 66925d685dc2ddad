"""What a report needs, read from the runs into plain data; the only part of it that knows the tracker.

`chosen` decides which runs count; curves, cost and annotation are those of the runs behind the scores. Nothing is
computed by a model here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from toolformer.errors import UserError
from toolformer.reporting import chosen, remarks
from toolformer.reporting.cells import SYSTEMS
from toolformer.reporting.chosen import measured
from toolformer.reporting.evidence import Evidence, KScore
from toolformer.reporting.figures import drawn
from toolformer.reporting.samples import Fetched, baseline_names, sampled
from toolformer.reporting.significance import asked_otherwise, compare_systems
from toolformer.reporting.stages import (
    annotation_cost,
    annotation_of,
    curves_of,
    note,
    score_of,
    training_cost,
)
from toolformer.reporting.words import (
    Conf,
    as_annotated,
    chosen_tools,
    differing,
    limits_by_task,
    named,
    overrides_like,
    places_of_figure_4,
)
from toolformer.tracking import Run, Tracker
from toolformer.tracking.run import newest_first


def read(
    tracker: Tracker,
    experiment: str | None = None,
    seed: int = 0,
    conf: Conf | None = None,
) -> Evidence:
    """Everything in the store that a report shows, restricted to runs tagged `experiment` if given.

    `seed` decides the resamples behind paired intervals; with `conf` commands carry what the runs have otherwise than what
    their words compose to.

    Raises:
        UserError: no finished run has this tag, or an artifact is gone or cannot be read.
    """
    tags = {"experiment": experiment} if experiment else {}
    generated = tracker.runs("generate", **tags)
    trained = tracker.runs("train", **tags)
    every = tracker.runs("evaluate", **tags)
    own_is_all = experiment in (None, chosen.FIGURE4)
    further = [] if own_is_all else tracker.runs("evaluate", experiment=chosen.FIGURE4)
    if experiment and not (generated or trained or every):
        raise UserError(
            f"no finished run is of the experiment {experiment}: run a stage with name={experiment}, or name another"
        )
    known = {run.run_id: run for run in trained}
    models = _models(tracker, [*every, *further], known)
    model = _main_model(every, models)
    asked = [run for run in every if run.tags.get("baseline") or models[run.run_id] == model]
    behind = chosen.trainings(asked)
    evaluated = chosen.of_trainings(asked, behind)
    shown = chosen.of_tables(evaluated)
    trainings = _trainings(behind, known, trained, model)
    datasets = chosen.dataset_behind(behind, asked, known)
    annotated, said = _annotated(tracker, datasets, generated)
    annotation = annotation_of(tracker, annotated) if annotated else None
    scores = {key: score_of(one.run, key[1], one.value) for key, one in shown.items()}
    sizes = chosen.sizes(newest_first([*every, *further]), models)
    swept, others = chosen.by_k(evaluated), _baselines(evaluated)
    fetched = Fetched(tracker)
    answered = sampled(fetched, every, models, model, behind)
    by_run = {one.run_id: one.files for one in answered}
    baselines = {key: score_of(one.run, key[1], one.value) for key, one in others.items()}
    files, of_others = (
        {
            key: path
            for key, score in found.items()
            if (path := by_run[score.run.run_id].get(key[1])) is not None
        }
        for found in (scores, baselines)
    )
    asked_elsewhere = asked_otherwise(files)
    said_first = [
        *remarks.remarks(asked, shown, behind, known, datasets),
        *remarks.other_questions(
            asked_elsewhere, remarks.uneven_tasks({key: score.n for key, score in scores.items()})
        ),
        *said,
        *remarks.broken((SYSTEMS[system], task, one.run) for (system, task), one in shown.items()),
        *remarks.broken((name, task, one.run) for (name, task), one in others.items()),
        *remarks.broken(
            (f"{SYSTEMS['toolformer']} with k = {k}", task, one.run)
            for (k, task), one in swept.items()
            if str(k) != chosen.DEFAULT_K
        ),
    ]
    own = annotation.run.run_id if annotation else None
    # Of the systems Toolformer's says the most: tools and decoding.
    ordered = sorted(shown, key=lambda key: key[0] != "toolformer")
    patterns = [
        *(shown[key].run for key in ordered),
        *trainings.values(),
        *([annotated] if annotated else []),
    ]
    curves = {data: tuple(curves_of(tracker, run, data)) for data, run in trainings.items()}
    evidence = Evidence(
        experiment,
        annotation,
        scores,
        trained={data: note(run) for data, run in trainings.items()},
        by_k=_by_k(swept),
        baselines=baselines,
        model=model,
        paired=compare_systems(files, seed, baselines=of_others),
        curves=tuple(curve for own in curves.values() for curve in own),
        training={data: training_cost(run) for data, run in trainings.items()},
        sizes={key: score_of(one.run, key[2], one.value) for key, one in sizes.figures.items()},
        parameters=sizes.parameters,
        sampled=answered,
        annotating={data: annotation_cost(tracker, one, annotation) for data, one in datasets.items() if one},
        reads=_reads(tracker, trainings, annotated),
        unread=fetched.unread,
        asked_otherwise=asked_elsewhere,
    )
    evidence = _with_words(evidence, patterns, annotated, shown, trainings, conf)
    in_figure = drawn(evidence)
    behind_ids = {score.run.run_id for score in (*scores.values(), *in_figure.values())}
    parents = _parents(tracker, [run for run in (*every, *further) if run.run_id in behind_ids])
    in_tables = {one.run.run_id for one in shown.values()}
    broken = remarks.broken(
        (f"{SYSTEMS[system]} of {one}", task, sizes.figures[one, system, task].run)
        for one, system, task in in_figure
        if sizes.figures[one, system, task].run.run_id not in in_tables
    )
    elsewhere = remarks.other_models(
        model, {models[run.run_id] for run in every}, {one for one, _, _ in in_figure}
    )
    return replace(
        evidence,
        lineage=tuple(note(run) for run in parents if run.run_id != own),
        remarks=(
            *said_first,
            *(remarks.tools_of_figure_4(sizes) if in_figure else ()),
            *broken,
            *elsewhere,
            *remarks.without_curves(trainings, curves),
        ),
    )


def _with_words(
    evidence: Evidence,
    patterns: Sequence[Run],
    annotated: Run | None,
    shown: Mapping[tuple[str, str], chosen.Figure],
    trainings: Mapping[str, Run],
    conf: Conf | None,
) -> Evidence:
    """The evidence with what commands are told, so that they do as the first of these runs that says how it was made.

    Corpus and rules are those of the annotation.
    """
    like = next((run for run in patterns if run.params.get("model")), None)
    params = as_annotated(like, annotated).params if like else {}
    trained = next((run for run in trainings.values() if run.params.get("model")), None)
    words = [named(evidence.experiment, conf)] if evidence.experiment else []
    words += chosen_tools(params, conf, *words) if conf else []
    composed = conf.composed(*words) if conf else None
    told = overrides_like(patterns, evidence.model, composed, annotated)
    figure_4 = places_of_figure_4(params, conf.composed("experiment=figure4") if conf else None)
    recipe = (
        differing(trained.params, composed, run_of=lambda _: trained.run_id) if trained and composed else ()
    )
    where = conf.places if conf else ()
    return replace(
        evidence,
        overrides=(*words, *told, *where),
        limits=limits_by_task({key: one.run for key, one in shown.items()}, composed),
        places=(*figure_4, *where),
        recipe=tuple(recipe),
    )


def _models(tracker: Tracker, evaluated: Iterable[Run], trainings: dict[str, Run]) -> dict[str, str]:
    """The model that each evaluation's system is made of, by the evaluation's id; adds what it finds to `trainings`."""
    found: dict[str, str] = {}
    for run in evaluated:
        train_id = chosen.training_of(run)
        if train_id and train_id not in trainings:
            with suppress(UserError):  # deleted since
                trainings[train_id] = tracker.get(train_id)
        made_of = trainings.get(train_id, run)
        found[run.run_id] = "" if run.tags.get("baseline") else made_of.params.get("model", "")
    return found


def _main_model(evaluated: Sequence[Run], models: Mapping[str, str]) -> str:
    """The model with the most figures, of several the one measured last."""
    found: dict[tuple[str, str, str], None] = {}  # in order, the newest first
    for run in evaluated:
        if not run.tags.get("baseline"):
            for task, _ in measured(run):
                found.setdefault((models[run.run_id], run.tags.get("system", ""), task))
    counted = Counter(model for model, _, _ in found).most_common(1)
    return counted[0][0] if counted else ""


def _trainings(
    behind: Mapping[str, str], known: Mapping[str, Run], trained: Sequence[Run], model: str
) -> dict[str, Run]:
    """By data, the training behind the figures; where no evaluation names one the newest, of the tables' model first."""
    found: dict[str, Run] = {}
    for run in sorted(trained, key=lambda run: bool(model) and run.params.get("model", "") != model):
        if not behind.get(run.tags.get("data", "")):
            found.setdefault(run.tags.get("data", ""), run)
    return found | {data: known[train_id] for data, train_id in behind.items() if train_id in known}


def _annotated(
    tracker: Tracker, datasets: Mapping[str, str], generated: Sequence[Run]
) -> tuple[Run | None, list[str]]:
    """The annotation behind the figures, or the newest where none is named, and what is to be said about it."""
    newest = generated[0] if generated else None
    named = next((datasets[data] for data in ("augmented", "plain") if datasets.get(data)), "")
    if not named:
        return newest, []
    try:
        found = tracker.get(named)
    except UserError:  # deleted since
        other = f"; the tables on annotation show run {newest.run_id[:8]}" if newest else ""
        return newest, [
            f"Generate run {named[:8]}, on whose data the evaluated models were trained, is gone{other}."
        ]
    if newest and newest.run_id != named:
        return found, [
            f"The tables on annotation show generate run {named[:8]}, on whose data the evaluated models were trained; "
            f"the newest is {newest.run_id[:8]}."
        ]
    return found, []


def _baselines(runs: Sequence[Run]) -> dict[tuple[str, str], chosen.Figure]:
    names = baseline_names(runs)
    return chosen.figures(runs, lambda run: names.get(run.run_id, ""))


def _by_k(swept: Mapping[tuple[int, str], chosen.Figure]) -> dict[tuple[int, str], KScore]:
    found: dict[tuple[int, str], KScore] = {}
    for (k, task), one in swept.items():
        counts = [one.run.metrics.get(f"{task}/{key}") for key in ("n", "n_ac", "n_nc")]
        if None not in counts:
            n, n_ac, n_nc = (round(count or 0) for count in counts)
            ac, nc = (one.run.metrics.get(f"{task}/score_{part}") for part in ("ac", "nc"))
            low, high = (one.run.metrics.get(f"{task}/ci_{end}") for end in ("low", "high"))
            found[k, task] = KScore(one.value, n, ac, n_ac, nc, n_nc, low, high, note(one.run))
    return found


def _parents(tracker: Tracker, runs: Iterable[Run]) -> Iterator[Run]:
    """The train and generate runs behind evaluations, each once."""
    seen: set[str] = set()
    waiting = list(runs)
    while waiting:
        run = waiting.pop(0)
        for tag in ("lineage.train_run_id", "lineage.dataset_run_id"):
            run_id = run.tags.get(tag)
            if run_id and run_id not in seen:
                seen.add(run_id)
                with suppress(UserError):  # deleted since: the figures still stand
                    parent = tracker.get(run_id)
                    yield parent
                    waiting.append(parent)


def _reads(tracker: Tracker, trainings: Mapping[str, Run], annotated: Run | None) -> dict[str, str]:
    """The shown runs that `latest` would not find."""
    found = {data: (run, tracker.latest("train", data=data)) for data, run in trainings.items() if data}
    if annotated:
        found["dataset"] = (annotated, tracker.latest("generate"))
    return {
        key: run.run_id[:8] for key, (run, latest) in found.items() if latest and latest.run_id != run.run_id
    }
