"""Log lines on standard error, and progress bars: on a terminal by rich and tqdm, elsewhere plain lines, one per minute."""

import io
import logging
import math
import sys
import time
from typing import Any

from tqdm import tqdm

from toolformer.credentials import printable, without_credentials

log = logging.getLogger(__name__)

PACKAGES = ("toolformer",)
"""Packages whose messages below warnings are shown."""


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
    # We log an unreachable server once; silence urllib3.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    # It logs each try twice; the caller reports the final failure.
    logging.getLogger("huggingface_hub.utils._http").setLevel(logging.ERROR)
    for name in PACKAGES:
        logging.getLogger(name).setLevel(logging.WARNING if quiet else logging.INFO)


class _Printable(logging.Formatter):
    """Removes escape sequences and secrets, which a tool's output, a path or an error may contain."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(without_credentials(super().format(record)))


EVERY = 60.0
"""Seconds between two lines."""
MEASURED = 20.0
"""Seconds of work after which a rate is good for an estimate."""
LONG = 120.0
"""Seconds from which on work is long enough for an estimate."""
LINE = "{desc}: {n_fmt} of {total_fmt} {unit}, {speed}, {elapsed} gone, {remaining} left{postfix}"
BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {speed}{postfix}]"


class Bar(tqdm):  # type: ignore[type-arg]
    """tqdm's bar with its arguments; without a terminal, the same figures as a log line at most once a minute, and once as soon
    as the rate of long work is known. `unit` is a plural.

    Args:
        together: items that are worked on at the same time. No rate is known before so many are done: the first of them to
            finish took the time of all.
    """

    def __init__(self, *arguments: Any, together: int = 1, **options: Any) -> None:
        self._together = together
        self._on_terminal = sys.stderr.isatty()
        self._logged = time.monotonic()
        self._is_measured = False
        options["bar_format"] = BAR
        if not self._on_terminal:
            # Discard tqdm's own line endings and carriage returns.
            options |= {"file": io.StringIO(), "bar_format": LINE, "mininterval": EVERY, "miniters": 1}
            # An average over all the time: what is left keeps moving where an item takes longer than a line's interval.
            options["smoothing"] = 0
        super().__init__(*arguments, **options)

    @property
    def format_dict(self) -> Any:
        """tqdm's figures, and the `speed`."""
        state = super().format_dict
        counted, elapsed, unit = self.n - self.initial, state["elapsed"], self.unit
        rate = state["rate"] or (counted / elapsed if elapsed else 0)
        if counted < self._together:
            rate = 0
        if not rate:
            speed = f"? {unit}/s"
        elif rate < 1 and not self.unit_scale:  # what is counted in thousands has no duration for each
            speed = f"{1 / rate:.1f} s per {unit.removesuffix('s')}"
        else:
            speed = f"{self.format_sizeof(rate) if self.unit_scale else f'{rate:.2f}'} {unit}/s"
        return {**state, "rate": rate, "speed": speed}

    def restart(self, ago: float = 0.0) -> None:
        """Measures the rate from now on, or from so many seconds ago: loading a model counts for no rate."""
        if not self.disable:
            self.initial = self.n
            elapsed = float(self.format_dict["elapsed"])
            self.start_t = self.last_print_t = self._time() - min(ago, elapsed)

    def update(self, n: float | None = 1) -> bool | None:
        """Counts items that were done."""
        displayed = super().update(n)
        if self.disable:  # it has counted nothing
            return displayed
        counted = self.n - self.initial
        if not (self._is_measured or self._on_terminal) and self.total and counted >= self._together:
            elapsed = self.format_dict["elapsed"]
            self._is_measured = elapsed >= MEASURED
            if self._is_measured and elapsed * (self.total - self.initial) / counted >= LONG:
                self._log(str(self))
        return displayed

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        """Names the step that begins; a line that is due names the one before, which took the time."""
        if not self._on_terminal and not self.disable:
            self.display()
        super().set_postfix_str(s, refresh and self._on_terminal)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draws the bar, or logs a line at most once a minute."""
        if self._on_terminal:
            super().display(msg, pos)
        elif time.monotonic() - self._logged >= EVERY:
            self._log(msg or str(self))

    def _log(self, line: str) -> None:
        self._logged = time.monotonic()
        log.info("%s", line)


def size(count: float) -> str:
    """A number of bytes in words: `12 kB`, `3.4 MB`, `120 GB`."""
    if count < 1e6:
        return f"{math.ceil(count / 1e3)} kB"
    value, unit = (count / 1e6, "MB") if count < 1e9 else (count / 1e9, "GB")
    return f"{value:.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"
