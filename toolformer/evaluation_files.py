"""Files of an evaluation: ids of samples and benchmark data that it reads, held-out texts and samples that it writes."""

from __future__ import annotations

import datetime
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import DATA_FOLDERS
from toolformer import build
from toolformer.config import Config
from toolformer.errors import UserError
from toolformer.tools import sources

if TYPE_CHECKING:
    from benchmarks.suite import TaskResult

log = logging.getLogger(__name__)

_DATA = (".json", ".json.gz", ".jsonl", ".jsonl.gz")
"""Endings of benchmark files."""

Ids = Mapping[str, Sequence[str]] | Sequence[str]
"""Ids of documents, of each benchmark or of any."""


def sample_ids(samples: Any) -> Ids | None:
    """`evaluation.samples` as ids: a list, a mapping from benchmark to list, or a file that holds either.

    Raises:
        UserError: it is something else, holds no ids, or the file cannot be read.
    """
    if samples is None:
        return None
    content, place = samples, "evaluation.samples"
    if isinstance(samples, str):
        path = Path(samples).expanduser()
        place = f"evaluation.samples: {path}"
        try:
            text = path.read_text(encoding="utf-8")
            content = (
                json.loads(text)
                if text.lstrip()[:1] in ("[", "{")
                else [line.strip() for line in text.splitlines() if line.strip()]
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else f"broken JSON or no UTF-8: {error}"
            raise UserError(
                f"{place} cannot be read as ids ({reason}); name a file, or list the ids"
            ) from error
    ids = {str(k): _id_list(v, place) for k, v in content.items()} if isinstance(content, dict) else None
    found: Ids = _id_list(content, place) if ids is None else ids
    if not found:
        raise UserError(f"{place} holds no ids; leave it out (null) for all examples")
    return found


def _id_list(content: Any, place: str) -> list[str]:
    if not isinstance(content, list) or not all(
        isinstance(one, str | int) and not isinstance(one, bool) for one in content
    ):
        raise UserError(
            f"{place} must be a list of ids, a mapping from benchmark to such a list, or a file of ids"
        )
    return sorted({str(one) for one in content})


def metadata(config: Config, tasks: Sequence[str], folder: Path) -> dict[str, Any]:
    """What the loaders of the tasks' documents are told."""
    told: dict[str, Any] = {
        "data_dir": config.paths.data_dir,
        "subset": config.evaluation.limit,
        "perplexity_subset": config.evaluation.perplexity_limit,
        "seed": config.seed,
    }
    if "heldout_perplexity" in tasks:
        told["heldout_path"] = str(write_heldout(config, folder / "heldout.jsonl"))
    return told


def data_files(data_dir: str | None, root: str | Path) -> list[tuple[str, int, int]]:
    """The benchmark files that results may depend on, by name, size and time of change.

    What runs write themselves is no data: below their folder `root`, only files count that a loader may read.
    """
    # The places that loaders know, and no others.
    places = ("*/*", "*/test/*")
    folder, runs = Path(data_dir or "").expanduser(), Path(root).expanduser().resolve()
    files = sorted(file for one in places for file in folder.glob(one)) if data_dir else []
    files = [
        file
        for file in files
        if not file.resolve().is_relative_to(runs)
        or (file.relative_to(folder).parts[0] in DATA_FOLDERS and file.name.endswith(_DATA))
    ]
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]


def weights(model: Path) -> list[tuple[str, int, str]]:
    """What tells the model in a folder that a training left from any other that was there: its files by name, size and content.

    Large files are not hashed; the training's own record stands for their content, which says to the microsecond how long it
    took. A folder that is moved or copied thereby stays the same model. Without a record the time of change counts.
    """
    from toolformer.training.checkpoints import RECORD

    files = [sources.state(file) for file in sorted(model.iterdir()) if file.suffix in build.MODEL_FILES]
    if RECORD not in {name for name, *_ in files}:
        return files
    return [(name, size, held if size <= sources.LARGEST_HASHED else "") for name, size, held in files]


def first_day(folder: Path) -> datetime.date:
    """The day on which this was first asked of a folder, which is kept there: all its answers are of one day."""
    path = folder / "day"
    try:
        return datetime.date.fromisoformat(path.read_text(encoding="utf-8").strip())
    except (OSError, ValueError):  # not there yet, or damaged
        today = datetime.date.today()
    partial = path.with_name(f".day.{secrets.token_hex(4)}")
    partial.write_text(f"{today.isoformat()}\n", encoding="utf-8")
    partial.replace(path)
    return today


def write_heldout(config: Config, path: Path) -> Path:
    """The held-out corpus as the task reads it, whatever it comes from; logs how many rows of it were read and kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")  # the same evaluation may be reading it
    corpus, kept = build.documents(config.heldout, "heldout"), 0
    try:
        with partial.open("w", encoding="utf-8") as file:
            for document in corpus:
                kept += 1
                row = {"id": document.doc_id, "text": document.text}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        skipped = corpus.skipped()
        total = kept + sum(skipped.values())
        log.info("heldout: %d rows read, %d kept, dropped: %s", total, kept, skipped or "none")
        if not kept:
            raise UserError(
                "heldout: it holds no document with text; give another heldout or heldout.path, or name the field in "
                "heldout.text_field"
            )
        return partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_samples(folder: Path, task: str, result: TaskResult) -> Path:
    import pandas

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{task}.parquet"
    pandas.DataFrame(result.samples).to_parquet(path, index=False)
    return path
