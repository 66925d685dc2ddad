"""What a report shows, read from the runs into plain data. Which runs count is decided in `selection`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Protocol

import pyarrow.parquet as pq

from benchmarks import PAPER
from toolformer.errors import UserError
from toolformer.reporting import candidate_stats
from toolformer.reporting.data import Annotation, Curve, Evidence, Sampled, Score, Training
from toolformer.reporting.formatting import SYSTEMS, shown_count, title_of
from toolformer.reporting.pairing import compare_systems, over_seeds, read_samples
from toolformer.reporting.selection import (
    DEFAULT_K,
    FIGURE4,
    Seeds,
    Selection,
    asked_by,
    baseline_names,
    dataset_of,
    faults,
    measured,
    select,
    thresholds,
    wording_of,
)
from toolformer.reporting.table import Passage
from toolformer.tracking import Run

CURVES = ("loss", "heldout_perplexity", "perplexity_texts", "perplexity_calls")
_POINTS = 400
"""Points of a curve."""
_SKIPPED = "rows_skipped/"


class Store(Protocol):
    """Where runs are read from; `toolformer.tracking.Tracker` is one, and says what each of these gives."""

    def runs(self, stage: str, **tags: str) -> list[Run]: ...

    def artifact_path(self, run: Run, name: str) -> Path: ...

    def history(self, run: Run, key: str) -> Sequence[tuple[int, float]] | None: ...


def read(store: Store, experiment: str | None = None, seed: int = 0) -> Evidence:
    """Everything that a report shows, restricted to runs tagged `experiment` if given.

    `seed` decides the resamples behind paired intervals.

    Raises:
        UserError: no finished run has this tag, or the store fails.
    """
    tags = {"experiment": experiment} if experiment else {}
    generated, trained, evaluated = (store.runs(stage, **tags) for stage in ("generate", "train", "evaluate"))
    if experiment and not (generated or trained or evaluated):
        raise UserError(
            f"no finished run is of the experiment {experiment}: run a stage with name={experiment}, or name another"
        )
    further = store.runs("evaluate", experiment=FIGURE4) if experiment not in (None, FIGURE4) else []
    trainings = {run.run_id: run for run in store.runs("train")}
    annotations = {run.run_id: run for run in store.runs("generate")}
    selection = select(evaluated, further, trainings, annotations)
    behind = _trainings(selection, trained, trainings)
    annotation, remarks = _annotation(store, behind, annotations, generated)
    explained: dict[str, Run] = {}
    for run in store.runs("explain", **tags):
        explained.setdefault(run.tags.get("lineage.evaluate_run_id", ""), run)
    sampled, unread = _sampled(store, evaluated, selection, explained)
    known = {(sample.run_id, task): file for sample in sampled for task, file in sample.files.items()}
    files = {
        (row, task): [(asked_by(run), known[run.run_id, task]) for run in runs]
        for (row, task), runs in selection.shown.items()
        if all((run.run_id, task) in known for run in runs)
    }
    return Evidence(
        experiment,
        annotation,
        scores={key: _of_seeds(runs, key[1], known, seed) for key, runs in selection.shown.items()},
        trained={data: _training(run, annotations.get(dataset_of(run))) for data, run in behind.items()},
        remarks=(*_remarks(selection), *remarks, *unread),
        by_k={
            key: _of_seeds(runs, key[1], known, seed)
            for key, runs in selection.by_k.items()
            if f"{key[1]}/n_ac" in runs[0].metrics
        },
        by_threshold={
            key: _of_seeds(runs, key[1], known, seed) for key, runs in selection.by_threshold.items()
        },
        wordings={
            key: {
                wording: _of_seeds(runs, key[1], known, seed)
                for wording, runs in selection.wordings[key].items()
            }
            for key in selection.wordings
        },
        kept={
            row: annotations[dataset_of(trainings[runs[0].tags["lineage.train_run_id"]])]
            for (row, _), runs in selection.by_threshold.items()
        },
        model=selection.model,
        paired=compare_systems(files, seed),
        curves=tuple(curve for data, run in behind.items() for curve in curves_of(store, run, data)),
        sizes={key: _score(run, key[2]) for key, run in selection.sizes.items()},
        parameters=selection.parameters,
        sampled=sampled,
        ladders={
            task: ladder
            for (system, task), (run, *_) in selection.shown.items()
            if system == "toolformer" and (ladder := below(task, explained.get(run.run_id)))
        },
    )


def below(task: str, run: Run | None) -> dict[str, float]:
    """A run's metrics of one task, if it has any."""
    start = f"{task}/"
    metrics = run.metrics if run else {}
    return {name.removeprefix(start): value for name, value in metrics.items() if name.startswith(start)}


def _remarks(selection: Selection) -> Iterator[str]:
    if selection.k != DEFAULT_K:
        at = f"k = {selection.k}" if selection.k.isdecimal() else selection.k
        yield f"Toolformer was decoded at {at} (the paper's k is {DEFAULT_K})."
    if selection.left_out:
        yield (
            f"Other finished evaluations left out: {shown_count(selection.left_out)}. A table shows one model, one "
            "training and one group of equal settings, and the newest run in each cell; toolformer compare RUN RUN says "
            "which keys differ."
        )
    for name, task, run in ((*cell, run) for cell, runs in selection.shown.items() for run in runs):
        if faults(run, task):
            yield (
                f"{SYSTEMS.get(name, name)} on {title_of(task)}: a tool or server failed in {faults(run, task):,} of "
                f"{round(run.metrics.get(f'{task}/n', 0)):,} answers of run {run.run_id[:8]}; they are scored as they are."
            )


def _trainings(selection: Selection, trained: Iterable[Run], known: Mapping[str, Run]) -> dict[str, Run]:
    """By data, the training behind the figures, else the newest of the tables' model (or of any)."""
    newest: dict[str, Run] = {}
    for run in sorted(trained, key=lambda run: run.params.get("model", "") != selection.model):
        newest.setdefault(run.tags.get("data", ""), run)
    for data, train_id in selection.trainings.items():
        if train_id:
            newest.pop(data, None)
            newest |= {data: known[train_id]} if train_id in known else {}
    return newest


def _annotation(
    store: Store, behind: Mapping[str, Run], annotations: Mapping[str, Run], generated: Sequence[Run]
) -> tuple[Annotation | None, list[str]]:
    """The annotation that the trainings read, else the newest; and what is to be said about it."""
    sources = {data: source for data, run in behind.items() if (source := dataset_of(run))}
    named = next((sources[data] for data in ("augmented", "plain") if data in sources), "")
    remarks = []
    if len(set(sources.values())) > 1:
        remarks.append("Toolformer and M + CC were trained on different annotations.")
    run = annotations.get(named) or next(iter(generated), None)
    if run is None:
        return None, remarks
    if named and run.run_id != named:
        remarks.append(
            f"The tables on annotation show generate run {run.run_id[:8]}; run {named[:8]}, on which the models were "
            "trained, is gone."
        )
    try:
        return annotation_of(store, run), remarks
    except UserError as error:
        return None, [*remarks, f"Generate run {run.run_id[:8]} cannot be read: {error}"]


def _sampled(
    store: Store, runs: Sequence[Run], selection: Selection, explained: Mapping[str, Run]
) -> tuple[tuple[Sampled, ...], list[str]]:
    """The evaluations whose samples can be read; and what cannot."""
    sampled, unread = [], []
    names = baseline_names(runs)
    for run in runs:
        files: dict[str, Path] = {}
        for task, _ in measured(run):
            with suppress(UserError):  # logged without samples, or they are gone: the figures still stand
                path = store.artifact_path(run, f"samples/{task}.parquet")
                try:
                    pq.read_schema(path)
                    files[task] = path
                except (OSError, ValueError):
                    unread.append(
                        f"The samples of evaluate run {run.run_id[:8]} on {title_of(task)} cannot be read: significance "
                        "and answers lack them."
                    )
        system = SYSTEMS.get(run.tags.get("system", ""), "")
        if run.run_id in names:
            system = f"{names[run.run_id]} (baseline)"
        model, k = selection.models[run.run_id], run.tags.get("decoding.k", DEFAULT_K)
        title = system if model == selection.model or not model else f"{system}, {model}"
        if run.tags.get("system") == "toolformer" and k != DEFAULT_K:
            title += f", k = {k}"
        if (wording := wording_of(run)) != PAPER:
            title += f", wording {wording}"
        classes: dict[str, Path] = {}
        for task in files if run.run_id in explained else ():
            with suppress(UserError):  # not explained, or gone: the answers still stand
                classes[task] = store.artifact_path(explained[run.run_id], f"ladder/{task}.parquet")
        sampled.append(Sampled(run.run_id, title, system, files, classes))
    return tuple(sampled), unread


def _score(run: Run, task: str) -> Score:
    metric = below(task, run)
    seconds, speed = metric.get("seconds"), metric.get("tokens_per_second")
    return Score(
        value=dict(measured(run))[task],
        low=metric.get("ci_low"),
        high=metric.get("ci_high"),
        n=_whole(metric.get("n")),
        call_share=metric.get("call_share"),
        tool_shares={
            name.removeprefix("call_share/"): share
            for name, share in metric.items()
            if name.startswith("call_share/")
        },
        run=run,
        seconds=seconds,
        tokens=None if seconds is None or speed is None else round(speed * seconds),
        calls=_whole(metric.get("n_ac")),
        with_call=metric.get("score_ac"),
        without_call=metric.get("score_nc"),
    )


def _of_seeds(runs: Seeds, task: str, files: Mapping[tuple[str, str], Path], seed: int) -> Score:
    """The figure of runs that differ only in their seed: the mean, with an interval where all samples can be read."""
    scores = [_score(run, task) for run in runs]
    if len(scores) == 1:
        return scores[0]
    paths = [files.get((run.run_id, task)) for run in runs]
    interval = None
    if None not in paths:
        interval = over_seeds([read_samples(path) for path in paths if path], seed)

    def mean(name: str) -> float | None:
        values = [getattr(score, name) for score in scores]
        return None if None in values else fmean(values)

    tools = dict.fromkeys(tool for score in scores for tool in score.tool_shares)
    return replace(
        scores[0],
        value=fmean(score.value for score in scores),
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        n=_whole(mean("n")),
        call_share=mean("call_share"),
        tool_shares={tool: fmean(score.tool_shares.get(tool, 0.0) for score in scores) for tool in tools},
        seconds=mean("seconds"),
        tokens=_whole(mean("tokens")),
        calls=_whole(mean("calls")),
        with_call=mean("with_call"),
        without_call=mean("without_call"),
        others=tuple(runs[1:]),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def curves_of(store: Store, run: Run, data: str) -> Iterator[Curve]:
    """A training's metrics over its steps, thinned."""
    for metric in CURVES:
        points = tuple(store.history(run, metric) or ())
        if len(points) > 1:
            yield Curve(data, metric, points[:: max(1, len(points) // _POINTS)] + points[-1:])


def _training(run: Run, annotation: Run | None) -> Training:
    metrics = annotation.metrics if annotation else {}
    executed = [value for name, value in metrics.items() if name.endswith("/executed")]
    return Training(
        run,
        # Of a training that was continued in another run, the whole.
        run.metrics.get("training_seconds", run.metrics.get("duration_seconds")),
        _whole(run.metrics.get("train_tokens")),
        # What the shards took, those that the run took over with them.
        metrics.get("annotation_seconds", metrics.get("duration_seconds")),
        round(sum(executed)) if executed else None,
    )


def annotation_of(store: Store, run: Run) -> Annotation:
    """What a generate run found.

    Raises:
        UserError: a file is gone or cannot be read.
    """
    names = ("candidates.parquet", "dataset_augmented.parquet", "dataset_plain.parquet", "funnel.json")
    files = {name: store.artifact_path(run, name) for name in names}
    with suppress(UserError):
        files[candidate_stats.WITHOUT_CALLS] = store.artifact_path(run, candidate_stats.WITHOUT_CALLS)
    texts = [files[name] for name in candidate_stats.TEXTS if name in files]
    candidates, augmented = files["candidates.parquet"], files["dataset_augmented.parquet"]
    baseline = run.params.get("filter.baseline", "paper")
    try:
        funnel = candidate_stats.funnel(files["funnel.json"])
        counts = candidate_stats.counts(candidates, baseline, set(funnel), thresholds(run))
        examples = candidate_stats.examples(candidates, baseline, augmented, texts)
        edges, gains = candidate_stats.gains(candidates, baseline, thresholds(run))
        tried = {tool: entry.steps["selected"] for tool, entry in funnel.items() if "selected" in entry.steps}
        lost = candidate_stats.lost(candidates, baseline, thresholds(run), tried)
    except (OSError, LookupError, ValueError, TypeError, AttributeError) as error:  # pyarrow's are among them
        raise UserError(str(error).splitlines()[0][:120]) from error
    skipped = {
        name.removeprefix(_SKIPPED): round(count)
        for name, count in run.metrics.items()
        if name.startswith(_SKIPPED)
    }
    return Annotation(run, counts, funnel, examples, skipped, gains, edges, files, baseline, lost)


def misses(annotation: Annotation) -> tuple[Passage, ...]:
    """Of each tool the ten calls nearest below τ_f.

    Raises:
        UserError: a file cannot be read.
    """
    files = [annotation.files[name] for name in candidate_stats.TEXTS if name in annotation.files]
    path = annotation.files["candidates.parquet"]
    return candidate_stats.misses(path, annotation.baseline, files, thresholds(annotation.run))
