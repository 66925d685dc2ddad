"""What a training leaves on disk: checkpoints to resume from, and models.

A checkpoint counts once its manifest is written, the best model so far once its record is, a finished model once it has
its name. Manifest and record hold the SHA-256 of the files: whatever is damaged does not count, and is made again.
"""

import json
import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError

from toolformer.errors import UserError, one_line
from toolformer.storage import acquired, lock_file, sha256, sync, write_whole, writing
from toolformer.training.distributed import rank
from toolformer.training.settings import TrainingResult

log = logging.getLogger(__name__)

MANIFEST = "complete.json"
"""Written last into a checkpoint: the hashes of its files, and the training's seconds so far."""
RECORD = "training.json"
"""Beside the weights of a model, written last: how it was trained."""
MODEL, CUT_SHORT = "model", "model-after-"
"""The model of a whole training, and that of one ended by `max_hours`, by the steps that it made."""
OWNER = "run.json"
"""In the checkpoints' folder: what they were begun with, which rounds sums."""
FOLDER = "checkpoints"
"""The checkpoints' folder, beside the models."""

# What torch says when a write fails while it saves; it raises RuntimeError then, not OSError.
_TORCH_WRITE_FAILURES = ("PytorchStreamWriter", "unexpected pos", "No space left")


def write_last(folder: Path, name: str, record: dict[str, Any]) -> None:
    """Writes a JSON file into a folder once everything else in it has reached the disk."""
    for path in (*folder.rglob("*"), folder):
        sync(path)
    write_json(folder / name, record)


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of a folder's files but for its manifest or record."""
    own = (folder / MANIFEST, folder / RECORD)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path not in own)
    names = (str(path.relative_to(folder)) for path in files)
    with ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(sha256, files), strict=True))


def complete_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints that have a manifest, earliest first."""
    complete = [path for path in folder.glob("checkpoint-*") if (path / MANIFEST).is_file()]
    return sorted(complete, key=lambda path: int(path.name.rpartition("-")[2]))


def to_resume(output_dir: Path, keep: int) -> Path | None:
    """The latest intact checkpoint of a training; what cannot be continued is removed, and of the others all but `keep`.

    None, to begin at the start, also where the best model so far is damaged: what was better than it is gone.
    """
    folder = output_dir / FOLDER
    latest = latest_intact(folder)
    best = [path for path in output_dir.glob("best-*") if (path / RECORD).is_file()]
    if latest is not None and not all(_is_intact(path) for path in best):
        for checkpoint in folder.glob("checkpoint-*"):
            _remove(checkpoint)
        latest = None
    remove_checkpoints(folder, keep)
    if latest is None:
        for path in output_dir.glob("best-*"):
            shutil.rmtree(path)
    return latest


def latest_intact(folder: Path) -> Path | None:
    """The latest checkpoint whose files are those of its manifest; damaged ones are named and removed.

    Loading others could run code: DeepSpeed unpickles its files.
    """
    for checkpoint in reversed(complete_checkpoints(folder)):
        manifest = read_json(checkpoint / MANIFEST)
        listed, actual = _listed(manifest), hashes(checkpoint)
        damaged = sorted(name for name in {*listed, *actual} if listed.get(name) != actual.get(name))
        if not isinstance(manifest.get("seconds"), float):
            damaged = [MANIFEST]
        if not damaged:
            return checkpoint
        log.warning(
            "training: %s is damaged (%s is not what was saved); resuming from the checkpoint before it, or from the start",
            *(checkpoint, damaged[0]),
        )
        _remove(checkpoint)
    return None


def _listed(record: dict[str, Any]) -> dict[str, Any]:
    """The hashes that a manifest or a record lists."""
    listed = record.get("sha256", {})
    return listed if isinstance(listed, dict) else {}


def _is_intact(model: Path) -> bool:
    """Whether a model's files are those of its record; if not, they are named, and the record is removed.

    A record of an earlier version lists none. Files may have been added, a policy for example.
    """
    listed, actual = _listed(read_json(model / RECORD)), hashes(model)
    damaged = next((name for name in listed if listed[name] != actual.get(name)), None)
    if damaged is not None:
        _undo(model, damaged)
    return damaged is None


def _undo(model: Path, damaged: str) -> None:
    log.warning("training: %s is damaged (%s is not what was saved); it is trained again", model, damaged)
    (model / RECORD).unlink(missing_ok=True)


def trained(model: Path) -> TrainingResult | None:
    """What a training came to, from its model's folder; None, and so for every command after it, if that is damaged."""
    if not (model / RECORD).is_file() or not _is_intact(model):
        return None
    record = read_json(model / RECORD)
    try:
        return TypeAdapter(TrainingResult).validate_python(
            {**record, "model_path": model, "best_step": record.get("step")}
        )
    except ValidationError:
        _undo(model, RECORD)
        return None


def finished(output_dir: Path, max_hours: float | None) -> TrainingResult | None:
    """What a training has left, if it is done or `max_hours` asks for no more."""
    for model in kept_models(output_dir):
        result = trained(model)
        if result is not None and suffices(result.ended_by_max_hours, max_hours):
            return result
    return None


def remove_checkpoints(folder: Path, keep: int) -> None:
    """Removes checkpoints but for the latest `keep` whole ones."""
    kept = complete_checkpoints(folder)[-keep:]
    for path in folder.glob("checkpoint-*"):
        if path not in kept:
            _remove(path)


def _remove(checkpoint: Path) -> None:
    # Without its manifest first: a checkpoint half removed must not count.
    (checkpoint / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(checkpoint, ignore_errors=True)


def kept_models(folder: Path) -> list[Path]:
    """The models of a training: that of the whole training, or those ended by `max_hours`, earliest first."""
    if (folder / MODEL).exists():
        return [folder / MODEL]
    return sorted(folder.glob(f"{CUT_SHORT}*[0-9]"), key=lambda path: int(path.name.removeprefix(CUT_SHORT)))


def suffices(ended_by: float | None, max_hours: float | None) -> bool:
    """Whether a training that was ended by `ended_by` hours (None: by itself) is what `max_hours` asks for."""
    return ended_by is None or (max_hours is not None and max_hours <= ended_by)


def best_record(folder: Path) -> dict[str, Any]:
    """The record of the best model so far: `step`, `heldout_perplexity`; empty if there is none."""
    records = [read_json(path / RECORD) for path in folder.glob("best-*")]
    whole = [record for record in records if {"step", "heldout_perplexity"} <= record.keys()]
    return min(whole, key=lambda record: float(record["heldout_perplexity"]), default={})


@contextmanager
def held(folder: Path, owner: dict[str, Any]) -> Iterator[None]:
    """Holds the checkpoints' folder for one command, in its first process.

    UserError if another command holds it, or it was begun by another `owner` (a digest of the texts, `processes` and `dtype`).
    """
    if rank() > 0:
        yield
        return
    lock = lock_file(folder / "lock")
    if not acquired(lock):
        raise UserError(f"training: another command is at work in {folder}; wait for it to use its model")
    try:
        before = read_json(folder / OWNER)
        if not before:
            write_json(folder / OWNER, owner)
        elif other := [f"{key}={before[key]}" for key in owner if before.get(key, owner[key]) != owner[key]]:
            raise UserError(
                f"training: {folder} was started with {' and '.join(other)}; continue as it was started, or remove the "
                "folder to begin anew"
            )
        yield
    finally:
        lock.release()


@contextmanager
def saving(partial: Path) -> Iterator[None]:
    """Turns a failed write into one line (UserError), and removes what was written of `partial`."""
    with writing(partial):
        try:
            yield
        except (OSError, SafetensorError, RuntimeError) as error:
            is_write = any(text in str(error) for text in _TORCH_WRITE_FAILURES)
            if isinstance(error, RuntimeError) and not is_write:
                raise
            shutil.rmtree(partial, ignore_errors=True)
            raise OSError(one_line(error, 120)) from error


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Writes a JSON object whole or not at all. UserError if it cannot be written."""
    write_whole(path, json.dumps(record, indent=1, default=str).encode() + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object of a file; empty if there is no whole one."""
    with suppress(OSError, ValueError, RecursionError):
        record = json.loads(path.read_text(encoding="utf-8"))
        return record if isinstance(record, dict) else {}
    return {}
