"""`toolformer assets`: the embedded models and data, fetched."""

from __future__ import annotations

import argparse
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser("toolformer assets", description="fetch the embedded models and data")
    parser.add_argument("names", nargs="*", help="smollm2, wikipedia, lid, gemma3; all if none is named")
    parser.add_argument("--cache", help="folder for the assets")
    options = parser.parse_args(arguments)
    from toolformer import assets

    if options.cache:
        assets.set_cache_dir(Path(options.cache).expanduser())
    for name, path in assets.ensure_all(options.names or None).items():
        print(f"{name}: {path}")
    return 0
