"""Stage 3: benchmarks with one of the four systems (paper, section 4).

    model                 M, as it is
    model_cc              M + CC: finetuned on C, the texts without calls
    toolformer_disabled   finetuned on C*, the start token forbidden
    toolformer            finetuned on C*, with its tools

Answers are written down batch by batch, so that an interrupted evaluation goes on with the missing ones.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer import build
from toolformer.config import SYSTEMS, Config, fingerprint
from toolformer.errors import UserError

if TYPE_CHECKING:
    from benchmarks.suite import TaskResult
    from toolformer.tracking import Run, Tracker

log = logging.getLogger(__name__)

TRAINED_ON = {"model_cc": "plain", "toolformer_disabled": "augmented", "toolformer": "augmented"}
SAMPLES = "samples"


@dataclass(frozen=True)
class Evaluated:
    """A finished evaluation."""

    run_id: str
    metrics: dict[str, float]


def checkpoint(tracker: Tracker, reference: str, data: str) -> tuple[Run, Path]:
    """The train run that `reference` names (`latest` or an id) and its model folder.

    Raises:
        UserError: there is no such run, or its model is gone.
    """
    run = tracker.resolve("train", reference, data=data)
    if run.tags.get("data") != data:
        raise UserError(
            f"checkpoint: run {run.run_id} was trained with data={run.tags.get('data')}, not data={data}"
        )
    folder = Path(run.tags.get("model_path", ""))
    if not (folder / "config.json").is_file():
        raise UserError(
            f"checkpoint: the model of train run {run.run_id} is no longer at {folder}; train it again"
        )
    return run, folder


def evaluate(config: Config, parent: str | None = None) -> Evaluated:
    """Runs the benchmarks; an evaluation that is already there is not run again."""
    from benchmarks.suite import task_names

    build.apply_paths(config)
    tasks = task_names(config.benchmarks)
    tracker = build.tracker(config.paths.root, config.tracking)
    trained: Run | None = None
    model = config.model
    if config.system != "model":
        trained, folder = checkpoint(tracker, config.checkpoint, TRAINED_ON[config.system])
        model = str(folder)
    uses_tools = config.system == "toolformer" and config.decoding.k > 0
    identity = {
        "model": {"train": trained.tags["fingerprint"]} if trained else build.model_identity(model),
        "lm": asdict(config.lm),
        "tools": {key: asdict(config.tool[key]) for key in config.tools} if uses_tools else {},
    }
    decoding = {**asdict(config.decoding), "k": config.decoding.k if uses_tools else 0}
    heldout = build.content_hash(build.documents(config.heldout)) if "heldout_perplexity" in tasks else None
    wanted = [tasks, asdict(config.evaluation), heldout, _data_files(config.paths.data_dir), config.seed]
    key = fingerprint("evaluate", config.system, identity, decoding, wanted)
    finger = fingerprint(key, config.name)
    finished = tracker.find_finished("evaluate", finger)
    if finished:
        log.info("evaluate: %s already done by run %s", SYSTEMS[config.system], finished.run_id)
        return Evaluated(finished.run_id, dict(finished.metrics))

    tags: dict[str, object] = {
        "experiment": config.name,
        "system": config.system,
        "decoding.k": decoding["k"],
    }
    if trained:
        tags["lineage.train_run_id"] = trained.run_id
        tags["lineage.dataset_run_id"] = trained.tags.get("lineage.dataset_run_id", "")
    name = f"evaluate {SYSTEMS[config.system]}" + (f" k={decoding['k']}" if uses_tools else "")
    with tracker.run(
        stage="evaluate", name=name, fingerprint=finger, config=asdict(config), tags=tags, parent=parent
    ) as run:
        work = (
            Path(config.paths.root) / "evaluate" / fingerprint("answers", config.system, identity, decoding)
        )
        results, seconds, tokens = _run(config, model, uses_tools, tasks, work, identity)
        metrics: dict[str, float] = {"tokens_per_second": tokens / seconds} if seconds else {}
        names = {config.tool[key].name: key for key in config.tools}
        for task, result in results.items():
            metrics.update(_metrics(task, result, names))
            run.artifact(_write_samples(work / key, task, result), SAMPLES)
        run.metrics(metrics)
        log.info("evaluate: %s, run %s", SYSTEMS[config.system], run.run_id)
        return Evaluated(run.run_id, metrics)


def _run(
    config: Config, model: str, uses_tools: bool, tasks: list[str], work: Path, identity: dict[str, Any]
) -> tuple[dict[str, TaskResult], float, int]:
    """The results, the seconds they took, and the tokens that were written."""
    from benchmarks import suite
    from toolformer.decoding.decoder import Decoder
    from toolformer.decoding.lm_eval_model import ToolformerLM
    from toolformer.language_model import LanguageModel

    work.mkdir(parents=True, exist_ok=True)
    decoding = config.decoding
    decoder = Decoder(
        LanguageModel.from_pretrained(model, config.lm.dtype, config.lm.device),
        build.tools(config, inference=True) if uses_tools else {},
        k=decoding.k if uses_tools else 0,
        max_calls=decoding.max_calls,
        max_call_tokens=decoding.max_call_tokens,
        max_result_tokens=decoding.max_result_tokens,
        min_new_tokens=decoding.min_new_tokens,
        batch_size=decoding.batch_size,
        # A baseline that was never taught to call is left alone; Toolformer (disabled) is forbidden the token.
        mode="plain" if config.system in ("model", "model_cc") else "tools",
    )
    lm = ToolformerLM(decoder, work / "answers.jsonl", identity)
    metadata: dict[str, Any] = {
        "data_dir": config.paths.data_dir,
        "subset": config.evaluation.limit,
        "perplexity_subset": config.evaluation.perplexity_limit,
        "seed": config.seed,
    }
    if "heldout_perplexity" in tasks:
        metadata["heldout_path"] = str(_write_heldout(config, work / "heldout.jsonl"))
    started = time.monotonic()
    results = suite.run(lm, tasks, metadata, bootstrap_iters=config.evaluation.bootstrap, seed=config.seed)
    return results, time.monotonic() - started, sum(record.tokens for record in lm.records)


def _data_files(data_dir: str | None) -> list[tuple[str, int, int]]:
    """The benchmark files that results may depend on, by name, size and time of change."""
    files = sorted(Path(data_dir).expanduser().glob("*/*")) if data_dir else []
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]


def _metrics(task: str, result: TaskResult, names: dict[str, str]) -> dict[str, float]:
    """The figures of a task under the names that the report reads."""
    interval = result.interval
    measure = "perplexity" if result.is_perplexity else "score"
    metrics: dict[str, float] = {
        f"{task}/{measure}": interval.value,
        f"{task}/ci_low": interval.low,
        f"{task}/ci_high": interval.high,
        f"{task}/n": interval.n,
    }
    if result.is_perplexity:
        metrics.update({f"{task}/{name}": other.value for name, other in result.others.items()})
        return metrics
    calls = Counter(sample["tool"] for sample in result.samples if sample["tool"])
    metrics[f"{task}/call_share"] = sum(calls.values()) / interval.n
    metrics[f"{task}/failed_share"] = (
        sum(sample["failed"] is not None for sample in result.samples) / interval.n
    )
    for name, count in calls.items():
        metrics[f"{task}/call_share/{names.get(name, name)}"] = count / interval.n
    return metrics


def _write_heldout(config: Config, path: Path) -> Path:
    """The held-out corpus as the task reads it, whatever it comes from."""
    with path.open("w", encoding="utf-8") as file:
        for document in build.documents(config.heldout):
            row = {"id": document.doc_id, "text": document.text, "url": document.url}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path


def _write_samples(folder: Path, task: str, result: TaskResult) -> Path:
    import pandas

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{task}.parquet"
    pandas.DataFrame(result.samples).to_parquet(path, index=False)
    return path
