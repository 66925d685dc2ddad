"""`toolformer export dataset`: C* of an annotation in a format of `formats.FORMATS`, with a data card."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCardData

from toolformer.annotation.funnel import REASONS, STEPS
from toolformer.errors import UserError, near
from toolformer.export import cards
from toolformer.export.folders import CARD, export_folder
from toolformer.export.formats import FORMATS, Source
from toolformer.export.preferences import read_preferences
from toolformer.jobs.train import rows_to_train
from toolformer.results import Results, Run
from toolformer.results.provenance import model_name
from toolformer.storage import atomic_write, sha256

log = logging.getLogger(__name__)

DATASET = "dataset_augmented.parquet"


def export_dataset(
    results: Results,
    run: Run,
    folder: Path,
    *,
    format: str = "datasets",
    model: str | None = None,
    train_on_results: bool = True,
    limit_per_tool: int = 25_000,
    seed: int = 0,
) -> int:
    """Writes C* of a finished generate run into a new folder, with a data card; returns the number of rows. Nothing is done where it
    is there already.

    Args:
        format: a key of `FORMATS`.
        model: whose tokenizer cuts the texts; by default the model that annotated.
        train_on_results: whether results are in the loss (formats of tokens).
        limit_per_tool: rows per tool, as in training; the format `datasets` has all rows.

    Raises:
        UserError: an unknown format, no kept call, a folder that holds something else, damaged results, or no tokenizer.
    """
    if format not in FORMATS:
        raise UserError(f"format: there is no {format}{near(format, FORMATS)}; known: {', '.join(FORMATS)}")
    chosen = FORMATS[format]
    tokenizer = model or str(run.setting("model", ""))
    rows = rows_to_train(results, [run], limit_per_tool, seed)
    source = Source(
        results.artifact(run, DATASET),
        rows,
        lambda: _tokenizer(tokenizer),
        train_on_results,
        lambda: read_preferences(results, run),
    )
    options = {
        "format": format,
        "tokenizer": tokenizer,
        "results": train_on_results,
        "limit": limit_per_tool,
        "seed": seed,
    }
    with export_folder(folder, run, **options) as made:
        if made is None:
            log.info("export: run %s is in %s already", run.id[:8], folder)
            return len(rows)
        path = made / chosen.file
        path.parent.mkdir(exist_ok=True)
        rows_written = chosen.write(source, path)
        cut_by = cards.last_part(model_name(tokenizer)) if chosen.of_tokens else ""
        atomic_write(made / CARD, _card(results, run, format, rows_written, made, cut_by).encode())
    log.info("export: %d rows of run %s as %s in %s", rows_written, run.id[:8], format, folder)
    return rows_written


def _tokenizer(model: str) -> Any:
    from toolformer.lm.loading import load_tokenizer

    return load_tokenizer(model)


def _card(results: Results, run: Run, format: str, rows: int, made: Path, tokenizer: str) -> str:
    chosen = FORMATS[format]
    funnel: dict[str, Mapping[str, Any]] = json.loads(results.artifact(run, "funnel.json").read_bytes())
    sources = cards.sources(run, funnel)
    head = DatasetCardData(
        **cards.licence(sources),
        task_categories=["text-generation"],
        tags=["toolformer", "tool-use"],
        configs=[{"config_name": "default", "data_files": [{"split": "train", "path": chosen.file}]}],
    )
    summary = [
        ("rows", f"{rows:,}"),
        ("format", format),
        ("annotating model", cards.last_part(model_name(str(run.setting("model", ""))))),
        *([("tokenizer", tokenizer)] if tokenizer else []),
        ("gain", "measured against the loss with no call" + _baseline(run)),
        (
            "annotation",
            f"run {run.id}, toolformer {run.facts.get('version.toolformer', 'of an unknown version')}",
        ),
    ]
    usage = [f"```\n{chosen.usage}\n```\n"] if chosen.usage else []
    return cards.card(
        head,
        "# Texts with the tool calls that helped a language model\n",
        "Calls that a language model wrote into plain texts and that were kept because their results lower its loss on the next "
        "tokens (Toolformer, Schick et al., 2023). No human wrote them or checked them; results may be wrong.\n",
        chosen.meaning + "\n",
        *usage,
        cards.table(("", ""), summary),
        "## From texts to kept calls\n",
        _funnel(run, funnel),
        "## Settings\n",
        cards.settings(run.step),
        "## Sources\n",
        cards.table(("what", "name", "licence"), sources),
        "## SHA-256\n",
        _hashes(made, run),
    )


def _baseline(run: Run) -> str:
    return (
        ""
        if run.setting("filter.baseline") == "plain"
        else ", or with a call that has no result if that is less"
    )


def _funnel(run: Run, funnel: Mapping[str, Mapping[str, Any]]) -> str:
    """The counts of each step by tool with τ_f, then why calls were not kept."""
    thresholds = run.thresholds
    rows = [
        (tool, thresholds.get(tool, ""), *(counts.get(step, "") for step in STEPS))
        for tool, counts in funnel.items()
    ]
    text = cards.table(("tool", "τ_f (nats)", *(step.replace("_", " ") for step in STEPS)), rows)
    reasons = [
        (tool, what, reason, count)
        for tool, counts in funnel.items()
        for name, what in REASONS.items()
        for reason, count in sorted(counts.get(name, {}).items())
    ]
    return f"{text}\n{cards.table(('tool', 'of', 'reason', 'count'), reasons)}" if reasons else text


def _hashes(made: Path, run: Run) -> str:
    files = sorted(path for path in made.rglob("*") if path.is_file())
    rows = [(cards.code(str(path.relative_to(made))), cards.code(sha256(path))) for path in files]
    rows += [
        (cards.code(f"of the run: {name}"), cards.code(digest))
        for name, digest in sorted(run.digests.items())
        if name in (DATASET, "candidates.parquet", "funnel.json")
    ]
    return cards.table(("file", "SHA-256"), rows)
