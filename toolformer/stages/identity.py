"""What tells one model or tool from another: their configuration, and the files that it names."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolformer.decoding.settings import STORED
from toolformer.stages.config import ToolConfig
from toolformer.tools.identity import LARGEST_HASHED, MODEL_FILES, file_state, files, model_state, versions

HANDLING = ("cache", "workers", "batch_size")
"""Keys of a tool that say how calls are handed to it, which decides no answer of a tool that keeps its promise."""
PATIENCE = ("timeout", "tries")
"""What only decides whether a call meets a fault."""
ANNOTATING = (
    *("prompt", "instruction", "demonstrations", "example", "selector", "start_threshold", "max_positions"),
    *("samples", "filter_threshold", "max_call_tokens"),
)
"""How its calls are annotated: nothing at inference reads them."""


def model_identity(name: str) -> dict[str, Any]:
    """A folder's files by size and time of change, or a model's name."""
    # A policy of calling is a setting of decoding, which answers are known by anyway.
    return model_state(name, ignored=STORED)


def weights(model: Path) -> dict[str, Any]:
    """What tells a trained model from another one at the same place: its files with size and SHA-256.

    For large files stands the training's record, which holds how long it took to the microsecond; without one, the time of
    change counts.
    """
    from toolformer.training.checkpoints import RECORD

    state: dict[str, Any] = {}
    for file in sorted(model.iterdir()):
        if file.suffix in MODEL_FILES and file.name != STORED:
            _, size, digest = file_state(file)
            is_recorded = size > LARGEST_HASHED and (model / RECORD).is_file()
            state[file.name] = [size, "" if is_recorded else digest]
    return state


def tool_identity(tool: ToolConfig) -> dict[str, Any]:
    """A tool's configuration, the versions of its classes, and the files that it names (of a function: its own file)."""
    configured = {key: value for key, value in asdict(tool).items() if key not in HANDLING}
    return {**configured, "versions": versions(configured), "files": files(configured)}
