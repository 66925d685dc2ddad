"""Stage 2: finetuning on C* (data=augmented, makes Toolformer) or on C (data=plain, makes M + CC); paper, section 2.

Reads the dataset of a generate run through MLflow and leaves a normal Transformers folder, named by its run.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow.parquet import read_metadata

from toolformer.calls import parse
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.stages import instantiate
from toolformer.stages.config import Config, fingerprint
from toolformer.stages.generate import read_dataset
from toolformer.stages.identity import model_identity
from toolformer.storage import below, locked, sha256
from toolformer.tracking import Run, Tracker, registry
from toolformer.tracking.entities import Dataset
from toolformer.results.provenance import describe, model_name
from toolformer.tracking.run import REPLICATE
from toolformer.training.checkpoints import suffices, trained
from toolformer.training.distributed import processes, rank
from toolformer.training.settings import Recipe, TrainingResult, TrainingSettings

if TYPE_CHECKING:
    from toolformer.training.progress import OnLog
    from toolformer.training.tokens import AnnotatedText

log = logging.getLogger(__name__)

_ENDED_BY = "ended_by_max_hours"
"""Tag of a run that `max_hours` ended: the hours that it was given."""


@dataclass(frozen=True)
class _Job:
    """A finetuning, identified by its fingerprint."""

    settings: TrainingSettings
    datasets: list[Run]
    heldout: list[Document]
    folder: Path
    fingerprint: str
    replicate: str
    """The same for every seed."""


def _job(config: Config, tracker: Tracker) -> _Job:
    recipe = {field.name: getattr(config.trainer, field.name) for field in fields(Recipe)}
    settings = TrainingSettings(**recipe, dtype=config.lm.dtype, device=config.lm.device, seed=config.seed)
    ids = config.dataset.split("+")
    own = {"seed": str(config.seed)}
    datasets = [tracker.resolve("generate", run_id, own, experiment=config.name) for run_id in ids]
    if len({run.run_id for run in datasets}) < len(datasets):
        raise UserError(f"dataset: {config.dataset} names a run twice; name each annotation once")
    heldout = list(itertools.islice(instantiate.Corpus(config.heldout, "heldout"), 1000))
    # What may change while it is interrupted (the micro batch, after running out of memory) is left out.
    deciding = settings.deciding() | {
        name: getattr(config.trainer, name) for name in ("limit_per_tool", "other_tokenizer")
    }
    reading = config.data, model_identity(config.model)
    texts = instantiate.content_hash(heldout)
    annotations = "+".join(run.tags["fingerprint"] for run in datasets)
    key = fingerprint("train", annotations, *reading, deciding, texts)
    folder = Path(config.paths.root) / "train" / f"{config.data}-{key}"
    of_any_seed = (
        "+".join(run.tags.get(REPLICATE, run.tags["fingerprint"]) for run in datasets),
        *reading,
        deciding | {"seed": None},
    )
    replicate = fingerprint("train", *of_any_seed, texts)
    return _Job(settings, datasets, heldout, folder, fingerprint(key, config.name), replicate)


def _done(job: _Job, tracker: Tracker) -> Run | None:
    """The run that did this finetuning; one that `max_hours` ended counts where no more time is given."""
    run = tracker.latest("train", fingerprint=job.fingerprint)
    ended_by = run.tags.get(_ENDED_BY) if run else None
    return run if suffices(float(ended_by) if ended_by else None, job.settings.max_hours) else None


def _trained(job: _Job, tracker: Tracker) -> Run | None:
    """The run that did this finetuning, if its model is still there as it was saved."""
    run = _done(job, tracker)
    if run is None or trained(below(job.folder, Path(run.tags["model_path"]).name)) is None:
        return None
    return _logged("already done", run)


def finished(config: Config) -> str | None:
    """The id of the run that did this finetuning, if one did; its model may be gone. Loads no model."""
    tracker = instantiate.tracker(config)
    done = _done(_job(config, tracker), tracker)
    return done.run_id if done else None


def train(config: Config, parent: str | None = None, command: str = "", swept: str = "") -> Run | None:
    """Finetunes the model, from the last checkpoint of an interrupted run; of two commands at once the second waits.

    Of several processes that train together the first one returns the run, the others None.
    """
    tracker = instantiate.tracker(config)
    job = _job(config, tracker)
    ids = " and ".join(run.run_id[:8] for run in job.datasets)
    log.info("train: %s on the data of generate run %s", config.data, ids)
    if done := _trained(job, tracker):
        return done
    if processes() > 1:
        # Processes that train together cannot wait one by one: finetuning refuses a folder that is held.
        return _train(config, job, tracker, parent, command, swept)
    with locked(job.folder / "lock", "train: another process trains this model; waiting to use it"):
        return _trained(job, tracker) or _train(config, job, tracker, parent, command, swept)


def _texts(
    config: Config, datasets: Sequence[Run], tracker: Tracker
) -> tuple[list[str | AnnotatedText], Counter[str]]:
    """The texts to train on, and how many of them have a call of each tool; a text of two annotations comes twice."""
    from toolformer.training.data import examples_per_tool, limit_per_tool
    from toolformer.training.tokens import AnnotatedText

    rows: list[dict[str, Any]] = []
    for run in datasets:
        plain = {row["doc_id"]: row["text"] for row in read_dataset(tracker, run, "dataset_plain.parquet")}
        kept = read_dataset(tracker, run, "dataset_augmented.parquet")
        rows += [{**row, "plain": plain[row["doc_id"]]} for row in kept]
    if not rows:
        shown = " and ".join(run.run_id[:8] for run in datasets)
        raise UserError(f"dataset: run {shown} kept no call; lower filter_threshold, or annotate more texts")
    chosen = limit_per_tool(rows, limit=config.trainer.limit_per_tool, seed=config.seed)
    texts: list[str | AnnotatedText] = [row["plain"] for row in chosen]
    if config.data == "augmented":
        texts = [
            AnnotatedText(
                row["plain"], tuple((call["position"], parse(call["written"])) for call in row["calls"])
            )
            for row in chosen
        ]
    return texts, examples_per_tool(chosen)


def _train(
    config: Config, job: _Job, tracker: Tracker, parent: str | None, command: str, swept: str
) -> Run | None:
    """The tracked run."""
    from toolformer.lm.loading import number_format, release_memory
    from toolformer.lm.text_generator import load
    from toolformer.training.trainer import train as finetune

    for dataset in job.datasets:
        if not config.trainer.other_tokenizer:
            _check_tokenizer(dataset, config.model)
    texts, examples = _texts(config, job.datasets, tracker)
    load.cache_clear()  # the annotation's model, which its tools shared
    release_memory()
    heldout = [document.text for document in job.heldout]
    kind = "C*" if config.data == "augmented" else "C"
    log.info("train: %d texts of %s, %d held-out texts", len(texts), kind, len(heldout))

    def finish(on_log: OnLog | None) -> TrainingResult:
        result = finetune(config.model, texts, heldout, job.settings, job.folder, on_log=on_log)
        release_memory()  # a further stage of this process starts with what it needs
        return result

    if rank() > 0:  # of several processes the first one does the book-keeping
        finish(None)
        return None
    # Of several annotations the first one: reports show it, and `toolformer runs` lists the training below it.
    lineage = {
        "experiment": config.name,
        "data": config.data,
        "lineage.dataset_run_id": job.datasets[0].run_id,
    }
    model = model_name(config.model)
    corpus = job.datasets[0].tags.get("corpus", "")
    facts = {"model": model, "data": config.data, "texts": len(texts)}
    further = {"dtype": number_format(config.lm.dtype, config.lm.device), REPLICATE: job.replicate}
    with tracker.run(
        stage="train", name=f"train {config.name}: {model} {config.data} {corpus} {swept}", fingerprint=job.fingerprint, config=asdict(config),
        tags=lineage | further, parent=parent, description=describe(command, facts, job.datasets),
    ) as run:  # fmt: skip
        digest = instantiate.content_hash(job.heldout)
        run.datasets(
            *(_described(kind, dataset, config.data, tracker) for dataset in job.datasets),
            instantiate.dataset(config.heldout, digest, "heldout", len(job.heldout)),
        )
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
                **{f"examples/{tool}": count for tool, count in examples.items()},
            }
        )
        if result.seconds:
            run.metrics({"overall_tokens_per_second": result.tokens / result.seconds})
        run.tags({"model_path": str(result.model_path.resolve())})
        if result.ended_by_max_hours is not None:
            run.tags({_ENDED_BY: result.ended_by_max_hours})
            text = "train: ended by trainer.max_hours=%g after %d steps; the same command with more hours continues"
            log.info(text, result.ended_by_max_hours, result.steps)
        run.model(registry.NAMES[config.data], result.model_path, {**lineage, "fingerprint": job.fingerprint})
    return _logged("done", tracker.get(run.run_id))


def _described(kind: str, dataset: Run, data: str, tracker: Tracker) -> Dataset:
    """A file of texts that is trained on, for the run's page."""
    file = tracker.artifact_path(dataset, f"dataset_{data}.parquet")
    source = f"runs:/{dataset.run_id}/{file.name}"
    return Dataset(kind, sha256(file), "training", source, read_metadata(file).num_rows)


def _logged(how: str, run: Run) -> Run:
    """Logs what a training came to, and returns its run."""
    log.info("train: %s, run %s: %s", how, run.run_id[:8], came_to(run.metrics))
    return run


def came_to(metrics: Mapping[str, float]) -> str:
    """What a training came to, from its run's metrics."""
    before, after = metrics["initial_heldout_perplexity"], metrics["best_heldout_perplexity"]
    done = f"{metrics['train_steps']:.0f} steps on {metrics['texts']:.0f} texts"
    return f"{done}, held-out perplexity {before:.2f} -> {after:.2f}"


def _check_tokenizer(dataset: Run, model: str) -> None:
    """Calls were placed between the tokens of the model that annotated; another tokenizer may cut the texts elsewhere."""
    annotator = dataset.params.get("model", model)
    if annotator == model:
        return
    from toolformer.lm.loading import load_tokenizer
    from toolformer.training.tokens import cut_alike

    try:
        theirs = load_tokenizer(annotator)
    except UserError:
        log.info("train: the tokenizer of %s, which annotated, is not available to compare with", annotator)
        return
    if not cut_alike(theirs, load_tokenizer(model)):
        raise UserError(
            f"dataset: {annotator} annotated it, whose tokenizer is not {model}'s; set trainer.other_tokenizer=true"
        )
