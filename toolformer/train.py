"""Stage 2: finetuning on C* (data=augmented, makes Toolformer) or on C (data=plain, makes M + CC); paper, section 2.

Reads the dataset of a generate run through MLflow and leaves a normal Transformers folder, named by its run.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.parquet as pq

from toolformer import build
from toolformer.config import Config, fingerprint
from toolformer.errors import UserError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    """A finished finetuning."""

    run_id: str
    model: Path
    heldout_perplexity: float


def train(config: Config, parent: str | None = None) -> Trained:
    """Finetunes the model; an interrupted run goes on from its last checkpoint."""
    from toolformer.training.settings import TrainingSettings

    build.apply_paths(config)
    trainer = asdict(config.trainer)
    limit = trainer.pop("limit_per_tool")
    settings = TrainingSettings(**trainer, dtype=config.lm.dtype, device=config.lm.device, seed=config.seed)
    tracker = build.tracker(config.paths.root, config.tracking)
    dataset = tracker.resolve("generate", config.dataset)
    heldout = list(itertools.islice(build.documents(config.heldout), 1000))
    key = fingerprint(
        "train",
        dataset.tags["fingerprint"],
        config.data,
        build.model_identity(config.model),
        {**asdict(config.trainer), "seed": config.seed, **asdict(config.lm)},
        build.content_hash(heldout),
    )
    folder = Path(config.paths.root) / "train" / key
    finger = fingerprint(key, config.name)
    finished = tracker.find_finished("train", finger)
    if finished and (folder / "model").is_dir():
        log.info("train: %s already done by run %s", config.data, finished.run_id)
        return Trained(finished.run_id, folder / "model", finished.metrics["heldout_perplexity"])

    from toolformer.training.data import limit_per_tool

    rows = pq.read_table(tracker.artifact_path(dataset, "dataset_augmented.parquet")).to_pylist()
    if not rows:
        raise UserError(
            f"dataset: run {dataset.run_id} kept no call, so there is nothing to train on; lower "
            "tool.<name>.filter_threshold or give more documents, and run toolformer generate again"
        )
    chosen = limit_per_tool(rows, limit=limit, seed=config.seed)
    if config.data == "plain":
        plain = pq.read_table(tracker.artifact_path(dataset, "dataset_plain.parquet")).to_pylist()
        texts_of = {row["doc_id"]: row["text"] for row in plain}
        texts = [texts_of[row["doc_id"]] for row in chosen]
    else:
        texts = [row["text"] for row in chosen]
    from toolformer.training.trainer import train as finetune

    log.info(
        "train: %d texts of C%s, %d held-out texts",
        len(texts),
        "*" if config.data == "augmented" else "",
        len(heldout),
    )
    with tracker.run(
        stage="train", name=f"train {config.data}", fingerprint=finger, config=asdict(config),
        tags={"experiment": config.name, "data": config.data, "lineage.dataset_run_id": dataset.run_id}, parent=parent,
    ) as run:  # fmt: skip
        result = finetune(
            config.model,
            texts,
            [document.text for document in heldout],
            settings,
            folder,
            on_log=lambda values, step: run.metrics(values, step=step),
        )
        run.metrics(
            {
                "heldout_perplexity": result.heldout_perplexity,
                "initial_heldout_perplexity": result.initial_heldout_perplexity,
                "best_step": result.best_step,
                "texts": len(texts),
                "train_tokens": result.tokens,
                "tokens_per_second": result.tokens / result.seconds if result.seconds else None,
            }
        )
        run.metrics(
            {
                f"examples/{tool}": sum(any(c["tool"] == tool for c in r["calls"]) for r in chosen)
                for tool in config.tools
            }
        )
        run.tag("model_path", str(result.model_path))
        log.info(
            "train: held-out perplexity %.2f -> %.2f; run %s",
            result.initial_heldout_perplexity,
            result.heldout_perplexity,
            run.run_id,
        )
        return Trained(run.run_id, Path(result.model_path), result.heldout_perplexity)
