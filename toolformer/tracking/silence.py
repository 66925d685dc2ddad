"""Servers that did not answer: each is left in peace for a while, by all of a process, and named once."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from toolformer.credentials import without_credentials

log = logging.getLogger(__name__)

PAUSE = 60.0
"""Seconds between two tries at a server that does not answer."""
_UNTIL: dict[str, float] = {}
"""When each may be asked again. Every stage of a process has a tracker of its own, and every run a thread that sends;
what one of them found out, the others need not wait for."""


def left(uri: str) -> float:
    """Seconds for which a server is still left in peace; 0 if it may be asked."""
    return max(_UNTIL.get(uri, 0.0) - time.monotonic(), 0.0)


def begin(uri: str, fault: object, kept_in: Path) -> None:
    """A server did not answer."""
    if uri not in _UNTIL:
        text = without_credentials(" ".join(str(fault).split()))
        log.warning("%s under %s; toolformer runs resend sends it", text, kept_in)
    _UNTIL[uri] = time.monotonic() + PAUSE


def end(uri: str) -> None:
    """A server answered."""
    _UNTIL.pop(uri, None)
