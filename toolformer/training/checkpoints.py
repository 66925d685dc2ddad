"""Folders on disk that are whole or do not count: checkpoints to resume from, and models.

A checkpoint counts once its mark is written, a model once it has its final name. Knows nothing of training.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from toolformer.errors import UserError

MARK = "complete.json"
"""Written last into a checkpoint; holds what the checkpoint itself does not know."""
RECORD = "training.json"
"""Beside the weights of a model: how it was trained."""
MODEL, CUT_SHORT = "model", "model-after-"
"""The model of a whole training, and that of one which its time ended, by the steps that it made."""
RUN = "run.json"
"""In the checkpoints' folder: which run they belong to."""

# What torch says when a write fails while it saves; it raises RuntimeError then, not OSError.
_TORCH_WRITE_FAILURES = ("PytorchStreamWriter", "unexpected pos", "No space left")


def fingerprint(deciding: dict[str, Any], *texts: Sequence[str]) -> str:
    """SHA-256 of what decides a run, in hexadecimal."""
    digest = hashlib.sha256(json.dumps(deciding, sort_keys=True, default=str).encode())
    for group in texts:
        digest.update(b"\x00")
        for text in group:
            digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()


def mark_complete(checkpoint: Path, record: dict[str, Any]) -> None:
    """Declares a checkpoint whole, once all of it has reached the disk."""
    settle(checkpoint)
    write_json(checkpoint / MARK, record)


def settle(folder: Path) -> None:
    """Has the disk take everything below a folder, so that losing power after this loses nothing of it."""
    for path in (*(file for file in folder.rglob("*") if file.is_file()), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def complete_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints that are whole, earliest first."""
    found = [path for path in folder.glob("checkpoint-*") if (path / MARK).is_file()]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def remove_checkpoints(folder: Path, keep: int) -> None:
    """Removes checkpoints but for the latest `keep` whole ones."""
    kept = complete_checkpoints(folder)[-keep:] if keep else []
    for path in folder.glob("checkpoint-*"):
        if path not in kept:
            # Without its mark first: a checkpoint half removed must not count.
            (path / MARK).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)


def kept_models(folder: Path) -> list[Path]:
    """The models of a training: the one of the whole training, or those that its time ended, earliest first."""
    if (folder / MODEL).exists():
        return [folder / MODEL]
    return sorted(folder.glob(f"{CUT_SHORT}*[0-9]"), key=lambda path: int(path.name.removeprefix(CUT_SHORT)))


def suffices(ended_by: float | None, max_hours: float | None) -> bool:
    """Whether a training that a `max_hours` ended (None: that ended by itself) is what a command with another one asks for."""
    return ended_by is None or (max_hours is not None and max_hours <= ended_by)


def best_record(folder: Path, run: str) -> dict[str, Any]:
    """What is recorded of the best model of this run so far: `step`, `heldout_perplexity`; empty if there is none."""
    records = [read_json(path / RECORD) or {} for path in folder.glob("best-*")]
    return min(
        (record for record in records if record.get("run") == run),
        key=lambda record: float(record["heldout_perplexity"]),
        default={},
    )


def replace_best(folder: Path, partial: Path, step: int) -> None:
    """Makes a model just written the best one: first it gets its name, then the others are removed."""
    settle(partial)
    best = folder / f"best-{step}"
    shutil.rmtree(best, ignore_errors=True)
    partial.rename(best)
    for path in folder.glob("best-*"):
        if path != best:
            (path / RECORD).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)


def copy_best(best: Path, model: Path) -> None:
    """Copies the best model so far under another name; the training itself stays as it is."""
    partial = best.with_name("best.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(best, partial)
    settle(partial)
    shutil.rmtree(model, ignore_errors=True)
    partial.rename(model)


def claim(folder: Path, run: str, processes: int, dtype: str) -> None:
    """Makes the checkpoints' folder that of one run, with a number of processes and a number format.

    Raises:
        UserError: it holds the checkpoints of a run with others of these, or with other settings, texts or model.
    """
    owner = read_json(folder / RUN)
    if owner is None:
        with saving(folder, partial=None):
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / RUN, {"run": run, "processes": processes, "dtype": dtype})
    elif (begun := owner.get("processes", processes)) != processes:
        raise UserError(
            f"training: {folder} was begun with {begun} process{'es' if begun != 1 else ''}; start {begun} again, or remove"
            " the folder to begin anew"
        )
    elif owner.get("run") != run:
        raise UserError(
            f"training: {folder} belongs to a run with other settings, texts or model;"
            " remove it or name another folder"
        )
    elif (begun_in := owner.get("dtype", dtype)) != dtype:
        raise UserError(
            f"training: {folder} was begun in {begun_in}, and lm.dtype comes to {dtype} here; go on where it comes to"
            f" {begun_in}, or remove the folder to begin anew"
        )


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds the checkpoints' folder for one command (of several processes the first does); ends with its holder.

    Raises:
        UserError: another command holds it.
    """
    if int(os.environ.get("RANK", "0")) > 0:
        yield
        return
    lock = FileLock(folder / "lock", thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise UserError(
            f"training: another command is at work in {folder}; wait for it, its model will be taken as it is"
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def saving(folder: Path, partial: Path | None) -> Iterator[None]:
    """Turns a failed write into a UserError that names the folder; removes what was written of `partial`."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(text in str(error) for text in _TORCH_WRITE_FAILURES):
            raise
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
        reason = str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
        raise UserError(
            f"training: cannot write into {folder} ({reason}; {_free(folder)} free);"
            " make room there and run again: it goes on from the last whole checkpoint"
        ) from error


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Writes a JSON object whole or not at all."""
    # A name of its own: the processes of one training may all claim its folder at once.
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    partial.write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    os.replace(partial, path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object of a file, or None if there is no whole one."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def _free(folder: Path) -> str:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return f"{shutil.disk_usage(folder).free / 1e9:.1f} GB"
