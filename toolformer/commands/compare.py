"""`toolformer compare RUN RUN`: two evaluations sample by sample."""

from __future__ import annotations

import argparse
import sys

from toolformer.errors import UserError


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser("toolformer compare", description="two evaluations sample by sample")
    name = "a run's id or its first characters, latest, or latest:SYSTEM"
    parser.add_argument("first", help=name)
    parser.add_argument("second", nargs="?", help=f"{name}; differences are the second minus the first")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--resamples", type=int, default=2000, help="resamples behind an interval")
    parser.add_argument(
        "overrides", nargs="*", help="configuration: seed=1, paths.root=DIR, tracking.uri=URI"
    )
    options = parser.parse_intermixed_args(arguments)
    if not options.second:
        raise UserError(f"compare: name a second run beside {options.first}: {name}")
    if options.resamples < 1:
        raise UserError(f"compare: --resamples is {options.resamples}; it must be at least 1")
    from rich.console import Console

    from toolformer import build
    from toolformer import compare as comparing
    from toolformer.config import compose, validate

    # Finished runs are read, as by a report: no data folder, corpus or model of an evaluation has to be there.
    config = validate(compose("evaluate", options.overrides), "report")
    tracker = build.tracker(config.paths.root, config.tracking)
    found = comparing.compare(tracker, options.first, options.second, config.seed, options.resamples)
    if options.json:
        print(comparing.as_json(found))
        return 0
    # Not on a terminal there is no width to keep to.
    console = Console(width=None if sys.stdout.isatty() else 160)
    for table in comparing.tables(found):
        console.print(table)
    for line in comparing.remarks(found):
        print(line)
    return 0
