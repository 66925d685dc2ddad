"""Reads the runs' folders into the plain data of a report. `select` decides which runs count."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow.parquet as pq
from pandas import DataFrame

from toolformer.benchmarks import PAPER
from toolformer.errors import UserError, one_line
from toolformer.evaluation.ladder.classes import CLASSES
from toolformer.reporting import candidate_stats, lm_eval_rows
from toolformer.reporting.data import NEWEST, Annotation, Evidence, Points, Sampled, Score
from toolformer.reporting.formatting import SYSTEMS, title_of
from toolformer.reporting.pairing import compare_systems, over_seeds, read_samples
from toolformer.reporting.select import (
    DEFAULT_POLICY,
    FIGURE4,
    Runs,
    Seeds,
    Selection,
    arm_of,
    faults,
    frame,
    scores,
    seeds_of,
    select,
    source,
    thresholds,
)
from toolformer.results import Damaged, Results, Run

Files = Mapping[tuple[str, str], Path]
"""Samples by the id of the evaluation and task."""
CURVES = ("loss", "heldout_perplexity", "perplexity_texts", "perplexity_calls", "perplexity_results")
_POINTS = 400
"""Points of a curve."""


def read_evidence(results: Results, experiment: str | None = None, lm_eval: Sequence[str] = ()) -> Evidence:
    """Everything that a report shows of an experiment's runs, or of all runs.

    Args:
        lm_eval: files or folders of lm-eval's results, whose models are further rows.

    UserError if the experiment has no finished run, or a file does not fit.
    """
    all_runs = {stage: results.runs(stage) for stage in ("generate", "train", "evaluate")}
    of_experiment = {
        stage: [run for run in runs if experiment in (None, *run.experiments)]
        for stage, runs in all_runs.items()
    }
    if experiment and not any(of_experiment.values()):
        raise UserError(_none(experiment, all_runs))
    trained, annotated = ({run.id: run for run in all_runs[stage]} for stage in ("train", "generate"))
    further = [run for run in all_runs["evaluate"] if experiment and FIGURE4 in run.experiments]
    cells, of_figure4 = (frame(runs, trained, annotated) for runs in (of_experiment["evaluate"], further))
    selection = select(cells, of_figure4)
    trainings = _trainings(selection, of_experiment["train"], trained)
    annotation, remarks = _annotation(results, trainings, annotated, of_experiment["generate"])
    explained = {_answers(run): run for run in reversed(of_experiment["evaluate"]) if explained_tasks(run)}
    sampled, unread = _sampled(results, cells, selection, explained)
    files = {(sample.run_id, task): file for sample in sampled for task, file in sample.files.items()}
    measured: dict[str, Any] = {
        table: {key: _score(runs, key[-1], files) for key, runs in shown.items()}
        for table, shown in selection.cells.items()
    }
    served, unserved = lm_eval_rows.rows(lm_eval, measured["scores"])
    measured["scores"] |= served
    measured["by_k"] = {k: score for k, score in measured["by_k"].items() if "n_ac" in score.metrics}
    filtered = selection.cells["by_threshold"].items()
    kept = {row: source(source(runs[0], trained), annotated) for (row, _), runs in filtered}
    return Evidence(
        experiment,
        annotation,
        **measured,
        trained={data: (run, _annotations_of(run, annotated)) for data, run in trainings.items()},
        remarks=[*_damaged(results, experiment), *_remarks(cells, selection), *remarks, *unread, *unserved],
        kept={row: run for row, run in kept.items() if run},
        model=selection.model,
        paired=compare_systems(_paired(selection.cells["scores"], files)),
        curves=_curves(trainings),
        sampled=sampled,
        ladders=_ladders(measured["scores"], explained),
    )


def _damaged(results: Results, experiment: str | None) -> Iterator[str]:
    """Names the evaluations that no table and no mean can count."""
    for run_id in results.damaged("evaluate", experiment):
        yield f"Evaluate run {run_id[:8]} is damaged: no table and no mean over seeds counts it. Give its command again."


def _none(experiment: str, all_runs: Mapping[str, Sequence[Run]]) -> str:
    """That an experiment has no run, and which others have some."""
    names = sorted({f"name={name}" for runs in all_runs.values() for run in runs for name in run.experiments})
    others = ", ".join(names) or "name=demo, whose runs toolformer demo makes"
    return f"the experiment {experiment} has no finished run: run a stage with name={experiment}, or add {others}"


def _remarks(cells: DataFrame, selection: Selection) -> Iterator[str]:
    if (policy := selection.policy) != DEFAULT_POLICY:
        at = f"k = {policy}" if policy.isdecimal() else policy
        yield f"Toolformer was decoded at {at} (the paper's k is {DEFAULT_POLICY})."
    shown = selection.cells["scores"]
    tasks = {key[-1] for key in (*shown, *selection.cells["wordings"])}
    left_out = cells[cells.task.isin(tasks) & ~cells.id.isin(selection.used())].drop_duplicates("id")
    if len(left_out):
        named = [f"{run.id[:8]} ({title_of(task)}, n = {n:,.0f})" for run, task, n in _cells_of(left_out)[:5]]
        more = ", ..." * (len(left_out) > 5)
        yield (
            f"Left out: {len(left_out):,} other finished evaluation{'s' * (len(left_out) > 1)}: {', '.join(named)}{more}. A "
            "row is the arm with most results, a column the set of questions that most rows answered, and a cell the newest run per "
            "seed; toolformer compare RUN RUN reports which keys differ."
        )
    yield from _further_arms(shown)
    for name, task, run in ((*cell, run) for cell, runs in shown.items() for run in runs):
        if faults(run, task):
            yield (
                f"{SYSTEMS.get(name, name)} on {title_of(task)}: a tool or server failed in {faults(run, task):,} of "
                f"{round(run.tasks[task].get('n', 0)):,} answers of run {run.id[:8]}; they are scored as they are."
            )


def _further_arms(shown: Mapping[tuple[str, str], Seeds]) -> Iterator[str]:
    """Names the benchmarks for which a row shows an evaluation with other settings than for its others."""
    for row in dict.fromkeys(row for row, _ in shown):
        arms: dict[str, list[str]] = {}
        for (name, task), runs in shown.items():
            if name == row:
                arms.setdefault(arm_of(runs[0]), []).append(task)
        first, *others = sorted(arms.values(), key=len, reverse=True)
        for tasks in others:
            pair = " ".join(shown[row, each[0]][0].id[:8] for each in (first, tasks))
            yield (
                f"{SYSTEMS.get(row, row)} answered {', '.join(map(title_of, tasks))} with other settings than "
                f"{title_of(first[0])}; toolformer compare {pair} reports which keys differ."
            )


def _cells_of(cells: DataFrame) -> list[tuple[Run, str, float]]:
    return list(zip(cells.run, cells.task, cells.n, strict=True))


def _trainings(selection: Selection, trained: Iterable[Run], known: Runs) -> dict[str, Run]:
    """By data, the training that was evaluated, else the newest of the tables' model (or of any)."""
    newest: dict[str, Run] = {}
    for run in sorted(trained, key=lambda run: run.setting("model") != selection.model):
        newest.setdefault(str(run.facts.get("data", "")), run)
    evaluated = {data: run_id for data, run_id in selection.trainings.items() if run_id}
    others = {data: run for data, run in newest.items() if data not in evaluated}
    return others | {data: known[run_id] for data, run_id in evaluated.items() if run_id in known}


def _annotations_of(training: Run, annotated: Runs) -> list[Run]:
    """The annotations that a training read; none if one of them is gone."""
    read = [step.key() for step in training.step.steps() if step.name == "generate"]
    return [annotated[run_id] for run_id in read] if all(run_id in annotated for run_id in read) else []


def _annotation(
    results: Results, trainings: Mapping[str, Run], annotated: Runs, generated: Sequence[Run]
) -> tuple[Annotation | None, list[str]]:
    """The annotation that the trainings read, else the newest; and remarks on it."""
    sources = {data: run.made_from[0] for data, run in trainings.items() if run.made_from}
    named = sources.get("augmented") or sources.get("plain", "")
    remarks = []
    if len({*sources.values()}) > 1:
        remarks.append("Toolformer and M + CC were trained on different annotations.")
    run = annotated.get(named) or next(iter(generated), None)
    if run is None:
        return None, remarks
    if named and run.id != named:
        remarks.append(
            f"The tables on annotation show generate run {run.id[:8]}; run {named[:8]}, on which the models were "
            "trained, is gone."
        )
    together = (
        [other.id for other in _annotations_of(training, annotated)] for training in trainings.values()
    )
    read = next((ids for ids in together if run.id in ids), [])
    if others := ", ".join(run_id[:8] for run_id in read if run_id != run.id):
        remarks.append(
            f"The models were trained on several annotations: the tables on annotation show generate run {run.id[:8]} "
            f"alone, without {others}; Cost counts all."
        )
    try:
        return annotation_of(results, run), remarks
    except UserError as error:
        return None, [*remarks, f"Generate run {run.id[:8]} cannot be read: {error}"]


def _sampled(
    results: Results, cells: DataFrame, selection: Selection, explained: Runs
) -> tuple[list[Sampled], list[str]]:
    """The evaluations with their samples, of those that are shown and the newest; and remarks on unreadable files."""
    sampled: list[tuple[Sampled, Any]] = []
    unread: list[str] = []
    used, counts = selection.used(), Counter[str]()
    for cell in cells.drop_duplicates("id").itertuples():
        run = cell.run
        tasks = [task for task in scores(run) if run.id in used or counts[task] < NEWEST]
        files = _readable(results, run, "samples", tasks, unread)
        counts.update(list(files))
        ladder = explained.get(_answers(run))
        classes = _readable(results, ladder, "ladder", tasks, unread) if ladder else {}
        system = f"{cell.baseline} (baseline)" if cell.baseline else SYSTEMS.get(cell.system, "")
        title = system if cell.baseline or cell.model == selection.model else f"{system}, {cell.model}"
        if cell.system == "toolformer" and cell.policy != DEFAULT_POLICY:
            title += f", k = {cell.policy}"
        if cell.wording != PAPER:
            title += f", wording {cell.wording}"
        sampled.append((Sampled(run.id, title, system, files, classes), cell.seed))
    seeds: dict[str, set[Any]] = {}
    for sample, seed in sampled:
        seeds.setdefault(sample.title, set()).add(seed)
    return [
        replace(sample, title=f"{sample.title}, seed {seed}") if len(seeds[sample.title]) > 1 else sample
        for sample, seed in sampled
    ], unread


def _readable(
    results: Results, run: Run, folder: str, tasks: Iterable[str], unread: list[str]
) -> dict[str, Path]:
    """The Parquet files of these tasks that can be read; adds a remark to `unread` on each damaged one."""
    files = {}
    for task in tasks:
        name = f"{folder}/{task}.parquet"
        if name not in run.digests:  # it was not logged
            continue
        try:
            path = results.artifact(run, name, reduced=True)
            pq.read_schema(path)
            files[task] = path
        except Damaged as error:
            unread.append(f"Significance and answers lack a file: {error}")
        except UserError:  # it was removed: the metrics still count
            continue
        except (OSError, ValueError):
            unread.append(
                f"The {folder} of {run.stage} run {run.id[:8]} on {title_of(task)} cannot be read: significance and "
                "answers lack them."
            )
    return files


def _score(runs: Seeds, task: str, files: Files) -> Score:
    """The result of runs that differ only in their seed: the mean, with an interval if all samples can be read."""
    of_runs = [dict(run.tasks[task]) for run in runs]
    for metrics in of_runs:
        if "seconds" in metrics and "tokens_per_second" in metrics:
            metrics["tokens"] = round(metrics["tokens_per_second"] * metrics["seconds"])
    means = {
        name: fmean(metrics.get(name, 0.0) for metrics in of_runs)
        for name in dict.fromkeys(name for metrics in of_runs for name in metrics)
        if name.startswith(("call_share/", "n_failed/")) or all(name in metrics for metrics in of_runs)
    }
    low, high = means.get("ci_low"), means.get("ci_high")
    if len(runs) > 1:
        low = high = None
        if all((run.id, task) in files for run in runs):
            interval = over_seeds([read_samples(files[run.id, task]) for run in runs])
            low, high = interval.low, interval.high
    return Score(fmean(scores(run)[task] for run in runs), low, high, tuple(runs), means)


def _paired(
    cells: Mapping[tuple[str, str], Seeds], files: Files
) -> dict[tuple[str, str], list[tuple[tuple[int, int], Path]]]:
    """The samples of the cells that have all of theirs, each with its seeds."""
    return {
        (row, task): [(seeds_of(run), files[run.id, task]) for run in runs]
        for (row, task), runs in cells.items()
        if all((run.id, task) in files for run in runs)
    }


def _ladders(scores: Mapping[tuple[str, str], Score], explained: Runs) -> dict[str, Mapping[str, float]]:
    """By task, the metrics of the classes of Toolformer's answers."""
    runs = {
        task: explained.get(_answers(score.run))
        for (row, task), score in scores.items()
        if row == "toolformer"
    }
    return {task: run.tasks[task] for task, run in runs.items() if run and task in explained_tasks(run)}


def explained_tasks(run: Run) -> dict[str, Mapping[str, float]]:
    """The metrics of the benchmarks of an evaluation whose answers were asked under oracle conditions, too."""
    return {task: metrics for task, metrics in run.tasks.items() if f"class/{next(iter(CLASSES))}" in metrics}


def _answers(run: Run) -> str:
    """Key that evaluations of the same answers share."""
    answers = run.step.find("answer")
    return answers.key() if answers else run.id


def _curves(trainings: Mapping[str, Run]) -> dict[tuple[str, str], Points]:
    """The trainings' metrics over their steps, thinned."""
    curves: dict[tuple[str, str], Points] = {}
    for data, run in trainings.items():
        for metric in CURVES:
            points = run.curve(metric)
            if len(points) > 1:
                curves[data, metric] = [*points[:: max(1, len(points) // _POINTS)], points[-1]]
    return curves


def annotation_of(results: Results, run: Run) -> Annotation:
    """The results of a generate run. UserError if a file cannot be read."""
    names = ("candidates.parquet", "dataset_augmented.parquet", "dataset_plain.parquet", "funnel.json")
    files = {name: results.artifact(run, name, reduced=True) for name in names}
    with suppress(UserError):
        files[candidate_stats.WITHOUT_CALLS] = results.artifact(
            run, candidate_stats.WITHOUT_CALLS, reduced=True
        )
    candidates = files["candidates.parquet"]
    baseline = str(run.setting("filter.baseline", "paper"))
    try:
        funnel = json.loads(files["funnel.json"].read_text(encoding="utf-8"))
        limits, by_chance = candidate_stats.needed(candidates, thresholds(run))
        edges, gains = candidate_stats.gains(candidates, limits)
        tried = {tool: counts["selected"] for tool, counts in funnel.items() if "selected" in counts}
        return Annotation(
            run,
            candidate_stats.counts(candidates, baseline, {*funnel, *limits} - by_chance, limits),
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
            f"a file of run {run.id[:8]} cannot be read ({one_line(error)}); run its command again: {run.command}"
        ) from error
