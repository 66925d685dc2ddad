"""Runs benchmarks through lm-eval and puts intervals and samples beside its numbers.

`run` is what the evaluation stage calls. `python -m benchmarks.suite` is lm-eval's own command line with this
project's model and tasks in it (lm-eval has no way to find them by itself). Knows neither Hydra nor MLflow.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import lm_eval
import lm_eval.api.task
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from benchmarks import GROUPS, TASKS, TASKS_DIR
from benchmarks.metrics import RESAMPLES, Interval, percent_interval, perplexity_interval
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


def task_names(names: Sequence[str]) -> list[str]:
    """Tasks and groups as tasks, each once.

    Raises:
        UserError: no names, or one that is no task or group.
    """
    if not names:
        raise UserError(f"benchmarks: the list is empty; name some of {', '.join([*TASKS, *GROUPS])}")
    found: dict[str, None] = {}
    for name in names:
        if name not in TASKS and name not in GROUPS:
            near = difflib.get_close_matches(name, [*TASKS, *GROUPS], n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join([*TASKS, *GROUPS])}"
            raise UserError(f"benchmarks: there is no task or group {name!r}{hint}")
        found.update(dict.fromkeys(GROUPS.get(name, (name,))))
    return list(found)


def run(
    lm: LM,
    tasks: Sequence[str],
    metadata: Mapping[str, Any] | None = None,
    limit: int | None = None,
    bootstrap_iters: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, TaskResult]:
    """Evaluates a model; a result a task, in the order asked for.

    `metadata` goes to the loaders (data_dir, heldout_path, subset, seed, ...; see benchmarks/loaders.py).
    `limit` takes the first documents only, `subset` a seeded choice. `bootstrap_iters` and `seed` make the
    intervals.

    Raises:
        UserError: an unknown task, or a benchmark whose data is missing.
    """
    names = task_names(tasks)
    if limit is not None and limit < 1:
        raise UserError(f"limit is {limit}; it must be at least 1")
    before = len(getattr(lm, "records", []))
    with _quiet():
        manager = TaskManager(include_path=TASKS_DIR, include_defaults=False, metadata=dict(metadata or {}))
        # lm-eval's own bootstrap knows nothing of perplexities: the intervals are made below.
        results = lm_eval.evaluate(lm, manager.load(names), limit=limit, bootstrap_iters=0)
    if results is None:
        raise UserError("benchmarks: this process is not rank 0; run the evaluation in one process")
    records = {(record.task, record.doc_id): record for record in getattr(lm, "records", [])[before:]}
    found: dict[str, TaskResult] = {}
    for name in names:
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
        plain = completion.plain if completion else sample["resps"][0][0]
        samples.append(
            {
                "doc_id": sample["doc_id"],
                "id": str(document["id"]),
                "family": document.get("family"),
                "current_date": document.get("current_date"),
                "prompt": sample["arguments"][0][0],
                "answers": list(document["answers"] if "answers" in document else [document["answer"]]),
                "completion": completion.text if completion else plain,
                "plain": plain,
                "tool": call.tool if call else None,
                "call_input": call.input if call else None,
                "call_result": call.result if call else None,
                "failed": completion.failed if completion else None,
                "tokens": record.tokens if record else None,
                "score": float(sample["score"]),
            }
        )
    scores = [sample["score"] for sample in samples]
    return TaskResult(name, percent_interval([s / 100 for s in scores], seed, resamples), scores, samples)


def _perplexity(name: str, rows: Sequence[tuple[Any, Any]], resamples: int, seed: int) -> TaskResult:
    samples: list[dict[str, Any]] = []
    for sample, record in rows:
        log_likelihood, words = sample["word_perplexity"]
        samples.append(
            {
                "doc_id": sample["doc_id"],
                "id": str(sample["doc"]["id"]),
                "log_likelihood": float(log_likelihood),
                "tokens": record.tokens if record else None,
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


def main() -> None:
    """lm-eval's command line, with the model `toolformer` and the tasks of this folder."""
    from lm_eval.__main__ import cli_evaluate

    # Imported for its registration only.
    import toolformer.decoding.lm_eval_model  # noqa: F401

    asked = " ".join(sys.argv[1:])
    if "--tasks" in asked and "--include_path" not in asked:
        sys.argv += ["--include_path", str(TASKS_DIR)]
    try:
        cli_evaluate()
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
