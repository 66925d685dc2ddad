"""Stage 2: finetuning on C* (data=augmented, makes Toolformer) or on C (data=plain, makes M + CC); paper, section 2.

Reads the data sets of generate runs, and leaves a normal Transformers folder in its run's folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pyarrow.parquet import read_metadata

from toolformer.annotation.merge import united
from toolformer.annotation.results import HELDOUT
from toolformer.calls import ApiCall
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.jobs import corpora, heldout
from toolformer.jobs.config import Config
from toolformer.jobs.job import Job
from toolformer.jobs.outputs import read_dataset
from toolformer.results import Dataset, Folder, Results, Run
from toolformer.results.provenance import model_name
from toolformer.storage import sha256
from toolformer.training import distributed
from toolformer.training.settings import Recipe, TrainingResult, TrainingSettings

if TYPE_CHECKING:
    from toolformer.training.progress import OnLog
    from toolformer.training.tokens import AnnotatedText

log = logging.getLogger(__name__)

_WITHOUT_CALLS = "documents_without_calls.parquet"
"""The texts in which no call was kept; of a large corpus a sample of these."""


class Work:
    """Finetunes a model, from the last checkpoint of an interrupted run."""

    def __init__(self, job: Job, results: Results) -> None:
        self.job, self.config, self.results = job, job.config, results
        self.datasets = [results.get(step.key()) for step in job.sources.annotations]
        self.settings = settings_of(self.config)
        self.model, self.threshold = model_name(self.config.model), _threshold(self.datasets)
        self.heldout: list[Document] = []
        """The held-out texts that choose the checkpoint."""
        self.reported: list[Document] = []
        """The others, which an evaluation reports."""

    @property
    def processes(self) -> int:
        return processes_to_start(self.settings)

    @property
    def name(self) -> str:
        corpus = str(self.datasets[0].facts.get("corpus", ""))
        differs = f"train {self.config.data} seed={self.config.seed} τ_f={self.threshold}"
        return f"{differs}: {self.model}, {corpus}, {self.config.name}"

    @property
    def title(self) -> str:
        ids = " and ".join(run.id[:8] for run in self.datasets)
        return f"{self.config.data} on the data of generate run {ids}"

    @property
    def details(self) -> dict[str, object]:
        return {"model": self.model, "data": self.config.data, "τ_f": self.threshold}

    @property
    def facts(self) -> dict[str, Any]:
        return {"data": self.config.data, "threshold": self.threshold}

    def check(self) -> None:
        for dataset in self.datasets:
            if not self.config.trainer.other_tokenizer:
                _check_tokenizer(dataset, self.config.model)
        self.heldout, self.reported = heldout.texts(self.config, self.job.sources, self.results)
        _release_models()  # those of earlier jobs, before one or several processes load theirs

    def share(self, folder: Folder | None) -> None:
        """Joins a training by several processes, as one that does no book-keeping."""
        if distributed.rank() > 0:
            self._finetune(None)

    def finish(self, run: Folder) -> None:
        """Finetunes, and logs the result."""
        from toolformer.lm.devices import dtype_name

        config, results = self.config, self.results
        run.add_facts(dtype=dtype_name(config.lm.dtype, config.lm.device))
        kind = "C*" if config.data == "augmented" else "C"
        run.datasets(
            *(
                _dataset(kind, annotation, f"dataset_{config.data}.parquet", results)
                for annotation in self.datasets
            ),
            *(
                _dataset("without calls", annotation, _WITHOUT_CALLS, results)
                for annotation in self.datasets
                if config.trainer.plain_share
            ),
            *self._heldout_datasets(),
        )
        result, counts = self._finetune(lambda values, step: run.metrics(values, step=step))
        # Separate names: of a name that a curve has, MLflow shows the value of the last step.
        run.metrics(
            {
                "best_heldout_perplexity": result.heldout_perplexity,
                "initial_heldout_perplexity": result.initial_heldout_perplexity,
                "best_step": result.best_step,
                "train_steps": result.steps,
                "training_seconds": result.seconds,
                "train_tokens": result.tokens,
                **counts,
            }
        )
        if result.seconds:
            run.metrics({"overall_tokens_per_second": result.tokens / result.seconds})
        # Two trainings with the same settings may come to different weights.
        digest = hashlib.sha256(json.dumps(sorted(result.sha256.items())).encode()).hexdigest()
        run.add_facts(model=result.model_path.name, weights=digest[:16])

    def _heldout_datasets(self) -> list[Dataset]:
        """The held-out texts, for the run's page."""
        if self.config.heldout.source:
            digest, count = self.job.step.inputs["heldout"].key(), len(self.heldout)
            return [corpora.dataset(self.config.heldout, digest, "heldout", count)]
        return [_dataset("held out", run, HELDOUT, self.results, "heldout") for run in self.datasets]

    def _finetune(self, on_log: OnLog | None) -> tuple[TrainingResult, dict[str, int]]:
        """The result, and metrics of what it was trained on: how many texts, how many of them have a call of each tool, and
        how many are of those in which no call was kept, if such are mixed in.
        """
        from toolformer.lm.devices import release_memory
        from toolformer.training.trainer import train as finetune

        config, results = self.config, self.results
        counts: dict[str, int] = {}
        texts, examples = _texts(config, self.datasets, results)
        count = len(texts)
        if config.trainer.plain_share:
            mixed_in = _texts_without_calls(config, self.datasets, results, count)
            texts += mixed_in
            counts["plain_texts"] = len(mixed_in)
        check_disjoint(texts, [*self.heldout, *self.reported])
        heldout = [document.text for document in self.heldout]
        folder = results.path(self.job.step)
        further = f" and {counts['plain_texts']} in which no call was kept" if counts else ""
        kind = "C*" if config.data == "augmented" else "C"
        origin = "of other texts" if config.heldout.source else "held out of the same corpus"
        log.info(
            "train: %d texts of %s%s; held-out perplexity on %d development texts %s",
            count,
            kind,
            further,
            len(heldout),
            origin,
        )
        counts["texts"] = len(texts)
        result = finetune(config.model, texts, heldout, self.settings, folder, on_log=on_log)
        release_memory()  # a further stage of this process starts with what it needs
        return result, counts | {f"examples/{tool}": number for tool, number in examples.items()}

    def log(self, how: str, run: Run) -> None:
        """Logs the result of a training."""
        log.info("train: %s, run %s: %s", how, run.id[:8], summary(run.metrics))


def settings_of(config: Config) -> TrainingSettings:
    """The recipe of a configuration, with what it shares with the other stages."""
    recipe = {field.name: getattr(config.trainer, field.name) for field in fields(Recipe)}
    return TrainingSettings(**recipe, dtype=config.lm.dtype, device=config.lm.device, seed=config.seed)


def processes_to_start(settings: TrainingSettings) -> int:
    """The number of processes that train together; 1 where a launcher has started them, or this one does it alone.

    UserError for more of them than GPUs, or a batch that they cannot share.
    """
    from toolformer.lm.devices import gpus

    if distributed.is_launched():
        return 1
    available = gpus(settings.device)
    count = max(1, available) if settings.processes == "auto" else int(settings.processes)
    if 0 < available < count:
        raise UserError(
            f"trainer.processes={count} needs {count} GPUs, but there {'is 1' if available == 1 else f'are {available}'}; set "
            f"trainer.processes={available} or trainer.processes=auto"
        )
    settings.accumulation(count)
    return count


def _release_models() -> None:
    """Frees the annotation's model, which its tools shared."""
    from toolformer.lm.devices import release_memory
    from toolformer.lm.text_generator import load_model

    load_model.cache_clear()
    release_memory()


def check_disjoint(texts: Iterable[str | AnnotatedText], heldout: Collection[Document]) -> None:
    """UserError for held-out texts that are trained on, too."""
    trained = {text if isinstance(text, str) else text.plain for text in texts}
    if shared := sum(document.text in trained for document in heldout):
        raise UserError(
            f"heldout: {shared} of {len(heldout)} held-out texts are also trained on; name other texts, or leave heldout out to hold "
            "out a share of the corpus (heldout_share)"
        )


def _threshold(datasets: Sequence[Run]) -> str:
    """The filtering threshold of the annotations: of all tools, or by tool; several annotations joined by +."""
    parts = []
    for run in datasets:
        by_tool: dict[str, float] = run.thresholds
        values = sorted({f"{value:g}" for value in by_tool.values()})
        parts.append(
            values[0]
            if len(values) == 1
            else ", ".join(f"{tool} {value:g}" for tool, value in by_tool.items())
        )
    return " + ".join(dict.fromkeys(parts))


def _texts(
    config: Config, datasets: Sequence[Run], results: Results
) -> tuple[list[str | AnnotatedText], Counter[str]]:
    """The texts to train on, and how many of them have a call of each tool."""
    from toolformer.training.data import examples_per_tool

    chosen = rows_to_train(results, datasets, config.trainer.limit_per_tool, config.seed)
    texts: list[str | AnnotatedText] = [row["plain"] for row in chosen]
    if config.data == "augmented":
        texts = [annotated_text(row) for row in chosen]
    return texts, examples_per_tool(chosen)


def _texts_without_calls(config: Config, datasets: Sequence[Run], results: Results, count: int) -> list[str]:
    """The texts without calls that are mixed into `count` texts, none of which is in the data sets.

    UserError if there are too few.
    """
    from toolformer.training.data import plain_texts_needed, sample_texts

    def texts(name: str) -> set[str]:
        return {row["text"] for run in datasets for row in read_dataset(results, run, name)}

    share = config.trainer.plain_share
    needed = plain_texts_needed(count, share)
    available = texts(_WITHOUT_CALLS) - texts("dataset_plain.parquet")
    if len(available) < needed:
        # Rounded down, for a share that is rounded up may ask for one more.
        largest = math.floor(len(available) / (len(available) + count) * 10_000) / 10_000
        raise UserError(
            f"trainer.plain_share is {share:g}, which for {count} texts needs {needed} texts without calls; only "
            f"{len(available)} exist: set it to {largest:g} at most, or annotate more texts"
        )
    return sample_texts(available, needed, config.seed)


def rows_to_train(results: Results, datasets: Sequence[Run], limit: int, seed: int) -> list[dict[str, Any]]:
    """The rows of C* that are trained on, each also with its `plain` text, at most `limit` per tool; a text of several annotations
    once, with the calls of all.

    UserError if the annotations kept no call, are gone or damaged.
    """
    from toolformer.training.data import limit_per_tool

    annotated: list[list[dict[str, Any]]] = []
    for run in datasets:
        plain = {row["doc_id"]: row["text"] for row in read_dataset(results, run, "dataset_plain.parquet")}
        kept = read_dataset(results, run, "dataset_augmented.parquet")
        annotated.append([{**row, "plain": plain[row["doc_id"]]} for row in kept])
    rows = united(annotated)
    if not rows:
        ids = " and ".join(run.id[:8] for run in datasets)
        raise UserError(f"dataset: run {ids} kept no call; lower filter_threshold, or annotate more texts")
    return limit_per_tool(rows, limit=limit, seed=seed)


def annotated_text(row: Mapping[str, Any]) -> AnnotatedText:
    """A row of `rows_to_train` as it is tokenised: the plain text and its calls."""
    from toolformer.training.tokens import AnnotatedText

    calls = tuple((call["position"], ApiCall.of_row(call)) for call in row["calls"])
    return AnnotatedText(row["plain"], calls)


def _dataset(kind: str, run: Run, name: str, results: Results, context: str = "training") -> Dataset:
    """A file of an annotation's texts, for the run's page. UserError if it is gone."""
    file = results.artifact(run, name)
    return Dataset(kind, sha256(file), context, f"{run.id}/{file.name}", read_metadata(file).num_rows)


def summary(metrics: Mapping[str, float]) -> str:
    """The result of a training in words, from its run's metrics."""
    before, after = metrics["initial_heldout_perplexity"], metrics["best_heldout_perplexity"]
    done = f"{metrics['train_steps']:.0f} steps on {metrics['texts']:.0f} texts"
    return f"{done}, held-out perplexity {before:.2f} -> {after:.2f}"


def _check_tokenizer(dataset: Run, model: str) -> None:
    """Calls were placed between the tokens of the model that annotated; another tokenizer may cut the texts elsewhere."""
    annotator = str(dataset.setting("model", model))
    if annotator == model:
        return
    from toolformer.lm.loading import load_tokenizer
    from toolformer.training.tokens import tokenizers_agree

    try:
        theirs = load_tokenizer(annotator)
    except UserError:
        log.info(
            "train: %s annotated the texts; its tokenizer is not here, so it is not compared with the model's",
            annotator,
        )
        return
    if not tokenizers_agree(theirs, load_tokenizer(model)):
        raise UserError(
            f"dataset: {annotator}, which annotated it, has another tokenizer than {model}; set trainer.other_tokenizer=true to tokenise it again"
        )
