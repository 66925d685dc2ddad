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
from toolformer.reporting import candidates, chosen
from toolformer.reporting.chosen import measured
from toolformer.reporting.evidence import (
    Annotation,
    Cost,
    Curve,
    Evidence,
    KScore,
    RunNote,
    Score,
)
from toolformer.reporting.figures import drawn
from toolformer.reporting.samples import Fetched, baseline_names, sampled
from toolformer.reporting.significance import asked_otherwise, compare_systems
from toolformer.reporting.words import (
    ANNOTATING,
    Conf,
    chosen_tools,
    differing,
    limits_by_task,
    named,
    overrides_like,
    places_of_figure_4,
)
from toolformer.tracking import Run, Tracker
from toolformer.tracking.run import newest_first

CURVES = ("loss", "heldout_perplexity", "perplexity_texts", "perplexity_calls")
_POINTS = 400
"""Points of a curve."""
ALSO = {"paper": ("figure4",)}
"""Experiments whose evaluations count in Figure 4 of another's report, which they belong to."""
_SKIPPED = "rows_skipped/"


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
    further = [
        run for name in ALSO.get(experiment or "", ()) for run in tracker.runs("evaluate", experiment=name)
    ]
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
    annotation = _annotation(tracker, annotated) if annotated else None
    scores = {key: _score(one.run, key[1], one.value) for key, one in shown.items()}
    sizes, parameters = chosen.sizes(newest_first([*every, *further]), models)
    fetched = Fetched(tracker)
    answered = sampled(fetched, every, models, model, behind)
    by_run = {one.run_id: one.files for one in answered}
    baselines = _baselines(evaluated)
    files, of_others = (
        {
            key: path
            for key, score in found.items()
            if (path := by_run[score.run.run_id].get(key[1])) is not None
        }
        for found in (scores, baselines)
    )
    asked_elsewhere = asked_otherwise(files)
    remarks = [
        *chosen.remarks(asked, shown, behind, known, datasets),
        *chosen.other_questions(
            asked_elsewhere, chosen.uneven_tasks({key: score.n for key, score in scores.items()})
        ),
        *said,
    ]
    own = annotation.run.run_id if annotation else None
    belonging = [named(experiment, conf)] if experiment else []
    # Of the systems Toolformer's says the most: tools and decoding.
    ordered = sorted(shown, key=lambda key: key[0] != "toolformer")
    patterns = [
        *(shown[key].run for key in ordered),
        *trainings.values(),
        *([annotated] if annotated else []),
    ]
    patterns = [_as_annotated(run, annotated) for run in patterns]
    like = next((run.params for run in patterns if run.params.get("model")), {})
    belonging += chosen_tools(like, conf, *belonging) if conf else []
    defaults = conf.composed(*belonging) if conf else None
    overrides = overrides_like(patterns, model, defaults)
    recipes = [run.params for run in trainings.values() if run.params.get("model")][:1]
    evidence = Evidence(
        experiment,
        annotation,
        scores,
        {data: _note(run) for data, run in trainings.items()},
        (),
        (),
        _by_k(evaluated),
        baselines,
        model,
        compare_systems(files, seed, baselines=of_others),
        tuple(curve for data, run in trainings.items() for curve in _curves(tracker, run, data)),
        {data: _training_cost(run) for data, run in trainings.items()},
        {key: _score(one.run, key[2], one.value) for key, one in sizes.items()},
        parameters,
        answered,
        {data: _annotation_cost(tracker, one, annotation) for data, one in datasets.items() if one},
        (*belonging, *overrides),
        tuple(places_of_figure_4(like, conf.composed("experiment=figure4") if conf else None)),
        _reads(tracker, trainings, annotated),
        fetched.unread,
        tuple(word for params in recipes for word in differing(params, defaults or params)),
        asked_elsewhere,
    )
    evidence = replace(
        evidence, limits=limits_by_task({key: one.run for key, one in shown.items()}, defaults)
    )
    in_figure = drawn(evidence)
    behind_ids = {score.run.run_id for score in (*scores.values(), *in_figure.values())}
    parents = _parents(tracker, [run for run in (*every, *further) if run.run_id in behind_ids])
    others = _other_models(model, {models[run.run_id] for run in every}, {one for one, _, _ in in_figure})
    return replace(
        evidence,
        lineage=tuple(_note(run) for run in parents if run.run_id != own),
        remarks=(*remarks, *others),
    )


def _as_annotated(run: Run, annotated: Run | None) -> Run:
    """The run with the corpus and the rules of the annotation: the configuration of a later stage need not name them."""
    told = {key: value for key, value in (annotated.params if annotated else {}).items() if _annotates(key)}
    rest = {key: value for key, value in run.params.items() if not (told and _annotates(key))}
    return replace(run, params=rest | told)


def _annotates(key: str) -> bool:
    return key.startswith("corpus.") or (
        key.startswith("tool.") and key.partition(".")[2].partition(".")[2] in ANNOTATING
    )


def _note(run: Run) -> RunNote:
    system = run.tags.get("system") or run.tags.get("data", "")
    device = run.tags.get("device_name") or run.tags.get("device", "")
    return RunNote(run.run_id, run.stage, system, run.commit, run.started.date().isoformat(), device)


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


def _annotation_cost(tracker: Tracker, run_id: str, shown: Annotation | None) -> Cost:
    """What an annotation took; unknown where its run is gone."""
    if shown and shown.run.run_id == run_id:
        return shown.cost
    with suppress(UserError):
        run = tracker.get(run_id)
        executed = [value for name, value in run.metrics.items() if name.endswith("/executed")]
        return Cost(_annotating(run), round(sum(executed)) if executed else None)
    return Cost(None)


def _annotating(run: Run) -> float | None:
    """Seconds that the run's shards took, those that it found done with them; of older runs their duration."""
    return run.metrics.get("annotation_seconds", run.metrics.get("duration_seconds"))


def _baselines(runs: Sequence[Run]) -> dict[tuple[str, str], Score]:
    names = baseline_names(runs)
    found = chosen.figures(runs, lambda run: names.get(run.run_id, ""))
    return {key: _score(one.run, key[1], one.value) for key, one in found.items()}


def _by_k(runs: Iterable[Run]) -> dict[tuple[int, str], KScore]:
    swept = chosen.figures(
        (run for run in runs if run.tags.get("decoding.k", "").isdecimal()),
        lambda run: run.tags["decoding.k"] if run.tags.get("system") == "toolformer" else "",
    )
    found: dict[tuple[int, str], KScore] = {}
    for (k, task), one in swept.items():
        counts = [one.run.metrics.get(f"{task}/{key}") for key in ("n", "n_ac", "n_nc")]
        if None not in counts:
            n, n_ac, n_nc = (round(count or 0) for count in counts)
            ac, nc = (one.run.metrics.get(f"{task}/score_{part}") for part in ("ac", "nc"))
            low, high = (one.run.metrics.get(f"{task}/ci_{end}") for end in ("low", "high"))
            found[int(k), task] = KScore(one.value, n, ac, n_ac, nc, n_nc, low, high, _note(one.run))
    return found


def _score(run: Run, task: str, value: float) -> Score:
    start = f"{task}/call_share/"
    seconds, speed = run.metrics.get(f"{task}/seconds"), run.metrics.get(f"{task}/tokens_per_second")
    return Score(
        value=value,
        low=run.metrics.get(f"{task}/ci_low"),
        high=run.metrics.get(f"{task}/ci_high"),
        n=_whole(run.metrics.get(f"{task}/n")),
        call_share=run.metrics.get(f"{task}/call_share"),
        tool_shares={key.removeprefix(start): v for key, v in run.metrics.items() if key.startswith(start)},
        run=_note(run),
        seconds=seconds,
        tokens=None if seconds is None or speed is None else round(speed * seconds),
        calls=_whole(run.metrics.get(f"{task}/n_ac")),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


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


def _other_models(model: str, models: set[str], in_figure: set[str]) -> Iterator[str]:
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


def _curves(tracker: Tracker, run: Run, data: str) -> Iterator[Curve]:
    """The run's figures over its steps."""
    for metric in CURVES:
        if metric not in run.metrics:
            continue
        points: dict[int, float] = {}
        for step, value in tracker.history(run, metric) or ():
            # The first value of a step counts: the end's summary is logged at step 0 again.
            points.setdefault(step, value)
        every = max(1, len(points) // _POINTS)
        chosen = sorted(points.items())
        thinned = chosen[::every] + (chosen[-1:] if (len(chosen) - 1) % every else [])
        if len(thinned) > 1:
            yield Curve(data, metric, tuple(thinned))


def _training_cost(run: Run) -> Cost:
    return Cost(run.metrics.get("duration_seconds"), None, _whole(run.metrics.get("train_tokens")))


def _annotation(tracker: Tracker, run: Run) -> Annotation:
    names = ("candidates.parquet", "dataset_augmented.parquet", "dataset_plain.parquet", "funnel.json")
    files = {name: tracker.artifact_path(run, name) for name in names}
    with suppress(UserError):  # older runs have none
        files[candidates.WITHOUT_CALLS] = tracker.artifact_path(run, candidates.WITHOUT_CALLS)
    baseline = run.params.get("filter.baseline", "paper")
    funnel = candidates.funnel(files["funnel.json"])
    try:
        table = candidates.scored(files["candidates.parquet"], baseline)
        counts = candidates.counts(table, set(funnel))
        texts = [files[name] for name in candidates.TEXTS if name in files]
        examples = candidates.examples(
            table, files["candidates.parquet"], files["dataset_augmented.parquet"], texts
        )
        edges, gains = candidates.gains(table, _thresholds(run))
    except (OSError, KeyError, ValueError, TypeError) as error:  # pyarrow's are ValueErrors and KeyErrors
        raise UserError(
            f"the artifacts of generate run {run.run_id} cannot be read ({str(error).splitlines()[0][:120]}): "
            "run `toolformer generate` again"
        ) from error
    skipped = {
        name.removeprefix(_SKIPPED): round(count)
        for name, count in run.metrics.items()
        if name.startswith(_SKIPPED)
    }
    executed = sum(entry.steps.get("executed", 0) for entry in funnel.values())
    cost = Cost(_annotating(run), executed)
    return Annotation(_note(run), counts, funnel, examples, skipped, gains, edges, cost, files, baseline)


def _thresholds(run: Run) -> dict[str, float]:
    """τ_f by tool."""
    found: dict[str, float] = {}
    for key, value in run.params.items():
        if key.startswith("tool.") and key.endswith(".filter_threshold"):
            with suppress(ValueError):
                found[key.split(".")[1]] = float(value)
    return found
