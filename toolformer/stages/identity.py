"""What tells one model or tool from another: their configuration, and the files that it names."""

import hashlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolformer.stages.config import ToolConfig
from toolformer.stages.stored_policy import STORED
from toolformer.storage import sha256
from toolformer.tools.base import Tool

HANDLING = ("cache", "workers", "batch_size")
"""Keys of a tool that say how calls are handed to it, which decides no answer of a tool that keeps its promise."""
PATIENCE = ("timeout", "tries")
"""What only decides whether a call meets a fault."""
ANNOTATING = (
    *("prompt", "instruction", "demonstrations", "example", "selector", "start_threshold", "max_positions"),
    *("samples", "filter_threshold", "max_call_tokens"),
)
"""How its calls are annotated: nothing at inference reads them."""
LIBRARIES = ("torch", "transformers", "tokenizers", "bm25s", "PyStemmer", "fasttext-predict", "pyserini")
"""Libraries that tools answer with."""
MODEL_FILES = (".safetensors", ".bin", ".json", ".model", ".txt", ".jinja")
"""Weights, configurations, tokenizers, chat templates: what decides a model folder's answers."""
UNDECIDING = ("concurrency", "timeout", "tries", "key_variable")
"""Arguments of implementations that change no answer."""
LARGEST_HASHED = 16 * 2**20
"""Bytes of a file that `file_state` hashes; of larger ones (weights, indexes) the time of the last change counts."""


def model_identity(name: str) -> dict[str, Any]:
    """A folder's files by size and time of change (hashing gigabytes at each start takes too long), or a model's name."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return {"model": name}
    files = sorted(file for file in folder.iterdir() if _decides(file))
    seen = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return {"model": str(folder.resolve()), "files": seen}


def weights(model: Path) -> dict[str, Any]:
    """What tells a trained model from another one at the same place: its files with size and SHA-256.

    For large files stands the training's record, which holds how long it took to the microsecond; without one, the time of
    change counts.
    """
    from toolformer.training.checkpoints import RECORD

    state: dict[str, Any] = {}
    for file in sorted(model.iterdir()):
        if _decides(file):
            _, size, digest = file_state(file)
            is_recorded = size > LARGEST_HASHED and (model / RECORD).is_file()
            state[file.name] = [size, "" if is_recorded else digest]
    return state


def _decides(file: Path) -> bool:
    # A policy of calling is a setting of decoding, which answers are known by anyway.
    return file.suffix in MODEL_FILES and file.name != STORED


def tool_identity(tool: ToolConfig) -> dict[str, Any]:
    """A tool's configuration and the files that it names: of a Python function its own file, not what that imports."""
    configured = {key: value for key, value in asdict(tool).items() if key not in HANDLING}
    return {**configured, "files": _files(configured)}


def file_state(file: Path) -> tuple[str, int, str]:
    """A file's name, its size, and a hash of its content or, of a large one, the time of its last change."""
    stat = file.stat()
    return file.name, stat.st_size, sha256(file) if stat.st_size <= LARGEST_HASHED else str(stat.st_mtime_ns)


def cache_identity(arguments: Mapping[str, Any], tool: Tool) -> dict[str, Any] | None:
    """Everything that a tool's cached results depend on; None for a user's tool without a `version`: its code is not known."""
    version = str(getattr(tool, "version", ""))
    targets = [type(tool).__module__, *(text for key, text in _leaves(arguments) if key == "_target_")]
    package = Path(__file__).parents[1]
    is_ours = all(target.startswith(f"{package.name}.") for target in targets)
    if not version and (not is_ours or type(tool).__module__.startswith(f"{package.name}.tools.user.")):
        return None
    source = hashlib.sha256()
    for file in sorted([*package.glob("tools/**/*.py"), *package.glob("lm/*.py"), package / "calls.py"]):
        source.update(file.read_bytes())
    versions: dict[str, str] = {}
    for library in LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[library] = importlib.metadata.version(library)
    decided = {"arguments": _deciding(arguments), "files": _files(arguments)}
    return {**decided, "source": source.hexdigest(), "libraries": versions, "version": version}


def _deciding(value: Any) -> Any:
    """A configuration without the keys that decide whether and how fast there is an answer, but not which."""
    if isinstance(value, list):
        return [_deciding(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    # Of `valves` a user's own tool makes what it likes.
    kept = {key: part for key, part in value.items() if key not in UNDECIDING}
    return {key: part if key == "valves" else _deciding(part) for key, part in kept.items()}


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a configuration, with the key that it or its list stands under."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(part, str(name))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part, key)


def _files(configured: Mapping[str, Any]) -> list[Any]:
    """The files and model folders that a configuration names, as they are now."""
    files: list[Any] = []
    for key, text in _leaves(configured):
        # By the name of the key: other files, a log for example, do not decide an answer.
        if key in ("model", "tokenizer"):
            if Path(text).expanduser().is_dir():
                files.append(model_identity(text))
        elif key == "function":
            files += map(file_state, _function_file(text))
        elif key in ("args", "command"):  # --config=FILE too
            files += map(file_state, {*_files_at(text), *_files_at(text.rpartition("=")[2])})
        elif key == "path" or key.endswith("_path"):
            files += map(file_state, _files_at(text, inside=key != "path"))
    return files


def _function_file(function: str) -> list[Path]:
    from toolformer.tools.user.functions import load_module, split

    file = getattr(load_module(split(function)[0]), "__file__", None)
    return [Path(file)] if file else []


def _files_at(text: str, inside: bool = False) -> list[Path]:
    """The file that a text names or, with `inside`, those right in the folder (a search index) that it names."""
    try:
        path = Path(text).expanduser()
        files = sorted(path.iterdir()) if inside and path.is_dir() else [path]
        return [file for file in files if file.is_file()]
    except (OSError, ValueError, RuntimeError):  # no name of a file, or of nobody's home
        return []
