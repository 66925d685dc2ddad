"""Inputs while they are continued: one row per input, rows side by side in a batch, and prompts that wait for a place."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from toolformer.calls import ApiCall
from toolformer.data import Document
from toolformer.lm.batching import by_length
from toolformer.lm.branches import Branches
from toolformer.lm.language_model import LanguageModel


@dataclass(eq=False)
class Row:
    """One input while it is continued."""

    index: int
    document: Document
    context: list[int]
    """The prompt, and after a call everything up to its end."""
    unread: list[int]
    """Tokens that the model has yet to read: the prompt, the token it wrote last, a call's result."""
    written: list[int] = field(default_factory=list)
    """Tokens since the context."""
    text: str = ""
    """Finished text: calls and what precedes them."""
    plain: str = ""
    calls: list[ApiCall] = field(default_factory=list)
    failed: str | None = None
    fault: bool = False
    prompt_cut: int = 0
    tokens: int = 0
    before: int = 0
    """Tokens of text, calls left out, before `written`."""
    call_start: int | None = None
    """Index in `written` of an open call's start token."""
    at_start: torch.Tensor | None = None
    """Logits [vocabulary] where the open call was started: the row goes back to them if the call fails."""
    tool: str | None = None
    """The name of the open call's tool, once it is certain."""
    dropped_at: int | None = None
    """`tokens` where the policy last dropped a call: none starts there again."""
    forget: int = 0
    """Tokens that the model has read and that have been taken back."""
    pending: ApiCall | None = None
    """A call that waits for its result."""
    done: bool = False
    may_call: bool = True

    @property
    def active(self) -> bool:
        return not self.done and self.pending is None

    @property
    def may_start(self) -> bool:
        """Whether a call may start before the next token."""
        return self.may_call and self.call_start is None and self.dropped_at != self.tokens

    @property
    def call_body(self) -> list[int]:
        """The tokens of an open call after its start token."""
        return [] if self.call_start is None else self.written[self.call_start + 1 :]


@dataclass
class Batch:
    """Rows that are continued side by side."""

    rows: list[Row]
    branches: Branches
    """One per row; they have read all but `unread`."""
    logits: torch.Tensor
    """[rows, vocabulary] after the last token read."""

    @property
    def fresh(self) -> list[int]:
        """The rows whose next token is to be chosen from `logits`; the other active ones have a token to read."""
        return [n for n, row in enumerate(self.rows) if row.active and not row.unread]

    def step(self) -> None:
        """Active rows read the token that they wrote last."""
        fed = [row.unread if row.active else [0] for row in self.rows]
        idle = [n for n, row in enumerate(self.rows) if not row.active]
        self.logits = self.branches.step(torch.tensor(fed), idle)[:, 0]
        for row in self.rows:
            row.unread = [] if row.active else row.unread

    def go_back(self, n: int) -> None:
        """Undoes what a row has read of a call that was taken back, if there was one."""
        row = self.rows[n]
        if row.at_start is not None and row.call_start is None:
            self.branches.forget(n, row.forget)
            self.logits[n] = row.at_start
            row.at_start, row.forget = None, 0

    def with_results(self, numbers: Sequence[int]) -> Batch:
        """These rows as a separate batch, after they have read the results of their calls."""
        rows = [self.rows[n] for n in numbers]
        branches = Branches.join([(self.branches, numbers)])
        logits = branches.extend([row.unread for row in rows])
        return _read(rows, branches, logits)

    @staticmethod
    def join(parts: Sequence[tuple[Batch, Sequence[int]]]) -> Batch:
        """The named rows of several batches, side by side."""
        rows = [batch.rows[n] for batch, numbers in parts for n in numbers]
        logits = torch.cat([batch.logits[list(numbers)] for batch, numbers in parts])
        first = parts[0][0]
        if len(parts) == 1 and len(rows) == len(first.rows):
            return Batch(rows, first.branches, logits)
        return Batch(rows, Branches.join([(batch.branches, numbers) for batch, numbers in parts]), logits)


def _read(rows: list[Row], branches: Branches, logits: torch.Tensor) -> Batch:
    """A batch of rows that have read everything."""
    for row in rows:
        row.unread = []
    return Batch(rows, branches, logits)


class Queue:
    """Prompts that wait for a place in the batch. They are read a batch ahead: few are read no faster than many.

    `head` are tokens that most prompts begin with, which are read once.
    """

    def __init__(
        self, language_model: LanguageModel, rows: Iterable[Row], ahead: int, head: Sequence[int] = ()
    ) -> None:
        self._language_model = language_model
        self._rows = deque(rows)
        self._ahead = ahead
        self._head = list(head)
        self._read: deque[tuple[Batch, list[int]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._rows or self._read)

    def add(self, rows: Iterable[Row]) -> None:
        """Puts rows in front of those that have not been read yet."""
        self._rows.extendleft(rows)

    def take(self, count: int) -> Iterator[tuple[Batch, list[int]]]:
        """The next `count` prompts, as rows of the batches that they were read in."""
        while count > 0 and self:
            if not self._read:
                rows = [self._rows.popleft() for _ in range(min(self._ahead, len(self._rows)))]
                size = len(self._head)
                headed = [row for row in rows if size < len(row.unread) and row.unread[:size] == self._head]
                self._read_ahead(headed, size)
                self._read_ahead([row for row in rows if row not in headed], 0)
            batch, left = self._read.popleft()
            chosen, left = left[:count], left[count:]
            if left:
                self._read.appendleft((batch, left))
            count -= len(chosen)
            yield batch, chosen

    def _read_ahead(self, rows: Sequence[Row], shared: int) -> None:
        """Reads prompts of which the first `shared` tokens are the head."""
        model = self._language_model
        rest = [row.unread[shared:] for row in rows]
        prefix = model.prefix(self._head) if shared and rows else None
        for numbers in by_length(list(map(len, rest)), [1] * len(rest)):
            logits, branches = model.prefill([rest[n] for n in numbers], prefix)
            batch = _read([rows[n] for n in numbers], branches, logits)
            self._read.append((batch, list(range(len(numbers)))))
