"""What works on this machine: versions, device, Java, the hub, assets, disk, the tracking store.

Nothing is downloaded or changed but a folder for runs that is not there yet; a model or a database is never loaded.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sqlite3
from collections.abc import Container, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import requests

from toolformer import __version__, assets
from toolformer.config import Config
from toolformer.credentials import without_credentials
from toolformer.errors import UserError
from toolformer.provenance import LIBRARIES, PROJECT
from toolformer.tools.retrieval import java

SECONDS = 3.0
"""How long a server may take to answer."""
GIB = 2**30
NEEDED_GIB = 5
"""What assets and a small run take."""
HUB = "https://huggingface.co"
EXTRAS = {
    "ray": ("ray", "generation on several machines (engine=ray)"),
    "peft": ("lora", "LoRA adapters (trainer.lora_rank)"),
    "hydra_plugins.hydra_joblib_launcher": ("launchers", "sweeps side by side (hydra/launcher=joblib)"),
    "hydra_plugins.hydra_submitit_launcher": ("launchers", "sweeps on Slurm (hydra/launcher=slurm)"),
    "hydra_plugins.hydra_ray_launcher": ("ray", "sweeps on Ray (hydra/launcher=ray)"),
    "ctranslate2": ("ctranslate2", "translation by NLLB on CTranslate2"),
    "pyserini": ("lucene", "search with Lucene"),
}
"""Modules of optional parts, each with its extra and what it is for."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: Literal["works", "absent", "fault"]
    """absent: nothing needs it until you ask for it."""
    found: str
    mend: str = ""


def examine(config: Config) -> list[Finding]:
    """Everything that was looked at, in the order in which it is needed."""
    return [
        *_versions(),
        *_device(),
        _java(),
        *_extras(),
        *_assets(config),
        _folder("runs", Path(config.paths.root), "paths.root"),
        _store(config),
        _hub(),
    ]


def _versions() -> Iterator[Finding]:
    yield Finding("python", "works", platform.python_version())
    from packaging.requirements import Requirement

    wrong = []
    for line in importlib.metadata.requires(PROJECT) or () if _installed(PROJECT) else ():
        wanted = Requirement(line)
        version = _installed(wanted.name)
        if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
            continue
        if version is None or not wanted.specifier.contains(version, prereleases=True):
            wrong.append(f"{wanted.name} {version or 'missing'} (needs {wanted.specifier or 'any'})")
    if wrong:
        yield Finding("libraries", "fault", ", ".join(wrong), "install them as locked: make setup")
    else:
        shown = [f"{name} {_installed(name) or 'missing'}" for name in LIBRARIES]
        yield Finding("libraries", "works", ", ".join([f"{PROJECT} {__version__}", *shown]))


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device() -> Iterator[Finding]:
    try:
        import torch

        from toolformer.loading import native_bfloat16
    except ImportError as error:
        yield Finding("torch", "fault", str(error), "install it as locked: make setup")
        return
    if torch.cuda.is_available():
        names = {torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())}
        yield Finding("device", "works", f"{torch.cuda.device_count()} x {', '.join(sorted(names))}")
    else:
        yield Finding(
            "device", "works", f"CPU, {os.cpu_count()} cores, {torch.get_num_threads()} threads; no GPU"
        )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if native_bfloat16(device):
        yield Finding("bfloat16", "works", "native: lm.dtype=auto is bfloat16")
    else:
        yield Finding("bfloat16", "absent", "not native on this processor: lm.dtype=auto is float32")


def _java() -> Finding:
    mend = "search with Lucene needs Java 21: pip install 'toolformer[lucene]' brings it (Python 3.11)"
    try:
        found = java.find()
    except UserError as error:
        reason = str(error).partition("or newer, ")[2].partition(";")[0]
        return Finding("java", "absent", reason, mend)
    return Finding("java", "works", f"Java {found.version}, {found.home}")


def _extras() -> Iterator[Finding]:
    for module, (extra, purpose) in EXTRAS.items():
        name = module.rpartition(".")[2].removeprefix("hydra_").replace("_", " ")
        if _is_there(module):
            yield Finding(name, "works", purpose)
        else:
            more = " and pip install --no-deps hydra-ray-launcher" if name == "ray launcher" else ""
            yield Finding(name, "absent", purpose, f"pip install 'toolformer[{extra}]'{more}")


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package above it
        return False


def _assets(config: Config) -> Iterator[Finding]:
    if config.paths.cache:
        assets.set_cache_dir(Path(config.paths.cache).expanduser())
    yield _folder("assets", assets.cache_dir(), "paths.cache")
    missing = [name for name in assets.ASSETS if assets.find(name) is None]
    if missing:
        names = ", ".join(missing)
        yield Finding(
            "embedded models", "absent", f"not fetched yet: {names}", "toolformer assets fetches them"
        )
    else:
        yield Finding("embedded models", "works", "all fetched")


def _folder(what: str, folder: Path, key: str) -> Finding:
    folder = folder.expanduser().absolute()
    above = next(path for path in (folder, *folder.parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        return Finding(what, "fault", f"{folder} cannot be written", f"name another folder: {key}")
    free = shutil.disk_usage(above).free / GIB
    found = f"{folder}, {free:.0f} GiB free"
    if free < NEEDED_GIB:
        return Finding(what, "fault", found, f"make room ({NEEDED_GIB} GiB) or name another folder: {key}")
    return Finding(what, "works", found)


def _store(config: Config) -> Finding:
    from toolformer import build

    tracker = build.tracker(config.paths.root, config.tracking)
    waiting = len(tracker.unsent())
    unsent = f"; {waiting} runs wait for toolformer runs resend" if waiting else ""
    state: Literal["works", "fault"] = "works"
    shown, mend = tracker.shown_uri, ""
    scheme = tracker.uri.partition(":")[0]
    if scheme == "sqlite":
        fault = _database_fault(Path(tracker.uri.removeprefix("sqlite:///")))
        if fault:
            state, shown = "fault", f"{shown} is no tracking store ({fault})"
            mend = "move the file away or name another: paths.root, tracking.uri"
    elif scheme in ("http", "https"):
        fault = _fault(tracker.uri.rstrip("/") + "/health", (200,))
        state, shown = ("fault", f"{shown} {fault}") if fault else ("works", f"{shown} answers")
        if fault:
            mend = "start it or change tracking.uri; runs are kept in journals until toolformer runs resend"
    return Finding("tracking", state, shown + unsent, mend)


def _database_fault(path: Path) -> str:
    """What is wrong with MLflow's SQLite file, read without a change; nothing if it is not there yet."""
    if not path.exists():
        return ""
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=SECONDS)
        ) as open_:
            open_.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return ""


def _hub() -> Finding:
    address = os.environ.get("HF_ENDPOINT", HUB)
    shown = without_credentials(address)
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE"):
        return Finding("model hub", "absent", "switched off by HF_HUB_OFFLINE")
    fault = _fault(address, range(200, 400))
    if not fault:
        return Finding("model hub", "works", f"{shown} answers")
    mend = "models and data from folders work: model=FOLDER corpus.path=DIR paths.data_dir=DIR"
    return Finding("model hub", "absent", f"{shown} {fault}", mend)


def _fault(address: str, wanted: Container[int]) -> str:
    """Why an address does not answer as wanted (through the proxy, where one is set for it); nothing if it does."""
    try:
        with requests.get(address, timeout=SECONDS, stream=True) as answer:
            return "" if answer.status_code in wanted else f"answers with status {answer.status_code}"
    except requests.exceptions.ProxyError:
        return "cannot be reached through the proxy"
    except (requests.RequestException, OSError, ValueError):  # an address that is none is a ValueError
        return "does not answer"
