"""What made a run: commit, versions, device; and configuration flattened for a store, with secrets masked.

Knows no MLflow.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolformer.credentials import MASK, with_masks

PROJECT = "toolformer"
LIBRARIES = (
    "torch",
    "transformers",
    "datasets",
    "accelerate",
    "deepspeed",
    "lm-eval",
    "hydra-core",
    "mlflow",
    "numpy",
)

_VALUE_LIMIT = 500  # characters of a parameter; what the oldest servers still take
TAG_LIMIT = 5000
_NAME_LIMIT = 250  # what a server's database takes of a run's name
_SECRET_WORDS = {
    "password",
    "passwd",
    "passphrase",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "authorization",
}
_SECRET_ENDINGS = {"key", "keys", "apikey", "token", "tokens"}
# Keys that end like a secret and are none: pad_token, max_new_tokens, sort_key, ...
_HARMLESS_STEMS = {
    "pad",
    "eos",
    "bos",
    "unk",
    "sep",
    "cls",
    "mask",
    "start",
    "stop",
    "end",
    "new",
    "sort",
    "cache",
}
_SETTINGS = ("valves", "env", "headers")
"""Keys with settings of the user's own under any names, in which secrets are to be expected."""
_KEY = re.compile(r"(?<![\w$.\-/])(?=[A-Za-z_\-]*\d)(?=[\d_\-]*[A-Za-z])[A-Za-z0-9_\-]{20,}(?![\w.\-/])")
"""One long word of letters and figures."""
_OPTION = re.compile(r"""(?<![\w\-])(--?[\w\-]+)(['"]?[\s,=]+['"]?)([^\s,\]}'"]+)""")
_SECRET_VALUE = re.compile(r"\b(?:sk-|hf_|ghp_|github_pat_|xox[abp]-)[A-Za-z0-9_\-]{16,}")
_IN_BRACES = re.compile(r"([\w.\-]+)([\"']?\s*:\s*)(\"[^\"]*\"|'[^']*'|[^,}\s]+)")
_KEY_CHARACTERS = re.compile(r"[^\w.\-/ ]")


def provenance(stage: str, given: Mapping[str, object]) -> dict[str, object]:
    """Tags that say what made a run: commit, versions, device; never the host's name."""
    tags: dict[str, object] = {"git_commit": git_commit(), "version.python": platform.python_version()}
    tags["mlflow.source.git.commit"] = str(tags["git_commit"]).removesuffix("-dirty")
    for library in (PROJECT, *LIBRARIES):
        with suppress(importlib.metadata.PackageNotFoundError):
            tags[f"version.{library}"] = importlib.metadata.version(library)
    if "device" not in given:
        tags |= _device(stage)
    return tags


def _device(stage: str) -> dict[str, object]:
    # A report needs no torch; importing it takes seconds.
    if stage != "report" or "torch" in sys.modules:
        with suppress(ImportError):
            import torch

            if torch.cuda.is_available():
                count = torch.cuda.device_count()
                return {"device": "cuda", "device_name": torch.cuda.get_device_name(0), "device_count": count}
    return {"device": "cpu", "device_name": _processor(), "device_count": os.cpu_count() or 1}


@functools.cache
def _processor() -> str:
    with suppress(OSError):
        listed = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        found = re.search(r"^model name\s*:\s*(.+)$", listed, re.MULTILINE)
        if found:
            return found.group(1).strip()
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


def masked(value: Any, key: str = "") -> Any:
    """The same configuration in plain types, with what looks like a secret replaced by `***`."""
    if isinstance(value, Mapping):
        hidden = _is_secret_word(key)
        if key in _SETTINGS:
            value = {k: MASK if _looks_like_a_key(v) else v for k, v in value.items()}
        return {str(k): masked(v, key if hidden else str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [
            masked(item, _flag(before) or key) for before, item in zip([None, *value], value, strict=False)
        ]
    if value is None or isinstance(value, bool):
        return value
    if _is_secret_word(key) and value != "":
        return MASK
    if isinstance(value, int | float):
        return value
    text = str(value)
    if text and _is_secret_ending(key):
        return MASK
    override, sign, assigned = text.partition("=")
    if sign and assigned and re.fullmatch(r"[\w.+~@/\-]+", override) and is_secret(override.split(".")[-1]):
        return f"{override}={MASK}"
    if sign and set(override.split(".")) & {"tool_sources", *_SETTINGS}:
        text = _KEY.sub(MASK, _OPTION.sub(_hidden, text))
    return _SECRET_VALUE.sub(MASK, with_masks(text))


def _flag(word: Any) -> str | None:
    """The name of an option of a command line (`--api-key`) behind which its secret stands."""
    name = word.lstrip("-").replace("-", "_") if isinstance(word, str) and word.startswith("-") else ""
    return name if re.fullmatch(r"\w+", name) and is_secret(name) else None


def _hidden(option: re.Match[str]) -> str:
    return option[1] + option[2] + MASK if _flag(option[1]) else option[0]


def _looks_like_a_key(value: Any) -> bool:
    return isinstance(value, str) and bool(_KEY.fullmatch(value))


def masked_words(words: Iterable[str]) -> list[str]:
    """Overrides of a command line, with what looks like a secret replaced by `***`, within braces too."""
    return [_IN_BRACES.sub(_masked_pair, masked(word)) for word in words]


def _masked_pair(pair: re.Match[str]) -> str:
    return f"{pair[1]}{pair[2]}{MASK}" if is_secret(pair[1]) else pair[0]


def masked_text(text: str) -> str:
    """A text whose every word is masked as an override is."""
    return re.sub(r"\S+", lambda word: masked_words([word[0]])[0], text)


def run_name(name: str) -> str:
    """A name that every store takes, in one line and without secrets."""
    return _cut(masked_text(" ".join(name.split())), _NAME_LIMIT)


def is_secret(key: str) -> bool:
    """Whether a configuration key looks like one that holds a secret."""
    return _is_secret_word(key) or _is_secret_ending(key)


def _words(key: str) -> list[str]:
    return re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", key.split(".")[-1].replace("api_key", "apikey"))


def _is_secret_word(key: str) -> bool:
    return any(word.lower() in _SECRET_WORDS for word in _words(key))


def _is_secret_ending(key: str) -> bool:
    words = [word.lower() for word in _words(key)]
    return bool(words) and words[-1] in _SECRET_ENDINGS and not _HARMLESS_STEMS & set(words[:-1])


def masked_flat(config: Mapping[str, Any], limit: int = _VALUE_LIMIT) -> dict[str, str]:
    """`{"a": {"b": 1}}` as `{"a.b": "1"}`, masked; a long value is cut and ends in a hash of the whole."""
    flat: dict[str, str] = {}

    def visit(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping) and value:
            for key, item in value.items():
                visit(f"{prefix}.{key}" if prefix else str(key), item)
        elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
            for number, item in enumerate(value):
                visit(f"{prefix}.{number}", item)
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            flat[clean_key(prefix)] = _cut(text or "''", limit)  # some servers refuse an empty value

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
    key = re.sub(r"\.{2,}", ".", _KEY_CHARACTERS.sub("_", key)).strip("/. ") or "_"
    return re.sub(r"/{2,}", "/", key)[:250]
