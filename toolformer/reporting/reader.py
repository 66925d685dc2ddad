"""What a report shows, read from the runs into plain data. Which runs count is decided in `selection`."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import TypeVar

import pyarrow.parquet as pq

from toolformer.benchmarks import PAPER
from toolformer.errors import UserError, one_line
from toolformer.reporting import candidate_stats
from toolformer.reporting.data import Annotation, Evidence, Points, Sampled, Score
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
from toolformer.tracking import Damaged, Run, Tracker

K = TypeVar("K", bound=tuple)
CURVES = ("loss", "heldout_perplexity", "perplexity_texts", "perplexity_calls", "perplexity_results")
_POINTS = 400
"""Points of a curve."""


def read(store: Tracker, experiment: str | None = None, seed: int = 0) -> Evidence:
    """Everything that a report shows, restricted to runs tagged `experiment` if given.

    `seed` decides the resamples behind paired intervals. UserError if no finished run has this tag.
    """
    tags = {"experiment": experiment} if experiment else {}
    stages = ("generate", "train", "evaluate")
    generated, trained, evaluated = (store.runs(stage, **tags) for stage in stages)
    if experiment and not (generated or trained or evaluated):
        there = sorted({f"name={run.tags['experiment']}" for stage in stages for run in store.runs(stage)})
        others = ", ".join(there) or "name=demo, whose runs toolformer demo makes"
        raise UserError(
            f"no finished run is of the experiment {experiment}: run a stage with name={experiment}, or add {others}"
        )
    further = store.runs("evaluate", experiment=FIGURE4) if experiment not in (None, FIGURE4) else []
    trainings = {run.run_id: run for run in store.runs("train")}
    annotations = {run.run_id: run for run in store.runs("generate")}
    selection = select(evaluated, further, trainings, annotations)
    behind = _trainings(selection, trained, trainings)
    annotation, remarks = _annotation(store, behind, annotations, generated)
    explained = {
        run.tags.get("lineage.evaluate_run_id", ""): run for run in reversed(store.runs("explain", **tags))
    }
    sampled, unread = _sampled(store, evaluated, selection, explained)
    files = {(sample.run_id, task): file for sample in sampled for task, file in sample.files.items()}

    def scores(cells: Mapping[K, Seeds]) -> dict[K, Score]:
        return {key: _score(runs, key[-1], files) for key, runs in cells.items()}

    paired = {
        key: [(asked_by(run), files[run.run_id, key[1]]) for run in runs]
        for key, runs in selection.shown.items()
        if all((run.run_id, key[1]) in files for run in runs)
    }
    by_k = scores(selection.by_k)
    shown = scores(selection.shown)
    ladders = {
        task: below(task, explained[score.run.run_id])
        for (system, task), score in shown.items()
        if system == "toolformer" and score.run.run_id in explained
    }
    return Evidence(
        experiment,
        annotation,
        scores=shown,
        trained={data: (run, annotations.get(dataset_of(run))) for data, run in behind.items()},
        remarks=[*_remarks(selection), *remarks, *unread],
        by_k={key: score for key, score in by_k.items() if "n_ac" in score.metrics},
        by_threshold=scores(selection.by_threshold),
        kept={
            row: annotations[dataset_of(trainings[runs[0].tags["lineage.train_run_id"]])]
            for (row, _), runs in selection.by_threshold.items()
        },
        wordings=scores(selection.wordings),
        model=selection.model,
        paired=compare_systems(paired, seed),
        curves=_curves(store, behind),
        sizes=scores(selection.sizes),
        sampled=sampled,
        ladders={task: ladder for task, ladder in ladders.items() if ladder},
    )


def below(task: str, run: Run) -> dict[str, float]:
    """A run's metrics of one task."""
    start = f"{task}/"
    return {name.removeprefix(start): value for name, value in run.metrics.items() if name.startswith(start)}


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
    store: Tracker, behind: Mapping[str, Run], annotations: Mapping[str, Run], generated: Sequence[Run]
) -> tuple[Annotation | None, list[str]]:
    """The annotation that the trainings read, else the newest; and what is to be said about it."""
    sources = {data: source for data, run in behind.items() if (source := dataset_of(run))}
    named = sources.get("augmented") or sources.get("plain", "")
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
    store: Tracker, runs: Sequence[Run], selection: Selection, explained: Mapping[str, Run]
) -> tuple[list[Sampled], list[str]]:
    """The evaluations whose samples can be read; and what cannot."""
    sampled, unread = [], []
    names = baseline_names(runs)
    for run in runs:
        files: dict[str, Path] = {}
        classes: dict[str, Path] = {}
        sources = [(run, "samples", files)]
        if run.run_id in explained:
            sources.append((explained[run.run_id], "ladder", classes))
        for task, (of, folder, found) in itertools.product(dict(measured(run)), sources):
            try:
                path = store.artifact_path(of, f"{folder}/{task}.parquet")
                pq.read_schema(path)
                found[task] = path
            except Damaged as fault:
                unread.append(f"Significance and answers lack a file: {fault}")
            except UserError:  # logged without it, or it is gone: the figures still stand
                continue
            except (OSError, ValueError):
                unread.append(
                    f"The {folder} of {of.stage} run {of.run_id[:8]} on {title_of(task)} cannot be read: significance "
                    "and answers lack them."
                )
        system = SYSTEMS.get(run.tags.get("system", ""), "")
        if run.run_id in names:
            system = f"{names[run.run_id]} (baseline)"
        model, k = selection.models[run.run_id], run.tags.get("decoding.k", DEFAULT_K)
        title = system if model in ("", selection.model) else f"{system}, {model}"
        if run.tags.get("system") == "toolformer" and k != DEFAULT_K:
            title += f", k = {k}"
        if (wording := wording_of(run)) != PAPER:
            title += f", wording {wording}"
        sampled.append(Sampled(run.run_id, title, system, files, classes))
    return sampled, unread


def _score(runs: Seeds, task: str, files: Mapping[tuple[str, str], Path]) -> Score:
    """The figure of runs that differ only in their seed: the mean, with an interval where all samples can be read."""
    of_runs = [below(task, run) for run in runs]
    for metrics in of_runs:
        if "seconds" in metrics and "tokens_per_second" in metrics:
            metrics["tokens"] = round(metrics["tokens_per_second"] * metrics["seconds"])
    means = {
        name: fmean(metrics.get(name, 0.0) for metrics in of_runs)
        for name in dict.fromkeys(name for metrics in of_runs for name in metrics)
        if name.startswith("call_share/") or all(name in metrics for metrics in of_runs)
    }
    low, high = means.get("ci_low"), means.get("ci_high")
    if len(runs) > 1:
        paths = [files[run.run_id, task] for run in runs if (run.run_id, task) in files]
        low = high = None
        if len(paths) == len(runs):
            interval = over_seeds([read_samples(path) for path in paths])
            low, high = interval.low, interval.high
    value = fmean(dict(measured(run))[task] for run in runs)
    return Score(value, low, high, tuple(runs), means)


def _curves(store: Tracker, trainings: Mapping[str, Run]) -> dict[tuple[str, str], Points]:
    """The trainings' metrics over their steps, thinned."""
    curves: dict[tuple[str, str], Points] = {}
    for data, run in trainings.items():
        for metric in CURVES:
            points = store.history(run, metric) or ()
            if len(points) > 1:
                curves[data, metric] = [*points[:: max(1, len(points) // _POINTS)], points[-1]]
    return curves


def annotation_of(store: Tracker, run: Run) -> Annotation:
    """What a generate run found. UserError if a file cannot be read."""
    names = ("candidates.parquet", "dataset_augmented.parquet", "dataset_plain.parquet", "funnel.json")
    files = {name: store.artifact_path(run, name) for name in names}
    with suppress(UserError):
        files[candidate_stats.WITHOUT_CALLS] = store.artifact_path(run, candidate_stats.WITHOUT_CALLS)
    candidates, baseline = files["candidates.parquet"], run.params.get("filter.baseline", "paper")
    limits = thresholds(run)
    try:
        funnel = json.loads(files["funnel.json"].read_text(encoding="utf-8"))
        edges, gains = candidate_stats.gains(candidates, limits)
        tried = {tool: counts["selected"] for tool, counts in funnel.items() if "selected" in counts}
        return Annotation(
            run,
            candidate_stats.counts(candidates, set(funnel), limits),
            funnel,
            candidate_stats.examples(files),
            gains,
            edges,
            limits,
            files,
            baseline,
            candidate_stats.lost(candidates, tried),
        )
    except (OSError, LookupError, ValueError, TypeError, AttributeError) as error:  # pyarrow's are among them
        raise UserError(
            f"a file of run {run.run_id[:8]} cannot be read ({one_line(error)}); give the run's command again"
        ) from error
