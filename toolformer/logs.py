"""Log lines on standard error: by rich on a terminal, plain and one to a line elsewhere. Knows no stage."""

from __future__ import annotations

import logging
import sys

PACKAGES = ("toolformer", "benchmarks")
"""What is heard beyond warnings."""


def configure(quiet: bool = False) -> None:
    """Sets up logging for a process; `quiet` leaves warnings only."""
    handler: logging.Handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.logging import RichHandler

        handler = RichHandler(
            console=Console(stderr=True), show_path=False, show_level=False, log_time_format="[%X]"
        )
        handler.setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # A server that does not answer is told of once, by us.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    # Each of its tries, twice; the last is told by who asked.
    logging.getLogger("huggingface_hub.utils._http").setLevel(logging.ERROR)
    # What a server prints beside its messages; that it does not answer is told by who asked.
    logging.getLogger("mcp.client.stdio").setLevel(logging.CRITICAL)
    for name in PACKAGES:
        logging.getLogger(name).setLevel(logging.WARNING if quiet else logging.INFO)
