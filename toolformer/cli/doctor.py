"""`toolformer doctor`: what works on this machine, and what to install for the rest.

Downloads, creates and loads nothing. The exit code is 1 if a required part does not work.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from toolformer.cli.parser import Parser, configured
from toolformer.credentials import printable
from toolformer.errors import UserError

if TYPE_CHECKING:
    from toolformer.jobs.config import Config

NEEDED_GIB = 5
"""For assets and a small run."""
EXTRAS = {
    "ray": ("ray", "workers on a cluster (engine.address)"),
    "peft": ("lora", "LoRA adapters (trainer.lora_rank)"),
    "hydra_plugins.hydra_joblib_launcher": ("launchers", "sweeps side by side (hydra/launcher=joblib)"),
    "hydra_plugins.hydra_submitit_launcher": ("launchers", "sweeps on Slurm (hydra/launcher=slurm)"),
    "hydra_plugins.hydra_ray_launcher": ("ray", "sweeps on Ray (hydra/launcher=ray)"),
    "deepspeed": ("deepspeed", "training on several GPUs (trainer.deepspeed)"),
    "mcp": ("mcp", "tools of MCP servers"),
    "pyserini": ("lucene", "search with Lucene; brings its Java (Python 3.11)"),
}
"""Modules of optional parts, each with its extra and what it is for."""


_OK, _ABSENT, _FAULT = "ok", "--", "no"
"""The state of a part; an absent one is optional."""
Finding = tuple[str, str, str]
"""State, part, and what was found or what to do."""


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = Parser("doctor", "what works here, and what to install for the rest")
    options = parser.parsed(arguments, "paths.root=DIR tracking.uri=URI")
    findings = list(examine(configured("report", options.overrides, "report")))
    for state, part, text in findings:
        print(f"{state}  {part:<18}  {printable(text)}")
    return int(any(state == _FAULT for state, *_ in findings))


def examine(config: Config) -> Iterator[Finding]:
    """Checks everything, in the order in which it is needed."""
    from toolformer.lm.devices import native_bfloat16
    from toolformer.results.provenance import provenance

    made_by = provenance()
    versions = {key.removeprefix("version."): made_by[key] for key in made_by if key.startswith("version.")}
    yield _OK, "libraries", ", ".join(f"{name} {version}" for name, version in versions.items())
    device, name, count = (made_by[key] for key in ("device", "device_name", "device_count"))
    dtype = "bfloat16" if native_bfloat16(str(device)) else "float32"
    yield _OK, "device", f"{device}, {count} x {name}; lm.dtype=auto is {dtype}"
    for module, (extra, purpose) in EXTRAS.items():
        part = module.rpartition(".")[2].removeprefix("hydra_").replace("_", " ")
        more = " and pip install --no-deps hydra-ray-launcher==1.2.2" if part == "ray launcher" else ""
        fix = f"; make setup EXTRA={extra}{more}"
        yield (_OK, part, purpose) if is_there(module) else (_ABSENT, part, purpose + fix)
    yield _assets(config)
    yield from tools(config)
    yield _folder(Path(config.paths.root).expanduser().absolute())
    if config.tracking.uri:
        yield _server(config)


def is_there(module: str) -> bool:
    """Whether a module can be imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package above it
        return False


def _assets(config: Config) -> Finding:
    from toolformer.data import assets

    if config.paths.cache:
        assets.set_cache_dir(Path(config.paths.cache).expanduser())
    if missing := [name for name in assets.ASSETS if assets.find_asset(name) is None]:
        return _ABSENT, "assets", f"not fetched yet: {', '.join(missing)}; toolformer assets fetches them"
    return _OK, "assets", "all fetched"


def tools(config: Config) -> Iterator[Finding]:
    """Needs of the configured tools, while annotating and at inference."""
    from toolformer.tools.needs import needs

    for key in config.tools:
        tool = config.tool[key]
        both = (tool.implementation, {**tool.implementation, **tool.inference})
        for need in dict.fromkeys(need for settings in both for _, need in needs(settings, key)):
            size = f" ({need.size})" if need.size else ""
            if not need.missing:
                yield _OK, f"tool {key}", need.name
            elif need.is_fetched:
                yield _ABSENT, f"tool {key}", f"{need.name}: {need.missing}; the first run fetches it{size}"
            else:
                yield _FAULT, f"tool {key}", f"{need.name}: {need.missing}{size}"


def _folder(root: Path) -> Finding:
    above = next(path for path in (root, *root.parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        return _FAULT, "runs", f"{root} cannot be written; name another folder: paths.root"
    free = shutil.disk_usage(above).free / 2**30
    if free < NEEDED_GIB:
        return _FAULT, "runs", f"{root}, {free:.0f} GiB free; make room ({NEEDED_GIB} GiB) or set paths.root"
    return _OK, "runs", f"{root}, {free:.0f} GiB free"


def _server(config: Config) -> Finding:
    from toolformer.tracking import Store

    store = Store(Path(config.paths.root), config.tracking.uri)
    try:
        with store.errors():
            return _OK, "tracking", f"{store.label} answers, experiment {store.experiment}"
    except UserError as fault:
        return _FAULT, "tracking", f"{fault}; runs are in paths.root, toolformer runs log logs them later"
