"""`toolformer export model`: a trained model with a card of its lineage, results and settings."""

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from toolformer.decoding.settings import SYSTEMS
from toolformer.errors import UserError
from toolformer.export import cards
from toolformer.export.folders import CARD, export_folder
from toolformer.jobs.outputs import model_folder
from toolformer.jobs.train import summary
from toolformer.reporting.formatting import title_of
from toolformer.reporting.select import scores
from toolformer.results import Results, Run
from toolformer.results.provenance import model_name
from toolformer.storage import atomic_write, has_digest
from toolformer.training.checkpoints import RECORD, read_json

log = logging.getLogger(__name__)

WEIGHTS = "*.safetensors"
SETTINGS = ("config.json", "generation_config.json", "tokenizer_config.json", "processor_config.json")
"""Files of a model that hold settings, which may name folders of this machine."""
FILES = (
    *("model.safetensors.index.json", "tokenizer.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "spm.model"),
    *("sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json"),
)
"""Its other files that are exported, by name: no pickles, no code, nothing else that lies there."""


def export_model(results: Results, run: Run, folder: Path) -> list[Run]:
    """Copies the model of a finished train run into a new folder, with a card; returns its evaluations.

    UserError if the model is gone, damaged or has no safetensors, or the folder holds something else.
    """
    model = model_folder(run)
    weights = [path for path in sorted(model.glob(WEIGHTS)) if _is_plain(path)]
    if not weights:
        raise UserError(f"export: {model} has no safetensors; train it again: {run.command}")
    evaluations = [
        evaluation
        for evaluation in results.runs("evaluate")
        if run.id in evaluation.made_from and evaluation.facts.get("system") in SYSTEMS
    ]
    with export_folder(folder, run, evaluations=sorted(each.id for each in evaluations)) as made:
        if made is None:
            log.info("export: the model of run %s is in %s already", run.id[:8], folder)
            return evaluations
        for path in [*weights, *(model / name for name in FILES)]:
            if _is_plain(path):
                shutil.copyfile(path, made / path.name)
        for name in SETTINGS:
            if _is_plain(model / name):
                atomic_write(made / name, _settings(model / name))
        _check(made, read_json(model / RECORD).get("sha256"), run)
        atomic_write(made / CARD, _card(results, run, evaluations).encode())
    log.info("export: the model of run %s with %d evaluations in %s", run.id[:8], len(evaluations), folder)
    return evaluations


def _is_plain(path: Path) -> bool:
    """Whether it is a file and not a link, which in a run from elsewhere may lead anywhere."""
    return path.is_file() and not path.is_symlink()


def _settings(path: Path) -> bytes:
    """A file of settings without those that name a folder of this machine."""
    return json.dumps(_without_paths(read_json(path)), indent=2, ensure_ascii=False).encode()


def _without_paths(settings: Any) -> Any:
    if isinstance(settings, list):
        return [_without_paths(part) for part in settings]
    if not isinstance(settings, Mapping):
        return settings
    return {
        key: _without_paths(value)
        for key, value in settings.items()
        if not (isinstance(value, str) and (value.startswith(("/", "~")) or "name_or_path" in key))
    }


def _check(made: Path, recorded: Any, run: Run) -> None:
    """UserError if the copied weights are not those that the training saved."""
    digests = recorded if isinstance(recorded, Mapping) else {}
    for path in made.glob("*.safetensors"):
        if not has_digest(path, digests.get(path.name)):
            raise UserError(
                f"export: {path.name} of train run {run.id[:8]} is damaged; train it again: {run.command}"
            )


def _trainings(results: Results, run: Run) -> list[Run]:
    """The run, after those whose models it was trained from in turn (rounds of self-training)."""
    chain = [run]
    while True:
        base = Path(str(chain[0].setting("model", "")))
        try:
            chain.insert(0, results.get(base.parent.name))
        except UserError:  # not a run's folder
            return chain


def _card(results: Results, run: Run, evaluations: Sequence[Run]) -> str:
    trainings = _trainings(results, run)
    annotations = [annotation for training in trainings for annotation in _annotations(results, training)]
    calls = run.facts.get("data") == "augmented"
    base = str(trainings[0].setting("model", ""))
    sources = list(
        dict.fromkeys(
            source
            for annotation in annotations
            for source in cards.sources(annotation, _thresholds(annotation) if calls else ())
        )
    )
    name = cards.BUNDLED.get(base, base)
    on_the_hub = name if name.count("/") == 1 and model_name(name) == name else None
    head = ModelCardData(
        **cards.licence(sources),
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["toolformer", *(["tool-use"] if calls else [])],
        base_model=on_the_hub,
    )
    return cards.card(
        head,
        f"# toolformer-{run.id[:8]}\n",
        _purpose(calls) + "\n",
        "## Lineage\n",
        cards.table(("step", "what"), _lineage(results, trainings, base)),
        "## Results\n",
        _results(evaluations) if evaluations else "Not evaluated.\n",
        "## Decoding\n",
        _decoding(evaluations, calls) + "\n",
        "## Training\n",
        summary(run.metrics) + ".\n",
        cards.settings(run.step),
        "## Sources\n",
        cards.table(("what", "name", "licence"), sources),
    )


def _annotations(results: Results, run: Run) -> list[Run]:
    """The annotations that a training read, as far as their folders are there."""
    annotations = []
    for run_id in run.made_from:
        with suppress(UserError):
            annotations.append(results.get(run_id))
    return [annotation for annotation in annotations if annotation.stage == "generate"]


def _thresholds(run: Run) -> Mapping[str, Any]:
    thresholds: Mapping[str, Any] = run.thresholds
    return thresholds


def _purpose(calls: bool) -> str:
    method = "Toolformer (Schick et al., 2023)"
    if not calls:
        return (
            f"A baseline of {method}: a language model finetuned on the same plain texts as its Toolformer, without calls. For "
            "research: it is there to be compared with."
        )
    return (
        f"A language model finetuned by {method} on texts into which it wrote calls of tools; only calls whose results lower "
        "its own loss were kept. For research on when and how models call tools. It continues texts and is not an assistant; a call "
        "is text (` [Tool(input) -> result]`) that a harness must execute while the model writes. Run as a plain language model, "
        "it makes results up. Its answers and its tools' results are not checked."
    )


def _lineage(results: Results, trainings: Sequence[Run], base: str) -> list[tuple[str, str]]:
    """From the base model and the corpus to the model: a row per run."""
    rows = [("base model", cards.last_part(model_name(cards.BUNDLED.get(base, base))))]
    for run in trainings:
        for annotation in _annotations(results, run):
            calls, texts = (annotation.metrics.get(name, 0) for name in ("calls_kept", "texts_kept"))
            tools = ", ".join(f"{tool} (τ_f {value:g})" for tool, value in _thresholds(annotation).items())
            corpus = cards.last_part(str(annotation.facts.get("corpus", "")))
            what = f"run {annotation.id}: {corpus}; {calls:,.0f} calls kept in {texts:,.0f} texts; {tools}"
            rows.append(("annotation", what))
        kind = "C* (texts with calls)" if run.facts.get("data") == "augmented" else "C (texts without calls)"
        rows.append(("training", f"run {run.id} on {kind}, seed {run.setting('seed')}"))
    return rows


def _results(evaluations: Sequence[Run]) -> str:
    """A row per evaluation and benchmark, the newest first."""
    rows = []
    for run in evaluations:
        for task, value in scores(run).items():
            metrics = run.tasks[task]
            low, high = metrics.get("ci_low"), metrics.get("ci_high")
            interval = f"[{low:.1f}, {high:.1f}]" if low is not None and high is not None else ""
            measure = "perplexity" if "perplexity" in metrics else "percent correct"
            rows.append(
                (
                    *(title_of(task), SYSTEMS[run.facts["system"]].title, run.facts.get("policy", "")),
                    *(f"{value:.2f}", measure, interval, f"{metrics.get('n', 0):,.0f}"),
                    *(f"{metrics.get('n_ac', 0):,.0f}", run.facts.get("dtype", ""), run.id[:8]),
                )
            )
    head = ("benchmark", "system", "policy (k)", "value", "in", "95 %", "n", "with a call", "dtype", "run")
    return cards.table(head, rows)


def _decoding(evaluations: Sequence[Run], calls: bool) -> str:
    """When calls start, and at which k the model was evaluated."""
    if not calls:
        return "As a plain language model: it was trained on no calls."
    lines = [
        "A call starts when ` [` is among the k most likely next tokens (the paper: k = 10), at most one per input."
    ]
    policies = sorted(
        {str(run.facts.get("policy", "")) for run in evaluations if run.facts.get("system") == "toolformer"}
    )
    if policies:
        lines.append(f"Evaluated with: {cards.markdown('; '.join(policies))}.")
    lines.append("`toolformer complete TEXT --model FOLDER` decodes with the tools.")
    return " ".join(lines)
