"""The folders of a training: the Trainer's checkpoints, and the finished model.

| folder | complete once | holds |
| --- | --- | --- |
| `checkpoints/checkpoint-STEP` | `complete.json` is written, last | the Trainer's checkpoint: weights, optimizer, random states |
| `model` | it has its name | the model with the lowest held-out perplexity; the checkpoints are removed |

`complete.json`, and `training.json` in the model's folder, hold a digest of each other file, of large ones of a sample: a file
that is missing, cut short or another one is found, and no file of weights is read whole for it. A damaged checkpoint is skipped,
a damaged model is trained again.
"""

import errno
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from toolformer.errors import UserError, one_line
from toolformer.storage import atomic_write, has_digest, sample_digest, sync, writing
from toolformer.tools.identity import MODEL_FILES, model_files
from toolformer.training.settings import TrainingResult

log = logging.getLogger(__name__)

MANIFEST = "complete.json"
"""Written last into a checkpoint: its files' digests, and the seconds of training so far."""
RECORD = "training.json"
"""Written last into a model: how it was trained, and its files' digests."""
MODEL, CHECKPOINTS = "model", "checkpoints"
"""The folders of the finished model and of the checkpoints."""
_OWNER = "run.json"
"""In the checkpoints' folder: what a training must be resumed with."""
_RANDOM_STATES = "rng_state*.pth"
"""Files of each process in a checkpoint that can be resumed from; DeepSpeed's optimizer has other names than torch's."""

# Parts of the messages of failed writes that are not OSErrors: torch's RuntimeError, which hides the reason, and the plain
# Exception of tokenizers.
_CUT_SHORT = ("PytorchStreamWriter", "unexpected pos")
_WRITE_FAILURES = (*_CUT_SHORT, "No space left", "(os error ")


def checkpoint_folder(checkpoints: Path, step: int) -> Path:
    """The Trainer's checkpoint of a step."""
    return checkpoints / f"{PREFIX_CHECKPOINT_DIR}-{step}"


def write_last(folder: Path, name: str, record: dict[str, Any]) -> None:
    """Writes a JSON file with the digests of a folder's files into it, once those have reached the disk."""
    for path in (*folder.rglob("*"), folder):
        sync(path)
    digests = {file_name: sample_digest(file) for file_name, file in _files(folder).items()}
    atomic_write(folder / name, _encoded({**record, "sha256": digests}))


def _files(folder: Path) -> dict[str, Path]:
    """A folder's files by name, except manifest and record."""
    excluded = (folder / MANIFEST, folder / RECORD)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path not in excluded)
    return {str(path.relative_to(folder)): path for path in files}


def latest_intact(checkpoints: Path) -> Path | None:
    """The latest checkpoint that is intact, and whose best checkpoint so far is; later and incomplete ones are removed.

    Those of `trainer.save_every=0` are weights alone: they may be a best one, but nothing is resumed from them. Damaged ones are
    logged. Loading those could run code: DeepSpeed unpickles its files.
    """
    remove_incomplete(checkpoints)
    intact: dict[int, Path] = {}
    for checkpoint in checkpoints.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        if damaged := _damaged_checkpoint(checkpoint):
            log.warning(
                "training: %s is damaged (%s is not what was saved); resuming from the previous checkpoint, or from the start",
                *(checkpoint, damaged),
            )
            _remove(checkpoint)
        else:
            intact[int(checkpoint.name.rpartition("-")[2])] = checkpoint
    for step, checkpoint in sorted(intact.items(), reverse=True):
        best = read_json(checkpoint / TRAINER_STATE_NAME).get("best_global_step")
        is_resumable = any(checkpoint.glob(_RANDOM_STATES))
        if is_resumable and (best is None or best in intact):
            return checkpoint
        if is_resumable:
            log.warning("training: the best model up to step %d is lost; resuming from before it", step)
        _remove(checkpoint)  # its step is taken again: it would count as more recent than what is saved then
    return None


def _damaged_checkpoint(checkpoint: Path) -> str | None:
    manifest = read_json(checkpoint / MANIFEST)
    if not isinstance(manifest.get("seconds"), float):
        return MANIFEST
    return _damaged(checkpoint, manifest, all_files=True)


def _damaged(folder: Path, record: dict[str, Any], all_files: bool = False) -> str | None:
    """A file that has not its digest of the record, or is gone; with `all_files` also one that the record lacks."""
    listed, files = _digests(record), _files(folder)
    names = sorted({*listed, *(files if all_files else ())})
    return next(
        (name for name in names if name not in files or not has_digest(files[name], listed.get(name))), None
    )


def check_intact(model: Path, or_gone: bool = False) -> None:
    """UserError for a model whose files are not those that its training saved; a model without a record passes.

    Args:
        or_gone: so does one without any of its weights.
    """
    if not (model / RECORD).is_file():
        return
    record = read_json(model / RECORD)
    weights = [model / name for name in _digests(record) if name.endswith((".safetensors", ".bin"))]
    is_gone = bool(weights) and not any(file.is_file() for file in weights)
    if not (or_gone and is_gone) and (damaged := _damaged(model, record)):
        raise UserError(
            f"model: {model} is damaged ({damaged} is not what its training saved); copy it again, or train it again"
        )


def deciding_files(model: Path) -> dict[str, str]:
    """Digests of the files that decide a model's answers, by name: those of its training, also of files that are gone."""
    saved = {
        name: digest
        for name, digest in _digests(read_json(model / RECORD)).items()
        if Path(name).suffix in MODEL_FILES and "/" not in name
    }
    return model_files(model, saved) | saved


def _digests(record: dict[str, Any]) -> dict[str, str]:
    """Digests of the files that were saved, by name."""
    listed = record.get("sha256")
    return listed if isinstance(listed, dict) else {}


def damaged_file(model: Path) -> str | None:
    """The name of a file of a trained model that is not as it was saved, or is gone; None if all are."""
    return _damaged(model, read_json(model / RECORD)) if (model / RECORD).is_file() else RECORD


def trained(model: Path) -> TrainingResult | None:
    """The result of a training, from its model's folder; None if there is none.

    A damaged model is logged, and loses its record. Files may have been added.
    """
    if not (model / RECORD).is_file():
        return None
    record = read_json(model / RECORD)
    damaged = _damaged(model, record)
    with suppress(ValidationError):
        if damaged is None:
            return TypeAdapter(TrainingResult).validate_python({**record, "model_path": model})
    log.warning(
        "training: %s is damaged (%s is not what was saved); it is trained again", model, damaged or RECORD
    )
    (model / RECORD).unlink(missing_ok=True)
    return None


def _remove(checkpoint: Path) -> None:
    # The manifest first: a partly removed checkpoint must not count.
    (checkpoint / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(checkpoint, ignore_errors=True)


def check_owner(checkpoints: Path, owner: dict[str, Any]) -> None:
    """UserError if the checkpoints are of another `owner`: a hash of the texts, `processes`, `dtype`."""
    before = read_json(checkpoints / _OWNER)
    if other := [f"{key}={before[key]}" for key in before if before[key] != owner.get(key)]:
        raise UserError(
            f"training: {checkpoints} was started with {' and '.join(other)}; continue as it was started, or remove the "
            "folder to start over"
        )
    if not before:
        with writing(checkpoints / _OWNER):
            checkpoints.mkdir(parents=True, exist_ok=True)
        atomic_write(checkpoints / _OWNER, _encoded(owner))


def remove_incomplete(checkpoints: Path) -> None:
    """Removes checkpoints that were not completed: the process ended while they were saved."""
    for checkpoint in checkpoints.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        if not (checkpoint / MANIFEST).is_file():
            _remove(checkpoint)


@contextmanager
def saving(path: Path, clean_up: Callable[[Path], None]) -> Iterator[None]:
    """Turns a failed write to a folder into a UserError, and calls `clean_up` on the folder."""
    with writing(path):
        try:
            yield
        except Exception as error:
            is_write = any(text in str(error) for text in _WRITE_FAILURES)
            if not (is_write or isinstance(error, OSError | SafetensorError)):
                raise
            clean_up(path)
            is_cut_short = any(text in str(error) for text in _CUT_SHORT)
            reason = getattr(error, "strerror", None) or one_line(error, 120)
            code = getattr(error, "errno", None)
            if named := re.search(r"\(os error (\d+)\)", str(error)):  # of libraries in Rust
                code = int(named[1])
            if is_cut_short:
                code, reason = errno.ENOSPC, "the write was cut short, as by a full disk"
            raise OSError(code, reason) from error


def _encoded(record: dict[str, Any]) -> bytes:
    return json.dumps(record, indent=1, default=str).encode() + b"\n"


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    with suppress(OSError, ValueError, RecursionError):
        record = json.loads(path.read_text(encoding="utf-8"))
        return record if isinstance(record, dict) else {}
    return {}
