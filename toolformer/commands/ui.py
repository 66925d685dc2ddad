"""`toolformer ui`: MLflow's pages on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser("toolformer ui", description="open the MLflow UI on this machine")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000)
    parser.add_argument("overrides", nargs="*", help="configuration, for example paths.root=DIR")
    options = parser.parse_intermixed_args(arguments)
    from toolformer.config import compose, validate
    from toolformer.ui import serve

    config = validate(compose("report", options.overrides))
    serve(Path(config.paths.root), config.tracking.uri, host=options.host, port=options.port)
    return 0
