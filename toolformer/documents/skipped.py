"""What was left out of a corpus: counted by reason, the first of each kind logged by file and line.

With `strict` the first of them ends the run.
"""

from __future__ import annotations

import logging
from collections import Counter

from toolformer.errors import UserError

log = logging.getLogger(__name__)

SAID = 3
"""Rows of one kind in one file that are logged; the others are only counted."""

_said: Counter[tuple[str, str]] = Counter()
_messages: set[str] = set()


class Skipped:
    """The rows that one reading of a corpus left out."""

    def __init__(self, strict: bool = False, key: str = "corpus") -> None:
        self.strict = strict
        self.key = key
        """What the corpus is called in the configuration."""
        self.counts: Counter[str] = Counter()
        """Rows by reason."""

    def row(self, file: str, place: str, reason: str, count: int = 1, detail: str = "") -> None:
        """Rows are left out of `file` at `place` (`line 7`); `detail` is said but not counted apart.

        Raises:
            UserError: the corpus is read strictly.
        """
        told = f"{file}, {place}: {reason}{f' ({detail})' if detail else ''}"
        if self.strict:
            raise UserError(f"{told}; mend it or set {self.key}.strict=false to go on without it")
        self.counts[reason] += count
        # A corpus is read several times over; what is wrong with it is said once.
        if told not in _messages and _said[file, reason] < SAID:
            _messages.add(told)
            _said[file, reason] += 1
            more = "; further ones in this file are only counted" if _said[file, reason] == SAID else ""
            log.warning("%s, skipped%s", told, more)

    def summary(self) -> str:
        """`3 rows skipped: 2 malformed JSON, 1 empty text`."""
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.counts.most_common())
        total = self.counts.total()
        return f"{total} row{'' if total == 1 else 's'} skipped: {reasons}"

    def say(self, name: str) -> None:
        """Logs the summary of a whole reading, once."""
        message = f"{name}: {self.summary()}"
        if self.counts and message not in _messages:
            _messages.add(message)
            log.warning("%s", message)
