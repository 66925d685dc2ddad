"""Progress of long work: a bar on a terminal, elsewhere a log line a minute. Knows no stage."""

from __future__ import annotations

import io
import logging
import sys
import time
from typing import Any

from tqdm import tqdm

log = logging.getLogger(__name__)

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
