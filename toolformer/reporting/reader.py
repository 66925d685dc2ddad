"""What a report needs, read from the runs into plain data; the only part of it that knows the tracker.

For each system and task the newest finished evaluation counts, and the newest finished annotation; nothing is
computed by a model here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from toolformer.calls import CallSyntaxError, parse
from toolformer.errors import UserError
from toolformer.reporting import paper
from toolformer.reporting.evidence import (
    STEPS,
    Annotation,
    Counts,
    Evidence,
    Example,
    KScore,
    RunNote,
    Score,
    ToolFunnel,
)
from toolformer.tracking import Run, Tracker

DEFAULT_K = "10"
KEPT_PER_TOOL = 2
WORST = 2
_LOOKED_AT = 300  # rows of each tool, at either end of its gains, among which examples are chosen
_SKIPPED = "rows_skipped/"


def read(tracker: Tracker, experiment: str | None = None) -> Evidence:
    """Everything in the store that a report shows, restricted to runs tagged `experiment` if given.

    Raises:
        UserError: no finished run has this tag, or an artifact is gone or cannot be read.
    """
    tags = {"experiment": experiment} if experiment else {}
    generated = tracker.runs("generate", **tags)
    trained = tracker.runs("train", **tags)
    evaluated = tracker.runs("evaluate", **tags)
    if experiment and not (generated or trained or evaluated):
        raise UserError(
            f"no finished run is of the experiment {experiment}: run a stage with name={experiment}, or name another"
        )
    scores = _scores(evaluated)
    annotation = _annotation(tracker, generated[0]) if generated else None
    shown = {score.run.run_id for score in scores.values()}
    parents = list(_parents(tracker, [run for run in evaluated if run.run_id in shown]))
    data: dict[str, RunNote] = {}
    for run in trained:
        data.setdefault(run.tags.get("data", ""), _note(run))
    own = annotation.run.run_id if annotation else None
    return Evidence(
        experiment,
        annotation,
        scores,
        data,
        tuple(_note(run) for run in parents if run.run_id != own),
        tuple(_remarks(parents, own)),
        _by_k(evaluated),
        _baselines(evaluated),
    )


def _note(run: Run) -> RunNote:
    system = run.tags.get("system") or run.tags.get("data", "")
    device = run.tags.get("device_name") or run.tags.get("device", "")
    return RunNote(run.run_id, run.stage, system, run.commit, run.started.date().isoformat(), device)


def _scores(runs: Iterable[Run]) -> dict[tuple[str, str], Score]:
    found: dict[tuple[str, str], Score] = {}
    for run in runs:  # the newest first
        system = run.tags.get("system", "")
        k = run.tags.get("decoding.k") or run.params.get("decoding.k", DEFAULT_K)
        if system not in paper.SYSTEMS or (system == "toolformer" and k != DEFAULT_K):
            continue
        for task, value in _measured(run):
            found.setdefault((system, task), _score(run, task, value))
    return found


def _measured(run: Run) -> Iterator[tuple[str, float]]:
    for name, value in run.metrics.items():
        task, _, kind = name.rpartition("/")
        if kind in ("score", "perplexity") and "/" not in task:
            yield task, value


def _baselines(runs: Iterable[Run]) -> dict[tuple[str, str], Score]:
    found: dict[tuple[str, str], Score] = {}
    for run in runs:  # the newest first
        if run.tags.get("baseline"):
            for task, value in _measured(run):
                found.setdefault((run.tags["baseline"], task), _score(run, task, value))
    return found


def _by_k(runs: Iterable[Run]) -> dict[tuple[int, str], KScore]:
    found: dict[tuple[int, str], KScore] = {}
    for run in runs:  # the newest first
        k = run.tags.get("decoding.k", "")
        for task, value in _measured(run) if run.tags.get("system") == "toolformer" and k.isdecimal() else ():
            figures = {key: run.metrics.get(f"{task}/{key}") for key in ("n", "n_ac", "n_nc")}
            if all(one is not None for one in figures.values()):
                n, n_ac, n_nc = (round(one or 0) for one in figures.values())
                ac, nc = run.metrics.get(f"{task}/score_ac"), run.metrics.get(f"{task}/score_nc")
                found.setdefault((int(k), task), KScore(value, n, ac, n_ac, nc, n_nc))
    return found


def _score(run: Run, task: str, value: float) -> Score:
    start = f"{task}/call_share/"
    n = run.metrics.get(f"{task}/n")
    return Score(
        value=value,
        low=run.metrics.get(f"{task}/ci_low"),
        high=run.metrics.get(f"{task}/ci_high"),
        n=None if n is None else round(n),
        call_share=run.metrics.get(f"{task}/call_share"),
        tool_shares={key.removeprefix(start): v for key, v in run.metrics.items() if key.startswith(start)},
        run=_note(run),
    )


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


def _remarks(parents: Iterable[Run], own: str | None) -> Iterator[str]:
    others = sorted({run.run_id for run in parents if run.stage == "generate" and run.run_id != own})
    if own and others:
        names = ", ".join(run_id[:8] for run_id in others)
        yield (
            f"The evaluated models were trained on the data of generate run {names}; the tables on "
            f"annotation show the newer run {own[:8]}."
        )


def _annotation(tracker: Tracker, run: Run) -> Annotation:
    candidates = tracker.artifact_path(run, "candidates.parquet")
    augmented = tracker.artifact_path(run, "dataset_augmented.parquet")
    plain = tracker.artifact_path(run, "dataset_plain.parquet")
    funnel = _funnel(tracker.artifact_path(run, "funnel.json"))
    try:
        scored = _scored(candidates, run.params.get("filter.baseline", "paper"))
        counts = _counts(scored, set(funnel))
        examples = _examples(scored, _kept(augmented))
        texts = _texts(plain, {example.doc_id for example in examples})
    except (
        OSError,
        KeyError,
        ValueError,
        TypeError,
    ) as error:  # pyarrow's errors are ValueErrors and KeyErrors
        raise UserError(
            f"the artifacts of generate run {run.run_id} cannot be read ({str(error).splitlines()[0][:120]}): "
            "run `toolformer generate` again"
        ) from error
    chosen = _choose([_with_text(example, texts) for example in examples])
    skipped = {
        name.removeprefix(_SKIPPED): round(count)
        for name, count in run.metrics.items()
        if name.startswith(_SKIPPED)
    }
    return Annotation(_note(run), counts, funnel, tuple(chosen), skipped)


def _scored(path: Path, baseline: str) -> Any:
    """The scored candidates as a table, the largest gain first; ties by place and sample.

    The file has the paper's gain; with the baseline `plain` it is L(ε) − L(e(c, r)), as in merging.
    """
    names = ["doc_id", "tool", "position", "sample", "call", "result"]
    gain = ds.field("loss_none") - ds.field("loss_result") if baseline == "plain" else ds.field("gain")
    valid = (ds.field("status") == "scored") & gain.is_valid() & ~gain.is_nan()
    columns = {name: ds.field(name) for name in names} | {"gain": gain}
    table = ds.dataset(path, format="parquet").to_table(columns=columns, filter=valid)
    order = [
        ("gain", "descending"),
        ("doc_id", "ascending"),
        ("position", "ascending"),
        ("sample", "ascending"),
    ]
    return table.sort_by(order)


def _counts(scored: Any, tools: set[str]) -> dict[tuple[str, float], Counts]:
    """Examples and calls by tool and τ_f, as `merge` would keep them: one call of a tool at a position."""
    places = scored.group_by(["tool", "doc_id", "position"]).aggregate([("gain", "max")])
    found: dict[tuple[str, float], Counts] = {}
    for threshold in paper.THRESHOLDS:
        kept = places.filter(pc.field("gain_max") >= threshold)
        rows = (
            kept.group_by("tool").aggregate([("doc_id", "count_distinct"), ("doc_id", "count")]).to_pylist()
        )
        by_tool = {row["tool"]: Counts(row["doc_id_count_distinct"], row["doc_id_count"]) for row in rows}
        for tool in tools | set(pc.unique(scored["tool"]).to_pylist()):
            found[tool, threshold] = by_tool.get(tool, Counts(0, 0))
    return found


def _kept(path: Path) -> set[tuple[str, str, int]]:
    rows = pq.read_table(path, columns=["doc_id", "calls"]).to_pylist()
    return {(row["doc_id"], call["tool"], call["position"]) for row in rows for call in row["calls"] or ()}


def _examples(scored: Any, kept: set[tuple[str, str, int]]) -> list[Example]:
    """The best call of each place, from both ends of every tool's gains."""
    found: list[Example] = []
    for tool in sorted(pc.unique(scored["tool"]).to_pylist()):
        rows = scored.filter(pc.field("tool") == tool)
        seen: set[tuple[str, int]] = set()
        ends = (
            [rows]
            if len(rows) <= 2 * _LOOKED_AT
            else [rows.slice(0, _LOOKED_AT), rows.slice(len(rows) - _LOOKED_AT)]
        )
        for row in (row for end in ends for row in end.to_pylist()):
            place = (row["doc_id"], row["position"])
            if place in seen:
                continue
            seen.add(place)
            with suppress(CallSyntaxError):
                call = parse(row["call"]).with_result(row["result"] or "")
                stays = (row["doc_id"], tool, row["position"]) in kept
                found.append(Example(tool, row["doc_id"], row["position"], call, row["gain"], stays, None))
    return found


def _texts(path: Path, doc_ids: set[str]) -> dict[str, str]:
    table = ds.dataset(path, format="parquet").to_table(
        columns=["doc_id", "text"], filter=ds.field("doc_id").isin(pa.array(sorted(doc_ids), pa.string()))
    )
    return dict(zip(table["doc_id"].to_pylist(), table["text"].to_pylist(), strict=True))


def _with_text(example: Example, texts: Mapping[str, str]) -> Example:
    text = texts.get(example.doc_id)
    if text is None or not 0 <= example.position <= len(text):
        return example
    return Example(
        example.tool, example.doc_id, example.position, example.call, example.gain, example.kept, text
    )


def _choose(examples: list[Example]) -> list[Example]:
    """Table 10: of each tool the best kept calls and the nearest miss, and the calls that did most harm.

    Texts are shown once, as long as there are others.
    """
    used: set[str] = set()
    chosen: list[Example] = []

    def take(pool: list[Example], wanted: int) -> None:
        # A call whose text is at hand tells more; among those the order stays.
        for example in sorted(pool, key=lambda one: (one.text is None, one.doc_id in used))[:wanted]:
            used.add(example.doc_id)
            chosen.append(example)

    tools = sorted({example.tool for example in examples})
    for tool in tools:
        take([one for one in examples if one.tool == tool and one.kept], KEPT_PER_TOOL)
    for tool in tools:
        take([one for one in examples if one.tool == tool and not one.kept], 1)
    take(
        sorted((one for one in examples if not one.kept and one not in chosen), key=lambda one: one.gain),
        WORST,
    )
    return sorted(chosen, key=lambda one: (not one.kept, -one.gain, one.doc_id, one.position))


def _funnel(path: Path) -> dict[str, ToolFunnel]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {
            tool: ToolFunnel(
                {step: int(entry[step]) for step in STEPS if step in entry},
                *(
                    {str(reason): int(n) for reason, n in entry.get(name, {}).items()}
                    for name in ("reasons", "drop_reasons", "window_reasons", "filter_reasons")
                ),
            )
            for tool, entry in content.items()
        }
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UserError(f"{path} is no funnel ({error}): run `toolformer generate` again") from error
