"""Shards in a queue."""

from collections import deque
from collections.abc import Collection, Iterable

POLL_SECONDS = 0.5
"""How long is waited for news at a time."""


class Queue:
    """Shards that are to be done, by name."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.missing = set(names)
        """Shards that are not done."""
        self._todo = deque(sorted(self.missing))

    def take(self) -> str | None:
        """The next shard to be done; None if all have been taken."""
        return self._todo.popleft() if self._todo else None

    @property
    def is_given_out(self) -> bool:
        """Whether every shard has been taken."""
        return not self._todo

    def give_out_again(self) -> None:
        """All that are missing may be taken again: they were lost with their workers, or others left them."""
        self._todo = deque(sorted(self.missing))

    def done_by_others(self, names: Collection[str]) -> None:
        """Takes shards off that another process has finished."""
        self.missing -= set(names)
