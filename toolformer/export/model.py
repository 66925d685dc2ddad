"""`toolformer export model`: a trained model with its card, and its evaluations as the Hub and others read them."""

import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolformer.decoding.settings import SYSTEMS
from toolformer.errors import UserError
from toolformer.export import cards, evaluations
from toolformer.export.dataset import CARD
from toolformer.export.folders import new_folder
from toolformer.reporting.formatting import title_of
from toolformer.results import Results, Run
from toolformer.results.provenance import model_name
from toolformer.stages.stored_policy import STORED, StoredPolicy
from toolformer.stages.train import model_folder, summary
from toolformer.storage import atomic_write, sha256
from toolformer.training.checkpoints import RECORD, read_json

log = logging.getLogger(__name__)

PATTERNS = ("*.safetensors", "*.json", "*.jinja", "*.model", "vocab.txt", "merges.txt")
"""The files of a model that are exported: weights as safetensors, configuration, tokenizer, policy. No pickles, no code."""
MOST_ROUNDS = 20
"""Trainings that a lineage is followed over."""
_RECIPE = (
    *("learning_rate", "max_steps", "epochs", "batch_size", "sequence_length", "train_on_results"),
    *("limit_per_tool", "lora_rank"),
)


def export_model(results: Results, run: Run, folder: Path, *, name: str = "", command: str = "") -> list[Run]:
    """Copies the model of a finished train run into a new folder, with a card and the results of its evaluations.

    Args:
        name: the model's name, `OWNER/NAME` on the Hub; by default the run's.
        command: for the card.

    Returns:
        The evaluations.

    Raises:
        UserError: the model is gone or has no safetensors, or the folder is not empty.
    """
    model = model_folder(run)
    files = sorted({path for pattern in PATTERNS for path in model.glob(pattern) if _is_plain(path)})
    if not any(path.suffix == ".safetensors" for path in files):
        raise UserError(f"export: {model} has no safetensors; train it again: {run.command}")
    name = name or f"toolformer-{run.id[:8]}"
    evaluated = [
        each
        for each in results.runs("evaluate")
        if run.id in each.made_from and each.facts.get("system") in SYSTEMS
    ]
    with new_folder(folder) as made:
        for path in files:
            shutil.copyfile(path, made / path.name)
        _check(made, read_json(model / RECORD).get("sha256"), run)
        for place, text in evaluations.files(evaluated, name).items():
            (made / place).parent.mkdir(parents=True, exist_ok=True)
            atomic_write(made / place, text.encode())
        atomic_write(made / CARD, _card(results, run, evaluated, model, name, command).encode())
    log.info("export: the model of run %s with %d evaluations in %s", run.id[:8], len(evaluated), folder)
    return evaluated


def _is_plain(path: Path) -> bool:
    """Whether it is a file and not a link, which in a run from elsewhere may lead anywhere."""
    return path.is_file() and not path.is_symlink()


def _check(made: Path, recorded: Any, run: Run) -> None:
    """UserError if the copied weights are not those that the training saved."""
    digests = recorded if isinstance(recorded, Mapping) else {}
    for path in made.glob("*.safetensors"):
        if digests.get(path.name) != sha256(path):
            raise UserError(
                f"export: {path.name} of train run {run.id[:8]} is damaged; train it again: {run.command}"
            )


def _trainings(results: Results, run: Run) -> list[Run]:
    """The run, after those whose models it was trained from in turn (rounds of self-training)."""
    chain = [run]
    while len(chain) <= MOST_ROUNDS:
        base = Path(str(chain[0].setting("model", "")))
        try:
            chain.insert(0, results.get(base.parent.name))
        except UserError:  # not a run's folder
            break
    return chain


def _card(results: Results, run: Run, evaluated: Sequence[Run], model: Path, name: str, command: str) -> str:
    trainings = _trainings(results, run)
    annotations = [annotation for each in trainings for annotation in _annotations(results, each)]
    calls = run.facts.get("data") == "augmented"
    base = str(trainings[0].setting("model", ""))
    found = list(
        dict.fromkeys(
            source
            for each in annotations
            for source in cards.sources(each, _thresholds(each) if calls else ())
        )
    )
    head: dict[str, Any] = {
        **cards.licence(found),
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["toolformer", *(["tool-use"] if calls else [])],
    }
    on_the_hub = cards.BUNDLED.get(base, base)
    if "/" in on_the_hub and model_name(on_the_hub) == on_the_hub:
        head["base_model"] = on_the_hub
    return cards.card(
        head,
        f"# {cards.markdown(name)}\n",
        _purpose(calls) + "\n",
        "## Lineage\n",
        cards.table(("step", "what", "command"), _lineage(results, trainings, base)),
        "## Results\n",
        _results(evaluated) if evaluated else "Not evaluated.\n",
        "## Decoding\n",
        _decoding(model, evaluated, calls) + "\n",
        "## Training\n",
        summary(run.metrics) + ".\n",
        cards.table(("setting", "value"), [(key, run.setting(f"trainer.{key}")) for key in _RECIPE]),
        "## Sources\n",
        cards.table(("what", "name", "licence"), found),
        *([f"Exported by {cards.code(cards.public(command))}.\n"] if command else []),
    )


def _annotations(results: Results, run: Run) -> list[Run]:
    """The annotations that a training read, as far as their folders are there."""
    found = []
    for run_id in run.made_from:
        with suppress(UserError):
            found.append(results.get(run_id))
    return [each for each in found if each.stage == "generate"]


def _thresholds(run: Run) -> Mapping[str, Any]:
    thresholds: Mapping[str, Any] = run.step.settings.get("filter_threshold", {})
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
        "its own loss were kept. For research on when and how models call tools. It continues texts and is no assistant; a call "
        "is text (` [Tool(input) -> result]`) that a harness must execute while the model writes. Run as a plain language model, "
        "it makes results up. Its answers and its tools' results are not checked."
    )


def _lineage(results: Results, trainings: Sequence[Run], base: str) -> list[tuple[object, ...]]:
    """From the base model and the corpus to the model: a row per run."""
    rows: list[tuple[object, ...]] = [("base model", model_name(cards.BUNDLED.get(base, base)), "")]
    for run in trainings:
        for annotation in _annotations(results, run):
            calls, texts = (annotation.metrics.get(name, 0) for name in ("calls_kept", "texts_kept"))
            tools = ", ".join(f"{tool} (τ_f {value:g})" for tool, value in _thresholds(annotation).items())
            corpus = cards.last_part(str(annotation.facts.get("corpus", "")))
            what = f"run {annotation.id}: {corpus}; {calls:,.0f} calls kept in {texts:,.0f} texts; {tools}"
            rows.append(("annotation", what, cards.code(cards.public(annotation.command))))
        kind = "C* (texts with calls)" if run.facts.get("data") == "augmented" else "C (texts without calls)"
        what = f"run {run.id} on {kind}, seed {run.setting('seed')}"
        rows.append(("training", what, cards.code(cards.public(run.command))))
    return rows


def _results(evaluated: Sequence[Run]) -> str:
    """A row per evaluation and benchmark, the newest first."""
    rows = []
    for result in evaluations.measured(evaluated):
        metrics, run = result.metrics, result.run
        low, high = metrics.get("ci_low"), metrics.get("ci_high")
        interval = f"[{low:.1f}, {high:.1f}]" if low is not None and high is not None else ""
        rows.append(
            (
                *(title_of(result.task), SYSTEMS[run.facts["system"]], run.facts.get("policy", "")),
                *(f"{result.value:.2f}", result.measure, interval, f"{metrics.get('n', 0):,.0f}"),
                *(f"{metrics.get('n_ac', 0):,.0f}", run.facts.get("dtype", ""), run.id[:8]),
            )
        )
    head = ("benchmark", "system", "policy (k)", "value", "in", "95 %", "n", "with a call", "dtype", "run")
    return cards.table(head, rows)


def _decoding(model: Path, evaluated: Sequence[Run], calls: bool) -> str:
    """When calls start: what tune-policy stored with the model, and what was evaluated."""
    if not calls:
        return "As a plain language model: it was trained on no calls."
    lines = [
        "A call starts when ` [` is among the k most likely next tokens (the paper: k = 10), at most one per input."
    ]
    if (model / STORED).is_file():
        stored = StoredPolicy.load(model)
        by_tool = "".join(f", {tool} {value:g}" for tool, value in stored.by_tool.items())
        lines.append(
            f"Chosen on development questions and stored in `{STORED}`: {stored.policy} {stored.value:g}{by_tool}."
        )
    policies = sorted(
        {str(run.facts.get("policy", "")) for run in evaluated if run.facts.get("system") == "toolformer"}
    )
    if policies:
        lines.append(f"Evaluated with: {cards.markdown('; '.join(policies))}.")
    lines.append("`toolformer complete TEXT --model FOLDER` decodes with the tools.")
    return " ".join(lines)
