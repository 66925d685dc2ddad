"""What is shown of an evaluation: its result in the log; in MLflow's pages its data, its model's scores, samples and traces."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolformer.stages.config import Config
from toolformer.tracking import ActiveRun, Run
from toolformer.tracking.entities import Dataset, log_trace
from toolformer.tracking.run import LOGGED_MODEL

if TYPE_CHECKING:
    from toolformer.evaluation.suite import TaskResult

log = logging.getLogger(__name__)

SHOWN = 40
"""Samples in the table, of all benchmarks together."""
TRACED = 8
"""Samples with calls that get a trace."""
_COLUMNS = ("prompt", "completion", "target", "score", "tool", "call_input", "call_result", "failed")


def log_result(run: Run, how: str) -> None:
    """A line with the run and its dtype, and one a benchmark: `arithmetic: 41.0 % correct [31.0, 51.0] (n = 100)`."""
    metrics, dtype = run.metrics, run.tags.get("dtype", "")
    log.info("evaluate: %s, run %s%s", how, run.run_id[:8], f", in {dtype}" if dtype else "")
    for key, value in sorted(metrics.items()):
        task, _, kind = key.rpartition("/")
        if kind in ("score", "perplexity"):
            low, high, n = (
                metrics.get(f"{task}/{name}", float("nan")) for name in ("ci_low", "ci_high", "n")
            )
            figure = f"{value:.1f} % correct" if kind == "score" else f"perplexity {value:.2f}"
            log.info("%s: %s [%.1f, %.1f] (n = %.0f)", task, figure, low, high, n)


def show(run: ActiveRun, results: Mapping[str, TaskResult], config: Config, trained: Run | None) -> None:
    """Logs it; `Score/TASK` and `Perplexity/TASK` repeat the main figures under names that come first in comparisons."""
    model = trained.tags.get(LOGGED_MODEL, "") if trained and not trained.stored_as else ""
    if model:
        run.uses_model(model)
    for task, result in results.items():
        asked = [[sample["id"], sample.get("prompt", sample.get("text_sha256"))] for sample in result.samples]
        digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
        source = f"{config.paths.data_dir}/{task}" if config.paths.data_dir else task
        data = Dataset(task, digest, "evaluation", source, len(asked))
        run.datasets(data)
        name = "Perplexity" if result.is_perplexity else "Score"
        run.metrics({f"{name}/{task}": result.interval.value}, model=model, of=data)
    answered = {task: result.samples for task, result in results.items() if not result.is_perplexity}
    rows = [
        {"task": task, "id": sample["id"], **{key: sample[key] for key in _COLUMNS}}
        for task, samples in answered.items()
        for sample in samples[: max(1, SHOWN // len(answered))]
    ]
    if rows:
        run.table("samples", rows)
    called = [sample for samples in answered.values() for sample in samples if sample["call_result"]]
    for sample in called[:: max(1, len(called) // TRACED)][:TRACED]:
        call = (sample["tool"], sample["call_input"], sample["call_result"])
        log_trace(
            run.store, sample["prompt"], sample["completion"], [call], sample["seconds"] or 0, run.run_id
        )
