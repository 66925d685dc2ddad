"""Log lines on standard error, and progress bars: on a terminal by rich and tqdm, plain and a line a minute elsewhere."""

import io
import logging
import sys
import time
from typing import Any

from tqdm import tqdm

from toolformer.credentials import printable

log = logging.getLogger(__name__)

PACKAGES = ("toolformer",)
"""What is heard beyond warnings."""


def configure(quiet: bool = False) -> None:
    """Sets up logging for a process; `quiet` leaves warnings only."""
    handler: logging.Handler = logging.StreamHandler()
    handler.setFormatter(_Printable("%(asctime)s %(message)s", "%H:%M:%S"))
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.logging import RichHandler

        handler = RichHandler(
            console=Console(stderr=True), show_path=False, show_level=False, log_time_format="[%X]"
        )
        handler.setFormatter(_Printable("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # A server that does not answer is told of once, by us.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    # Each of its tries, twice; the last is told by who asked.
    logging.getLogger("huggingface_hub.utils._http").setLevel(logging.ERROR)
    for name in PACKAGES:
        logging.getLogger(name).setLevel(logging.WARNING if quiet else logging.INFO)


class _Printable(logging.Formatter):
    """Lines without escape sequences, whatever a tool or a run's name holds."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


EVERY = 60.0
"""Seconds between two lines."""
LINE = "{desc}: {n_fmt} of {total_fmt} {unit}, {rate_fmt}, {elapsed} gone, {remaining} left{postfix}"


class Bar(tqdm):  # type: ignore[type-arg]
    """tqdm's bar with its arguments; without a terminal, what it would show as a line now and then."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._told = time.monotonic()
        if not self._on_terminal:
            # What tqdm writes beside the bar itself (ends of lines, returns) is for nobody.
            options |= {"file": io.StringIO(), "bar_format": LINE, "mininterval": EVERY, "miniters": 1}
            # The time left from all that is gone: it goes on where an item takes longer than a line's interval.
            options |= {"smoothing": 0, "unit": str(options.get("unit", "it")).strip()}
        super().__init__(*arguments, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Shows the bar, or tells of it if the last line is long enough ago."""
        if self._on_terminal:
            super().display(msg, pos)
        elif time.monotonic() - self._told >= EVERY:
            self._told = time.monotonic()
            log.info("%s", msg or str(self))
