"""Stage 2: finetuning on C* (data=augmented, makes Toolformer) or on C (data=plain, makes M + CC); paper, section 2.

Reads the dataset of a generate run through MLflow and leaves a normal Transformers folder, named by its run.
"""

from __future__ import annotations

import itertools
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from filelock import FileLock

from toolformer import build, registry
from toolformer.annotation.shards import acquired
from toolformer.config import Config, fingerprint
from toolformer.descriptions import describe, model_name
from toolformer.errors import UserError
from toolformer.training.checkpoints import RECORD, read_json, suffices

if TYPE_CHECKING:
    from toolformer.documents import Document
    from toolformer.tracking import Run, Tracker
    from toolformer.training.settings import TrainingResult, TrainingSettings
    from toolformer.training.trainer import OnLog

log = logging.getLogger(__name__)

_ENDED_BY = "ended_by_max_hours"
"""Tag of a run that its time ended: the hours that it was given."""


@dataclass(frozen=True)
class Trained:
    """A finished finetuning."""

    run_id: str
    model: Path
    heldout_perplexity: float


@dataclass(frozen=True)
class _Job:
    """A finetuning, told from any other by its fingerprint."""

    settings: TrainingSettings
    data: str
    dataset: Run
    heldout: list[Document]
    folder: Path
    finger: str


def _job(config: Config, tracker: Tracker) -> _Job:
    from toolformer.training.settings import TrainingSettings

    trainer = asdict(config.trainer)
    trainer.pop("limit_per_tool")
    trainer.pop("other_tokenizer")
    settings = TrainingSettings(**trainer, dtype=config.lm.dtype, device=config.lm.device, seed=config.seed)
    dataset = tracker.resolve("generate", config.dataset)
    heldout = list(itertools.islice(build.documents(config.heldout, "heldout"), 1000))
    key = fingerprint(
        "train",
        dataset.tags["fingerprint"],
        config.data,
        build.model_identity(config.model),
        # What may change between an interruption and the rest (the micro batch, after a want of memory) is left out.
        settings.deciding()
        | {name: getattr(config.trainer, name) for name in ("limit_per_tool", "other_tokenizer")},
        build.content_hash(heldout),
    )
    folder = Path(config.paths.root) / "train" / f"{config.data}-{key}"
    return _Job(settings, config.data, dataset, heldout, folder, fingerprint(key, config.name))


def _done(job: _Job, tracker: Tracker) -> Run | None:
    """The run that did this finetuning; one that its time ended counts where no more time is given."""
    run = tracker.find_finished("train", job.finger)
    ended_by = run.tags.get(_ENDED_BY) if run else None
    return run if suffices(float(ended_by) if ended_by else None, job.settings.max_hours) else None


def _trained(job: _Job, tracker: Tracker) -> Trained | None:
    run = _done(job, tracker)
    if run is None:
        return None
    model = job.folder / Path(run.tags["model_path"]).name
    # Beside the model stands what runs of earlier versions do not tell in MLflow: the perplexity of the kept model.
    record = read_json(model / RECORD)
    if record is None:
        return None
    log.info("train: %s already done by run %s", job.data, run.run_id)
    return Trained(run.run_id, model, float(record["heldout_perplexity"]))


def finished(config: Config) -> str | None:
    """The id of the run that did this finetuning, if one did; its model may be gone. Loads no model."""
    build.apply_paths(config)
    tracker = build.tracker(config.paths.root, config.tracking)
    done = _done(_job(config, tracker), tracker)
    return done.run_id if done else None


def train(config: Config, parent: str | None = None, command: str = "") -> Trained:
    """Finetunes the model; an interrupted run goes on from its last checkpoint.

    Given twice at once, the second command waits and takes the model of the first.
    """
    build.apply_paths(config)
    tracker = build.tracker(config.paths.root, config.tracking)
    job = _job(config, tracker)
    if done := _trained(job, tracker):
        return done
    from toolformer.training.distributed import agreed_configuration

    agreed_configuration(job.settings)  # refused before a run is begun
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # Processes that train together cannot wait one by one: finetuning refuses a folder that is held.
        return _train(config, job, tracker, parent, command)
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{job.folder} cannot be written ({error.strerror}): change paths.root") from error
    turn = FileLock(job.folder / "lock", thread_local=False)
    if not acquired(turn):
        log.info("train: another process trains this model; waiting, it is taken as it is")
        while not acquired(turn, wait=True):
            pass
    try:
        return _trained(job, tracker) or _train(config, job, tracker, parent, command)
    finally:
        turn.release()


def _train(config: Config, job: _Job, tracker: Tracker, parent: str | None, command: str) -> Trained:
    """The tracked run."""
    dataset, heldout, folder, finger = job.dataset, job.heldout, job.folder, job.finger
    if not config.trainer.other_tokenizer:
        _check_tokenizer(dataset, config.model)
    from toolformer.loading import number_format
    from toolformer.training.data import examples_per_tool, limit_per_tool
    from toolformer.training.tokens import AnnotatedText, annotated
    from toolformer.training.trainer import train as finetune

    rows = pq.read_table(tracker.artifact_path(dataset, "dataset_augmented.parquet")).to_pylist()
    if not rows:
        raise UserError(
            f"dataset: run {dataset.run_id} kept no call, so there is nothing to train on; lower "
            "tool.<name>.filter_threshold or give more documents, and run toolformer generate again (its log counts why calls "
            "were dropped)"
        )
    chosen = limit_per_tool(rows, limit=config.trainer.limit_per_tool, seed=config.seed)
    plain = pq.read_table(tracker.artifact_path(dataset, "dataset_plain.parquet")).to_pylist()
    texts_of = {row["doc_id"]: row["text"] for row in plain}
    texts: list[str | AnnotatedText] = [texts_of[row["doc_id"]] for row in chosen]
    if config.data == "augmented":
        positions = [[call["position"] for call in row["calls"]] for row in chosen]
        texts = [
            annotated(texts_of[row["doc_id"]], row["text"], of_row)
            for row, of_row in zip(chosen, positions, strict=True)
        ]
    log.info(
        "train: %d texts of C%s, %d held-out texts",
        len(texts),
        "*" if config.data == "augmented" else "",
        len(heldout),
    )

    def finish(on_log: OnLog | None) -> TrainingResult:
        held = [document.text for document in heldout]
        return finetune(config.model, texts, held, job.settings, folder, on_log=on_log)

    if int(os.environ.get("RANK", "0")):
        # Of several processes the first one does the book-keeping.
        result = finish(None)
        return Trained("", Path(result.model_path), result.heldout_perplexity)
    lineage = {"experiment": config.name, "data": config.data, "lineage.dataset_run_id": dataset.run_id}
    model = model_name(config.model)
    facts = {"model": model, "data": config.data, "texts": len(texts)}
    computed = {"dtype": number_format(config.lm.dtype, config.lm.device)}
    with tracker.run(
        stage="train", name=f"train {model} {config.data}", fingerprint=finger, config=asdict(config),
        tags=lineage | computed, parent=parent, description=describe(command, facts, [dataset]),
    ) as run:  # fmt: skip
        result = finish(lambda values, step: run.metrics(values, step=step))
        # Names of their own: of a name that a curve has, MLflow shows the value of the last step.
        run.metrics(
            {
                "best_heldout_perplexity": result.heldout_perplexity,
                "initial_heldout_perplexity": result.initial_heldout_perplexity,
                "best_step": result.best_step,
                "texts": len(texts),
                "train_steps": result.steps,
                "training_seconds": result.seconds,
                "train_tokens": result.tokens,
                "overall_tokens_per_second": result.tokens / result.seconds if result.seconds else None,
            }
        )
        run.metrics({f"examples/{tool}": count for tool, count in examples_per_tool(chosen).items()})
        run.tag("model_path", str(Path(result.model_path).resolve()))
        if result.ended_by_max_hours is not None:
            run.tag(_ENDED_BY, result.ended_by_max_hours)
            log.info(
                "train: ended by trainer.max_hours=%g after %d steps; the same command with more goes on from there",
                result.ended_by_max_hours,
                result.steps,
            )
        run.model(registry.NAMES[config.data], Path(result.model_path), {**lineage, "fingerprint": finger})
        log.info(
            "train: held-out perplexity %.2f -> %.2f; run %s",
            result.initial_heldout_perplexity,
            result.heldout_perplexity,
            run.run_id,
        )
        return Trained(run.run_id, Path(result.model_path), result.heldout_perplexity)


def _check_tokenizer(dataset: Run, model: str) -> None:
    """Calls were found between the tokens of the model that annotated; another one may cut the texts elsewhere."""
    annotator = dataset.params.get("model", model)
    if annotator == model:
        return
    from transformers import AutoTokenizer

    from toolformer.loading import locate
    from toolformer.training.tokens import cut_alike

    try:
        theirs, ours = (AutoTokenizer.from_pretrained(locate(name)) for name in (annotator, model))
    except (OSError, ValueError, UserError):
        log.info("train: the tokenizer of %s, which annotated, is not at hand to compare with", annotator)
        return
    if not cut_alike(theirs, ours):
        raise UserError(
            f"dataset: run {dataset.run_id} was annotated by {annotator}, whose tokenizer is not that of {model}; name a "
            "model with the same one, or set trainer.other_tokenizer=true to have the texts tokenised anew"
        )
