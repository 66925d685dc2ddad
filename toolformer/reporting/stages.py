"""What a run of each stage says, as the report's plain data: scores, curves, cost, annotation.

Reads metrics and artifacts of the runs it is given; which these are is decided in `reader` and `chosen`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from toolformer.errors import UserError
from toolformer.reporting import candidates
from toolformer.reporting.evidence import Annotation, Cost, Curve, RunNote, Score
from toolformer.tracking import Run, StoreFault, Tracker

CURVES = ("loss", "heldout_perplexity", "perplexity_texts", "perplexity_calls")
_POINTS = 400
"""Points of a curve."""
_SKIPPED = "rows_skipped/"


def note(run: Run) -> RunNote:
    system = run.tags.get("system") or run.tags.get("data", "")
    device = run.tags.get("device_name") or run.tags.get("device", "")
    return RunNote(run.run_id, run.stage, system, run.commit, run.started.date().isoformat(), device)


def score_of(run: Run, task: str, value: float) -> Score:
    start = f"{task}/call_share/"
    seconds, speed = run.metrics.get(f"{task}/seconds"), run.metrics.get(f"{task}/tokens_per_second")
    return Score(
        value=value,
        low=run.metrics.get(f"{task}/ci_low"),
        high=run.metrics.get(f"{task}/ci_high"),
        n=_whole(run.metrics.get(f"{task}/n")),
        call_share=run.metrics.get(f"{task}/call_share"),
        tool_shares={key.removeprefix(start): v for key, v in run.metrics.items() if key.startswith(start)},
        run=note(run),
        seconds=seconds,
        tokens=None if seconds is None or speed is None else round(speed * seconds),
        calls=_whole(run.metrics.get(f"{task}/n_ac")),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def curves_of(tracker: Tracker, run: Run, data: str) -> Iterator[Curve]:
    """The run's figures over its steps, of which it need not have a last one: that is none where it is no number."""
    for metric in CURVES:
        points: dict[int, float] = {}
        for step, value in tracker.history(run, metric) or ():
            # The first value of a step counts: earlier versions logged the end's summary at step 0 again.
            points.setdefault(step, value)
        every = max(1, len(points) // _POINTS)
        chosen = sorted(points.items())
        thinned = chosen[::every] + (chosen[-1:] if (len(chosen) - 1) % every else [])
        if len(thinned) > 1:
            yield Curve(data, metric, tuple(thinned))


def training_cost(run: Run) -> Cost:
    # Of one that went on where its time had ended another run, the whole; runs of earlier versions lack it.
    seconds = run.metrics.get("training_seconds", run.metrics.get("duration_seconds"))
    return Cost(seconds, None, _whole(run.metrics.get("train_tokens")))


def annotation_cost(run: Run | None, shown: Annotation | None) -> Cost:
    """What an annotation took; unknown where its run is not found."""
    if run is None:
        return Cost(None)
    if shown and shown.run.run_id == run.run_id:
        return shown.cost
    executed = [value for name, value in run.metrics.items() if name.endswith("/executed")]
    return Cost(_annotating(run), round(sum(executed)) if executed else None)


def _annotating(run: Run) -> float | None:
    """Seconds that the run's shards took, those that it found done with them; of older runs their duration."""
    return run.metrics.get("annotation_seconds", run.metrics.get("duration_seconds"))


def annotation_of(tracker: Tracker, run: Run) -> Annotation:
    """What an annotation found.

    Raises:
        StoreFault: the server that has its files does not answer.
        UserError: a file is gone or cannot be read; the message says only why.
    """
    names = ("candidates.parquet", "dataset_augmented.parquet", "dataset_plain.parquet", "funnel.json")
    files = {name: _file(tracker, run, name) for name in names}
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
        raise UserError(str(error).splitlines()[0][:120]) from error
    skipped = {
        name.removeprefix(_SKIPPED): round(count)
        for name, count in run.metrics.items()
        if name.startswith(_SKIPPED)
    }
    executed = sum(entry.steps.get("executed", 0) for entry in funnel.values())
    cost = Cost(_annotating(run), executed)
    return Annotation(note(run), counts, funnel, examples, skipped, gains, edges, cost, files, baseline)


def _file(tracker: Tracker, run: Run, name: str) -> Path:
    try:
        return tracker.artifact_path(run, name)
    except StoreFault:
        raise
    except UserError as error:
        raise UserError(f"{name} is gone") from error


def _thresholds(run: Run) -> dict[str, float]:
    """τ_f by tool."""
    found: dict[str, float] = {}
    for key, value in run.params.items():
        if key.startswith("tool.") and key.endswith(".filter_threshold"):
            with suppress(ValueError):
                found[key.split(".")[1]] = float(value)
    return found
