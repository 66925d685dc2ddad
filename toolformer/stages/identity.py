"""What identifies a model or a tool: its configuration, and the files that this names."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolformer.results.provenance import masked
from toolformer.stages.config import Config
from toolformer.step import settings_of
from toolformer.tools.identity import LARGEST_HASHED, MODEL_FILES, file_state, files, model_state, versions


def model_identity(name: str) -> dict[str, Any]:
    """A folder's files by size and time of change, or a model's name."""
    return model_state(name)


def weights(model: Path) -> dict[str, Any]:
    """What distinguishes a trained model from another one in the same folder: its files with size and SHA-256.

    Large files are represented by the training's record, which says how long it took to the microsecond; without one, by
    their time of change.
    """
    from toolformer.training.checkpoints import RECORD

    state: dict[str, Any] = {}
    for file in sorted(model.iterdir()):
        if file.suffix in MODEL_FILES:
            _, size, digest = file_state(file)
            is_recorded = size > LARGEST_HASHED and (model / RECORD).is_file()
            state[file.name] = [size, "" if is_recorded else digest]
    return state


def deciding(config: Config, step: str) -> dict[str, Any]:
    """The settings that decide a step's result, of the tools in use; the model is an input (`model_identity`).

    What may be a secret is represented by its hash: arguments of a tool decide its results too.
    """
    settings: dict[str, Any] = masked(settings_of(config, step), digest=True)
    settings.pop("model", None)
    # Left out where it is off, so that results from before it was there are still found.
    if not settings.get("trainer", {}).get("plain_share", True):
        del settings["trainer"]["plain_share"]
    if "tool" in settings:
        settings["tool"] = {key: settings["tool"].get(key, {}) for key in config.tools}
    return settings


def tool_files(config: Config, tools: Iterable[str]) -> dict[str, Any]:
    """The versions of tools' code, and the files that their settings name (of a function: its own file)."""
    settings = {key: asdict(config.tool[key]) for key in tools}
    return {key: [versions(each), files(each)] for key, each in settings.items()}
