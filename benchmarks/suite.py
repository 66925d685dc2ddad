"""Runs benchmarks through lm-eval and puts intervals and samples beside its numbers.

`run` is what the evaluation stage calls. Knows neither Hydra nor MLflow.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lm_eval
import lm_eval.api.task
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from benchmarks import GROUPS, TASKS, TASKS_DIR, switches
from benchmarks.metrics import RESAMPLES, Interval, percent_interval, perplexity_interval
from benchmarks.own import fit, own_tasks, targets
from toolformer.errors import UserError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskResult:
    """What a task came to."""

    task: str
    interval: Interval
    """Score in percent, or perplexity per token (per word where the model counts no tokens)."""
    scores: list[float]
    """A number a document: 0 or 100, or the log-likelihood in nats."""
    samples: list[dict[str, Any]]
    """A row a document, all with the same keys."""
    others: dict[str, Interval] = field(default_factory=dict)
    """Perplexity tasks: `word_perplexity`, and `token_perplexity` where tokens are known."""

    @property
    def is_perplexity(self) -> bool:
        return bool(self.others)


@dataclass(frozen=True)
class Loaded:
    """Tasks with their documents, ready to be asked."""

    names: tuple[str, ...]
    tasks: Any
    """lm-eval's own dictionary of them."""
    switched_off: Mapping[str, frozenset[str]]
    """The tools, by key, that each of them may not use."""


def task_names(names: Sequence[str], tasks_dir: str | Path | None = None) -> list[str]:
    """Tasks and groups as tasks, each once. `tasks_dir` is a folder of the user's own task files.

    Raises:
        UserError: no names, one that is no task or group, or a folder whose tasks cannot be used.
    """
    own = own_tasks(tasks_dir)
    if not names:
        raise UserError(f"benchmarks: the list is empty; name some of {', '.join([*TASKS, *GROUPS])}")
    found: dict[str, None] = {}
    for name in names:
        if name not in TASKS and name not in GROUPS and name not in own:
            raise UserError(f"benchmarks: there is no task or group {name!r}{nearest(name, own)}")
        found.update(dict.fromkeys(GROUPS.get(name, (name,))))
    return list(found)


def nearest(name: str, own: Iterable[str] = ()) -> str:
    """The end of a sentence about a name that is not known: what it may have been meant to be."""
    known = [*TASKS, *GROUPS, *own]
    near = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {' or '.join(near)}?" if near else f"; known are {', '.join(known)}"


def load(
    tasks: Sequence[str],
    metadata: Mapping[str, Any] | None = None,
    ids: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    tasks_dir: str | Path | None = None,
) -> Loaded:
    """Reads the documents of tasks; no model is needed, so bad data is found before one is loaded.

    `metadata` goes to the loaders (data_dir, heldout_path, subset, seed, ...; see benchmarks/loaders.py). `ids`
    leaves only the documents with these ids (their field `id`), given for each task, or in one list for all.
    `tasks_dir` is a folder of the user's own task files.

    Raises:
        UserError: an unknown task, a benchmark whose data is missing or of another schema, an unknown id, or a task of
            the user's that cannot be asked and scored as the others.
    """
    names = task_names(tasks, tasks_dir)
    own = own_tasks(tasks_dir)
    folders = [TASKS_DIR, *([Path(tasks_dir).expanduser().resolve()] if tasks_dir is not None else [])]
    with _quiet():
        manager = TaskManager(include_path=folders, include_defaults=False, metadata=dict(metadata or {}))
        try:
            loaded = manager.load(names)
        except UserError:
            raise
        except Exception as error:
            mine = [str(own[name]) for name in names if name in own]
            if not mine:
                raise
            raise UserError(
                f"paths.tasks_dir: {', '.join(mine)} cannot be loaded: {type(error).__name__}: {error}"
            ) from error
    for name in names:
        if name in own:
            fit(own[name], loaded["tasks"][name], metadata or {})
    if ids is not None:
        _choose(loaded["tasks"], ids)
    off = {
        name: switches.of_metadata(loaded["tasks"][name].config.metadata, str(own.get(name, name)))
        for name in names
    }
    return Loaded(tuple(names), loaded, off)


def _choose(tasks: Mapping[str, Any], ids: Mapping[str, Sequence[str]] | Sequence[str]) -> None:
    """Leaves the documents with these ids; lm-eval numbers those that are left anew."""
    if isinstance(ids, Mapping):
        unknown = sorted(set(ids) - set(tasks))
        if unknown:
            raise UserError(f"samples: {unknown[0]!r} is not among the benchmarks {', '.join(tasks)}")
        absent = sorted(set(tasks) - set(ids))
        if absent:
            raise UserError(
                f"samples: no ids are given for {absent[0]}; give some, or leave the benchmark out"
            )
    found: set[str] = set()
    for name, task in tasks.items():
        split = task.config.test_split
        wanted = {str(one) for one in (ids[name] if isinstance(ids, Mapping) else ids)}
        there = [str(one) for one in task.dataset[split]["id"]]
        rows = [row for row, one in enumerate(there) if one in wanted]
        missing = sorted(wanted - set(there))
        if not rows or (missing and isinstance(ids, Mapping)):
            raise UserError(
                f"samples: {name} has no document {(missing or [''])[0]!r}; its {len(there)} ids are like "
                f"{', '.join(there[:3])}"
            )
        found.update(wanted - set(missing))
        task.dataset[split] = task.dataset[split].select(rows)
    if not isinstance(ids, Mapping) and set(map(str, ids)) - found:
        unknown = sorted(set(map(str, ids)) - found)
        raise UserError(f"samples: none of {', '.join(tasks)} has a document {unknown[0]!r}")


def run(
    lm: LM,
    tasks: Sequence[str] | Loaded,
    metadata: Mapping[str, Any] | None = None,
    limit: int | None = None,
    bootstrap_iters: int = RESAMPLES,
    seed: int = 0,
    ids: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
) -> dict[str, TaskResult]:
    """Evaluates a model; a result a task, in the order asked for.

    `tasks` are names, loaded with `metadata` and `ids` (see `load`), or what `load` gave. `limit` takes the first
    documents only (as lm-eval's), `metadata`'s `subset` a seeded choice. `bootstrap_iters` and `seed` make the
    intervals.

    Raises:
        UserError: an unknown task, or a benchmark whose data is missing.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit is {limit}; it must be at least 1")
    loaded = tasks if isinstance(tasks, Loaded) else load(tasks, metadata, ids)
    before = len(getattr(lm, "records", []))
    with _quiet():
        # lm-eval's own bootstrap knows nothing of perplexities: the intervals are made below.
        results = lm_eval.evaluate(lm, loaded.tasks, limit=limit, bootstrap_iters=0)
    if results is None:
        raise UserError("benchmarks: this process is not rank 0; run the evaluation in one process")
    records = {(record.task, record.doc_id): record for record in getattr(lm, "records", [])[before:]}
    found: dict[str, TaskResult] = {}
    for name in loaded.names:
        samples = sorted(results["samples"][name], key=lambda sample: sample["doc_id"])
        rows = [(sample, records.get((name, sample["doc_id"]))) for sample in samples]
        make = _scored if "score" in samples[0] else _perplexity
        found[name] = make(name, rows, bootstrap_iters, seed)
        interval = found[name].interval
        log.info(
            "%s: %.2f [%.2f, %.2f], n = %d", name, interval.value, interval.low, interval.high, interval.n
        )
    return found


def _scored(name: str, rows: Sequence[tuple[Any, Any]], resamples: int, seed: int) -> TaskResult:
    samples: list[dict[str, Any]] = []
    for sample, record in rows:
        document = sample["doc"]
        completion = record.completion if record else None
        call = completion.call if completion else None
        prediction = completion.plain if completion else sample["resps"][0][0]
        score = float(sample["score"])
        samples.append(
            {
                "doc_id": sample["doc_id"],
                "id": str(document["id"]),
                "family": document.get("family"),
                "current_date": document.get("current_date"),
                "prompt": sample["arguments"][0][0],
                "completion": completion.text if completion else prediction,
                "tools": [one.tool for one in completion.calls] if completion else [],
                "tool": call.tool if call else None,
                "call_input": call.input if call else None,
                "call_result": call.result if call else None,
                "failed": completion.failed if completion else None,
                "fault": completion.fault if completion else False,
                "prompt_cut": completion.prompt_cut if completion else None,
                "prediction": prediction,
                "target": targets(sample["doc"], sample["target"]),
                "correct": score >= 100,
                "score": score,
                "tokens": record.tokens if record else None,
                "seconds": record.seconds if record else None,
            }
        )
    scores = [sample["score"] for sample in samples]
    return TaskResult(name, percent_interval([s / 100 for s in scores], seed, resamples), scores, samples)


def _perplexity(name: str, rows: Sequence[tuple[Any, Any]], resamples: int, seed: int) -> TaskResult:
    samples: list[dict[str, Any]] = []
    for sample, record in rows:
        log_likelihood, words = sample["word_perplexity"]
        (text,) = sample["arguments"][0]
        samples.append(
            {
                "doc_id": sample["doc_id"],
                "id": str(sample["doc"]["id"]),
                "text_sha256": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
                "log_likelihood": float(log_likelihood),
                "tokens": record.tokens if record else None,
                "seconds": record.seconds if record else None,
                "words": int(words),
                "bytes": int(sample["byte_perplexity"][1]),
            }
        )
    sums = [sample["log_likelihood"] for sample in samples]
    others = {
        f"{unit[:-1]}_perplexity": perplexity_interval(sums, [s[unit] for s in samples], seed, resamples)
        for unit in ("words", "tokens")
        if all(s[unit] is not None for s in samples)
    }
    return TaskResult(name, others.get("token_perplexity", others["word_perplexity"]), sums, samples, others)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """lm-eval without its log lines, its bar over prompts, and its process pool for bootstraps."""
    logger = logging.getLogger("lm_eval")
    level, bar = logger.level, lm_eval.api.task.tqdm
    pool = os.environ.get("DISABLE_MULTIPROC")
    logger.setLevel(logging.ERROR)
    lm_eval.api.task.tqdm = functools.partial(bar, disable=True)
    os.environ["DISABLE_MULTIPROC"] = "1"
    try:
        yield
    finally:
        logger.setLevel(level)
        lm_eval.api.task.tqdm = bar
        if pool is None:
            del os.environ["DISABLE_MULTIPROC"]
        else:
            os.environ["DISABLE_MULTIPROC"] = pool
