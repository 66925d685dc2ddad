"""Record of a run: commit, versions, device, its configuration with secrets masked, its name and description."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer import __version__
from toolformer.credentials import masked

if TYPE_CHECKING:
    from toolformer.results.run import Run

PROJECT = "toolformer"
LIBRARIES = (
    *("torch", "transformers", "datasets", "accelerate", "deepspeed"),
    *("lm-eval", "hydra-core", "mlflow", "numpy"),
)
TAG_LIMIT = 5000
_VALUE_LIMIT = 500  # characters of a parameter; what the oldest servers still take
_NAME_LIMIT = 250  # what a server's database takes of a run's name
_NO_MARKUP = str.maketrans("`[]<>", "'()\u2039\u203a")


def provenance() -> dict[str, object]:
    """Tags that say what made a run: commit, versions, device; never the host's name."""
    import torch

    commit = git_commit()
    tags: dict[str, object] = {
        "git_commit": commit,
        "mlflow.source.git.commit": commit.removesuffix("-dirty"),
        "version.python": platform.python_version(),
        f"version.{PROJECT}": __version__,
    }
    for library in LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            tags[f"version.{library}"] = importlib.metadata.version(library)
    if torch.cuda.is_available():
        device = ("cuda", torch.cuda.get_device_name(0), torch.cuda.device_count())
    else:
        device = ("cpu", _processor(), os.cpu_count() or 1)
    return tags | dict(zip(("device", "device_name", "device_count"), device, strict=True))


@functools.cache
def _processor() -> str:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if match := re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE):
            return match.group(1).strip()
    return platform.processor() or platform.machine()


@functools.cache
def git_commit() -> str:
    """The commit of this code, with `-dirty` if tracked files differ; `unknown` outside a repository."""

    def git(*arguments: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(
            ["git", *arguments], cwd=here, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        # Not the commit of a repository that merely holds our install.
        git("ls-files", "--error-unmatch", Path(__file__).name)
        commit = git("rev-parse", "HEAD")
        return f"{commit}-dirty" if git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def masked_flat(config: Mapping[str, Any], limit: int = _VALUE_LIMIT) -> dict[str, str]:
    """`{"a": {"b": 1}}` as `{"a.b": "1"}`, masked; a long value is cut and ends in a hash of the whole."""
    flat: dict[str, str] = {}

    def visit(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping) and value:
            for key, item in value.items():
                visit(f"{prefix}.{key}" if prefix else str(key), item)
        elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
            for index, item in enumerate(value):
                visit(f"{prefix}.{index}", item)
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            flat[clean_key(prefix)] = _cut(text or "''", limit)  # some servers refuse an empty value

    if config:
        visit("", masked(config))
    return flat


def _cut(text: str, limit: int) -> str:
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")
    if len(text) <= limit:
        return text
    ending = f"… (sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]})"
    return text[: limit - len(ending)] + ending


def clean_key(key: str) -> str:
    """A key that MLflow takes: it refuses some characters, and names that read as a path upwards."""
    key = re.sub(r"\.{2,}", ".", re.sub(r"[^\w.\-/ ]", "_", key)).strip("/. ") or "_"
    return re.sub(r"/{2,}", "/", key)[:250]


def run_name(name: str) -> str:
    """A name that every store takes: one line, no credentials."""
    return _cut(str(masked(" ".join(name.split()))), _NAME_LIMIT)


def model_name(model: str) -> str:
    """A model's name in titles: of a folder its last part, anything else as it is."""
    is_path = model.startswith(("/", "~", ".")) or Path(model).expanduser().is_dir()
    return Path(model).name if is_path else model


def describe(command: str, details: Mapping[str, object], made_from: Sequence[Run | None] = ()) -> str:
    """A run's description in Markdown: facts (`{"model": "gpt2"}`), the runs it was made from, the command."""
    lines = [
        f"- {key}: `{plain(masked(value))}`" for key, value in details.items() if value not in (None, "")
    ]
    lines += [f"- made from {plain(run.name)} (run {run.id})" for run in made_from if run]
    if command:
        # The fence is longer than any in the command, so that nothing in it is markup.
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", command)), default=0))
        lines += ["", fence, " ".join(command.splitlines()), fence]
    return "\n".join(lines)


def plain(value: object) -> str:
    """One line without markup."""
    return " ".join(str(value).split()).translate(_NO_MARKUP)
