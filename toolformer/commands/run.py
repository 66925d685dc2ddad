"""`toolformer run experiment=NAME`: the plan of an experiment over its stages, and what is missing of it."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from toolformer.experiments import Plan


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        "toolformer run",
        description="runs an experiment (conf/experiment/) over all its stages; what is done is not done again",
        epilog="the same command goes on where it was interrupted; hydra/launcher=joblib and others: docs/experiments.md",
    )
    parser.add_argument(
        "--plan", "--dry-run", action="store_true", help="print what is done and what is to do, no more"
    )
    parser.add_argument("--json", action="store_true", help="print the plan as JSON, no more")
    parser.add_argument(
        "overrides", nargs="*", help="experiment=NAME and keys as in a stage: seed=1, decoding.k=0,10"
    )
    options = parser.parse_intermixed_args(arguments)
    from rich.console import Console

    from toolformer.experiments import execute, plan

    made = plan(options.overrides)
    if options.json:
        print(json.dumps(_rows(made), indent=1))
        return 0
    stream = sys.stdout if options.plan else sys.stderr
    # Not on a terminal there is no width to keep to.
    Console(file=stream, width=None if stream.isatty() else 160).print(_table(made))
    if not options.plan:
        execute(made)
    return 0


def _rows(made: Plan) -> list[dict[str, str | None]]:
    return [{"stage": job.stage, "job": job.shown, "run": made.done.get(job.key)} for job in made.jobs]


def _table(made: Plan) -> Table:
    from rich.table import Table
    from rich.text import Text

    missing = sum(job.key not in made.done for job in made.jobs)
    table = Table(title=f"{made.name}: {missing} of {len(made.jobs)} to do", title_justify="left")
    for name in ("stage", "job", "state"):
        table.add_column(name, overflow="fold")
    for row in _rows(made):
        table.add_row(
            row["stage"], Text(row["job"] or ""), f"done, run {row['run'][:8]}" if row["run"] else "to do"
        )
    return table
