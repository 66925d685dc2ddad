"""`toolformer doctor`: what works on this machine, and what to install for the rest; exit code 1 if a part that is needed
does not."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from toolformer.doctor import Finding


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        "toolformer doctor", description="what works here, and what to install for the rest"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("overrides", nargs="*", help="configuration: paths.root=DIR, tracking.uri=URI")
    options = parser.parse_intermixed_args(arguments)
    from toolformer.config import compose, validate
    from toolformer.doctor import examine

    findings = examine(validate(compose("report", options.overrides)))
    if options.json:
        import json
        from dataclasses import asdict

        print(json.dumps([asdict(one) for one in findings], indent=1))
    else:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for one in findings:
            # As text: what stands in brackets is no markup.
            told = Text(one.found + (f"; {one.mend}" if one.mend else ""))
            table.add_row(_mark(one), Text(one.what), told)
        Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 1 if any(one.state == "fault" for one in findings) else 0


def _mark(finding: Finding) -> Text:
    from rich.text import Text

    words = {"works": ("ok", "green"), "absent": ("--", "yellow"), "fault": ("no", "bold red")}
    return Text(*words[finding.state])
