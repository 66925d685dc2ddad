"""What a training leaves in its folder, and where a later call goes on.

| folder | counts once | holds |
| --- | --- | --- |
| `checkpoints/checkpoint-STEP` | `complete.json` is written, last | weights and optimizer, to resume from |
| `best-STEP` | `training.json` is written, last | the model with the lowest held-out perplexity so far |
| `copy.partial` | never | a copy of it, on its way to `model-after-STEPS` |
| `model-after-STEPS` | it has its name | the best model of a training that `max_hours` ended |
| `model` | it has its name | the best model of a finished training; the other folders are removed |

| a later call finds | and |
| --- | --- |
| `model` | returns it |
| `model-after-STEPS`, and `max_hours` is no longer than before | returns it |
| checkpoints | resumes from the latest intact one; from the start if `best-STEP` is damaged |
| nothing | starts |

`complete.json` and `training.json` hold the SHA-256 of the files: a damaged folder does not count, and is made again.
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
from toolformer.storage import acquired, atomic_write, lock_file, sha256, sync, writing
from toolformer.training.distributed import rank
from toolformer.training.settings import TrainingResult

log = logging.getLogger(__name__)

MANIFEST = "complete.json"
"""Written last into a checkpoint: its files' hashes, and the seconds of training so far."""
RECORD = "training.json"
"""Written last into a model: how it was trained."""
MODEL, CUT_SHORT = "model", "model-after-"
"""The model of a finished training, and of one that `max_hours` ended after so many steps."""
OWNER = "run.json"
"""In the checkpoints' folder: what a training must be continued with."""
FOLDER = "checkpoints"
"""The checkpoints' folder, next to the models."""

# Messages of torch's RuntimeError (not OSError) when a write fails while saving.
_TORCH_WRITE_FAILURES = ("PytorchStreamWriter", "unexpected pos", "No space left")


def write_last(folder: Path, name: str, record: dict[str, Any]) -> None:
    """Writes a JSON file into a folder once all other files have reached the disk."""
    for path in (*folder.rglob("*"), folder):
        sync(path)
    write_json(folder / name, record)


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of a folder's files, except manifest and record."""
    excluded = (folder / MANIFEST, folder / RECORD)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path not in excluded)
    names = (str(path.relative_to(folder)) for path in files)
    with ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(sha256, files), strict=True))


def complete_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints that have a manifest, earliest first."""
    complete = [path for path in folder.glob("checkpoint-*") if (path / MANIFEST).is_file()]
    return sorted(complete, key=lambda path: int(path.name.rpartition("-")[2]))


def to_resume(output_dir: Path, keep: int) -> Path | None:
    """The latest intact checkpoint; removes damaged ones, and all but the latest `keep`.

    None, to start over, also if the best model so far is damaged, since the one before it is gone.
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
    """The latest checkpoint whose files match its manifest; logs and removes damaged ones.

    Loading those could run code: DeepSpeed unpickles its files.
    """
    for checkpoint in reversed(complete_checkpoints(folder)):
        manifest = read_json(checkpoint / MANIFEST)
        is_valid = isinstance(manifest.get("seconds"), float)
        damaged = _damaged(checkpoint, manifest, all_files=True) if is_valid else MANIFEST
        if damaged is None:
            return checkpoint
        log.warning(
            "training: %s is damaged (%s is not what was saved); resuming from the previous checkpoint, or from the start",
            *(checkpoint, damaged),
        )
        _remove(checkpoint)
    return None


def _damaged(folder: Path, record: dict[str, Any], all_files: bool = False) -> str | None:
    """A file whose hash is not that of the record; with `all_files` also one that the record lacks."""
    listed, actual = record.get("sha256"), hashes(folder)
    listed = listed if isinstance(listed, dict) else {}
    names = sorted({*listed, *(actual if all_files else ())})
    return next((name for name in names if listed.get(name) != actual.get(name)), None)


def _is_intact(model: Path) -> bool:
    """Whether a model's files match its record; if not, logs it and removes the record.

    Records of earlier versions have no hashes. Files may have been added, such as a policy.
    """
    damaged = _damaged(model, read_json(model / RECORD))
    if damaged is not None:
        _undo(model, damaged)
    return damaged is None


def _undo(model: Path, damaged: str) -> None:
    log.warning("training: %s is damaged (%s is not what was saved); it is trained again", model, damaged)
    (model / RECORD).unlink(missing_ok=True)


def trained(model: Path) -> TrainingResult | None:
    """The result of a training, from its model's folder; None, permanently, if that is damaged."""
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
    """The result of a training that is done, or was ended by at least `max_hours`."""
    for model in kept_models(output_dir):
        result = trained(model)
        if result is not None and is_long_enough(result.ended_by_max_hours, max_hours):
            return result
    return None


def remove_checkpoints(folder: Path, keep: int) -> None:
    """Removes all checkpoints but the latest `keep` complete ones."""
    kept = complete_checkpoints(folder)[-keep:]
    for path in folder.glob("checkpoint-*"):
        if path not in kept:
            _remove(path)


def _remove(checkpoint: Path) -> None:
    # The manifest first: a partly removed checkpoint must not count.
    (checkpoint / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(checkpoint, ignore_errors=True)


def kept_models(folder: Path) -> list[Path]:
    """The final model of a training, or those ended by `max_hours`, earliest first."""
    if (folder / MODEL).exists():
        return [folder / MODEL]
    return sorted(folder.glob(f"{CUT_SHORT}*[0-9]"), key=lambda path: int(path.name.removeprefix(CUT_SHORT)))


def is_long_enough(ended_by: float | None, max_hours: float | None) -> bool:
    """Whether a training that was ended after `ended_by` hours (None: not ended) satisfies `max_hours`."""
    return ended_by is None or (max_hours is not None and max_hours <= ended_by)


def best_record(folder: Path) -> dict[str, Any]:
    """The record of the best model so far: `step`, `heldout_perplexity`; empty if there is none."""
    records = [read_json(path / RECORD) for path in folder.glob("best-*")]
    valid = [record for record in records if {"step", "heldout_perplexity"} <= record.keys()]
    return min(valid, key=lambda record: float(record["heldout_perplexity"]), default={})


@contextmanager
def held(folder: Path, owner: dict[str, Any]) -> Iterator[None]:
    """Locks the checkpoints' folder for one command, in its first process.

    UserError if another command has it, or it was started with another `owner` (a hash of the texts, `processes`, `dtype`).
    """
    if rank() > 0:
        yield
        return
    lock = lock_file(folder / "lock")
    if not acquired(lock):
        raise UserError(f"training: another command is using {folder}; wait for it to finish")
    try:
        before = read_json(folder / OWNER)
        if not before:
            write_json(folder / OWNER, owner)
        elif other := [f"{key}={before[key]}" for key in owner if before.get(key, owner[key]) != owner[key]]:
            raise UserError(
                f"training: {folder} was started with {' and '.join(other)}; continue as it was started, or remove the "
                "folder to start over"
            )
        yield
    finally:
        lock.release()


@contextmanager
def saving(partial: Path) -> Iterator[None]:
    """Turns a failed write into a UserError, and removes `partial`."""
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
    """Writes a JSON object atomically. UserError if it cannot be written."""
    atomic_write(path, json.dumps(record, indent=1, default=str).encode() + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    with suppress(OSError, ValueError, RecursionError):
        record = json.loads(path.read_text(encoding="utf-8"))
        return record if isinstance(record, dict) else {}
    return {}
