"""What a report needs, read from the runs into plain data; with `lineage` and `choice` the part of it that knows the tracker.

`choice` decides which runs count; curves, cost and annotation are those of the runs behind the scores. Nothing is
computed by a model here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from toolformer.reporting import chosen, likeness, lineage, remarks
from toolformer.reporting.cells import SYSTEMS
from toolformer.reporting.choice import Choice, Finished, choose, finished
from toolformer.reporting.evidence import DATASET, Evidence, KScore, RunNote, Sampled, Score
from toolformer.reporting.figures import drawn
from toolformer.reporting.lineage import Lineage
from toolformer.reporting.samples import Fetched, sampled
from toolformer.reporting.significance import asked_otherwise, compare_systems
from toolformer.reporting.stages import annotation_cost, curves_of, note, score_of, training_cost
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
        UserError: no finished run has this tag, or a local store fails.
    """
    runs = finished(tracker, experiment)
    known = Lineage(tracker, [*runs.generated, *runs.trained])
    choice = choose(runs, known)
    evidence = _measured(Evidence(experiment, choice.annotated.shown, {}, {}), choice, tracker, runs, seed)
    evidence = _made(evidence, choice, known)
    evidence = _with_words(evidence, choice, conf)
    in_figure = drawn(evidence)
    return replace(
        evidence,
        lineage=tuple(_parents(evidence, runs, known, in_figure)),
        remarks=tuple(_remarks(evidence, choice, known, in_figure)),
    )


def _measured(evidence: Evidence, choice: Choice, tracker: Tracker, runs: Finished, seed: int) -> Evidence:
    """The evidence with what evaluations say: scores, and their samples compared."""
    scores, baselines = (
        {key: score_of(one.run, key[1], one.value) for key, one in found.items()}
        for found in (choice.shown, choice.baselines)
    )
    fetched = Fetched(tracker)
    answered = sampled(fetched, runs.evaluated, choice.models, choice.model, choice.behind)
    files = _files({key: one.run for key, one in choice.shown.items()}, answered)
    by_k = {(str(k), task): one.run for (k, task), one in choice.swept.items()}
    of_baselines = {key: one.run for key, one in choice.baselines.items()}
    return replace(
        evidence,
        scores=scores,
        by_k=_by_k(choice.swept),
        baselines=baselines,
        model=choice.model,
        paired=compare_systems(files, seed, baselines=_files(of_baselines, answered)),
        sizes={key: score_of(one.run, key[2], one.value) for key, one in choice.sizes.figures.items()},
        parameters=choice.sizes.parameters,
        sampled=answered,
        unread=fetched.unread,
        asked_otherwise=asked_otherwise(files),
        asked_otherwise_by_k=asked_otherwise(_files(by_k, answered)),
    )


def _files(runs: Mapping[tuple[str, str], Run], answered: Iterable[Sampled]) -> dict[tuple[str, str], Path]:
    """The files of samples of runs, which stand by a name and a task, where they are to be had."""
    by_run = {one.run_id: one.files for one in answered}
    found = {key: by_run[run.run_id].get(key[1]) for key, run in runs.items()}
    return {key: path for key, path in found.items() if path is not None}


def _made(evidence: Evidence, choice: Choice, known: Lineage) -> Evidence:
    """The evidence with what trainings and annotations say that are behind the scores."""
    annotated = choice.annotated
    away = {data: one for data, one in choice.behind.items() if one and known.is_away(one)}
    away |= {DATASET: annotated.away} if annotated.away else {}
    return replace(
        evidence,
        trained={data: note(run) for data, run in choice.trainings.items()},
        curves=tuple(
            curve for data, run in choice.trainings.items() for curve in curves_of(known.tracker, run, data)
        ),
        training={data: training_cost(run) for data, run in choice.trainings.items()},
        annotating={
            data: annotation_cost(known.get(one), annotated.shown)
            for data, one in choice.datasets.items()
            if one
        },
        reads=lineage.reads(known, choice.trainings, annotated.run if annotated.shown else None, away),
        away=frozenset(away),
    )


def _patterns(choice: Choice) -> list[Run]:
    """The shown runs, those first that say most of how commands are to do as they did."""
    # Of the systems Toolformer's says the most: tools and decoding.
    ordered = sorted(choice.shown, key=lambda key: key[0] != "toolformer")
    annotated = choice.annotated.run
    swept = (one.run for one in choice.swept.values())
    runs = [*(choice.shown[key].run for key in ordered), *swept, *choice.trainings.values()]
    return [*runs, *([annotated] if annotated else [])]


def _in_columns(choice: Choice) -> dict[tuple[str, str], Run]:
    """The runs by system and task; those of Table 9 where it alone has the task."""
    shown = {key: one.run for key, one in choice.shown.items()}
    tasks = {task for _, task in shown}
    swept = {(str(k), task): one.run for (k, task), one in choice.swept.items() if task not in tasks}
    return shown | swept


def _with_words(evidence: Evidence, choice: Choice, conf: Conf | None) -> Evidence:
    """The evidence with what commands are told, so that they do as the first of these runs that says how it was made.

    Corpus and rules are those of the annotation.
    """
    patterns, annotated = _patterns(choice), choice.annotated.run
    like = next((run for run in patterns if run.params.get("model")), None)
    params = as_annotated(like, annotated).params if like else {}
    trained = next((run for run in choice.trainings.values() if run.params.get("model")), None)
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
        limits=limits_by_task(_in_columns(choice), composed),
        places=(*figure_4, *where),
        recipe=tuple(recipe),
    )


def _parents(
    evidence: Evidence, runs: Finished, known: Lineage, in_figure: Mapping[tuple[str, str, str], Score]
) -> Iterator[RunNote]:
    """The runs that the evaluations behind figures come from."""
    behind = {score.run.run_id for score in (*evidence.scores.values(), *in_figure.values())}
    own = evidence.annotation.run.run_id if evidence.annotation else None
    every = [run for run in (*runs.evaluated, *runs.further) if run.run_id in behind]
    return (note(run) for run in lineage.parents(known, every) if run.run_id != own)


def _remarks(
    evidence: Evidence, choice: Choice, known: Lineage, in_figure: Iterable[tuple[str, str, str]]
) -> Iterator[str]:
    """What is said of what is mixed or left out."""
    lost = {one: known.fate(one) for one in choice.behind.values() if one and not known.get(one)}
    yield from remarks.remarks(choice.asked, choice.shown, choice.behind, lost, choice.datasets)
    beside = [
        *((SYSTEMS[system], task, one) for (system, task), one in choice.shown.items()),
        *((name, task, one) for (name, task), one in choice.baselines.items()),
        *(
            (f"{SYSTEMS['toolformer']} with k = {k}", task, one)
            for (k, task), one in choice.swept.items()
            if str(k) != chosen.DEFAULT_K
        ),
    ]
    yield from remarks.passed_over(beside)
    yield from likeness.within_rows(choice.shown)
    yield from likeness.within_columns(choice.shown, choice.baselines)
    yield from likeness.along_k(choice.swept)
    uneven = remarks.uneven_tasks({key: score.n for key, score in evidence.scores.items()})
    yield from remarks.other_questions(evidence.asked_otherwise, uneven)
    uneven = remarks.uneven_tasks({(str(k), task): score.n for (k, task), score in evidence.by_k.items()})
    yield from remarks.other_questions_by_k(evidence.asked_otherwise_by_k, uneven)
    yield from choice.annotated.said
    yield from remarks.broken((name, task, one.run) for name, task, one in beside)
    in_tables = {one.run.run_id for one in choice.shown.values()}
    of_figure = {key: choice.sizes.figures[key].run for key in in_figure}
    if of_figure:
        yield from remarks.tools_of_figure_4(choice.sizes)
    yield from remarks.broken(
        (f"{SYSTEMS[system]} of {one}", task, run)
        for (one, system, task), run in of_figure.items()
        if run.run_id not in in_tables
    )
    yield from remarks.other_models(choice.model, choice.evaluated, {one for one, _, _ in of_figure})
    curves = {data: [one for one in evidence.curves if one.data == data] for data in choice.trainings}
    yield from remarks.without_curves(choice.trainings, curves)


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
