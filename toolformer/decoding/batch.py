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
from toolformer.lm.slots import Slots

FREE_SHARE = 0.125
"""Share of a batch's slots that may stay free when no prompt is left: giving them up copies the others."""


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
    results_begun: int = 0
    calls_in_calls: int = 0
    tokens: int = 0
    before: int = 0
    """Tokens of text, calls left out, before `written`."""
    call_start: int | None = None
    """Index in `written` of an open call's start token."""
    at_start: torch.Tensor | None = None
    """Logits [vocabulary] where the open call was started: the row goes back to them if the call fails."""
    tool: str | None = None
    """The name of the open call's tool, once it is certain."""
    suppressed_at: int | None = None
    """`tokens` where a call was last suppressed, because its tool's k was not met: none starts there again."""
    forget: int = 0
    """Tokens that the model has read and that were rolled back."""
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
        return self.may_call and self.call_start is None and self.suppressed_at != self.tokens

    @property
    def call_body(self) -> list[int]:
        """The tokens of an open call after its start token."""
        return [] if self.call_start is None else self.written[self.call_start + 1 :]


@dataclass(frozen=True)
class Prompts:
    """Prompts that the model has read together."""

    rows: list[Row]
    branches: Branches
    """One per row."""
    logits: torch.Tensor
    """[rows, vocabulary] after the last token of each."""


class Batch:
    """Rows that are continued side by side, one token per step, each in a slot that the next prompt takes over."""

    def __init__(self, model: LanguageModel) -> None:
        self.rows: list[Row | None] = []
        """By slot; None where it is free."""
        self.logits = torch.zeros(0)
        """[slots, vocabulary] after the last token read; in float32 or less."""
        self._slots = Slots(model)

    @property
    def taken(self) -> list[tuple[int, Row]]:
        """The rows with their slots."""
        return [(n, row) for n, row in enumerate(self.rows) if row]

    @property
    def fresh(self) -> list[tuple[int, Row]]:
        """The rows whose next token is to be chosen from `logits`; the other active ones have tokens to read."""
        return [(n, row) for n, row in self.taken if row.active and not row.unread]

    def step(self) -> None:
        """Every active row reads its next token."""
        fed = [bool(row and row.active) for row in self.rows]
        tokens = [row.unread[0] if row and row.active else 0 for row in self.rows]
        self.logits = self._slots.step(tokens, fed)
        for _, row in self.taken:
            if row.active:
                row.unread = row.unread[1:]

    def read_at_once(self, numbers: Sequence[int]) -> None:
        """These rows read all their tokens."""
        rows = [row for n in numbers if (row := self.rows[n])]
        self.logits[list(numbers)] = self._slots.extend(numbers, [row.unread for row in rows])
        for row in rows:
            row.unread = []

    def go_back(self, n: int) -> None:
        """Undoes what a row has read of a call that was rolled back, if there was one."""
        row = self.rows[n]
        if row and row.at_start is not None and row.call_start is None:
            self._slots.forget(n, row.forget)
            self.logits[n] = row.at_start
            row.at_start, row.forget = None, 0

    def release(self) -> list[Row]:
        """The rows that have ended, whose slots are free from now on."""
        ended = [(n, row) for n, row in self.taken if row.done]
        for n, _ in ended:
            self.rows[n] = None
            self._slots.clear(n)
        return [row for _, row in ended]

    def refill(self, queue: Queue, size: int) -> None:
        """Puts waiting prompts into free slots, up to `size` rows; without prompts, free slots are given up in time."""
        free = [n for n, row in enumerate(self.rows) if row is None]
        for prompts, numbers in queue.take(size - len(self.rows) + len(free)):
            new = range(len(self.rows), len(self.rows) + len(numbers) - len(free))
            slots = [*free, *new][: len(numbers)]
            free = free[len(numbers) :]
            self._slots.put(slots, prompts.branches, numbers)
            self.rows += [None] * len(new)
            fresh = prompts.logits.new_zeros(len(new), prompts.logits.shape[-1])
            self.logits = torch.cat([self.logits, fresh]) if len(self.logits) else fresh
            self.logits[slots] = prompts.logits[list(numbers)]
            for slot, n in zip(slots, numbers, strict=True):
                self.rows[slot] = prompts.rows[n]
        if len(free) >= FREE_SHARE * len(self.rows):
            kept = [n for n, _ in self.taken]
            if kept:
                self._slots.keep(kept)
                self.logits = self.logits[kept]
            self.rows = [self.rows[n] for n in kept]


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
        self._read: deque[tuple[Prompts, list[int]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._rows or self._read)

    def take(self, count: int) -> Iterator[tuple[Prompts, list[int]]]:
        """The next `count` prompts: their numbers among those that they were read with."""
        while count > 0 and self:
            if not self._read:
                rows = [self._rows.popleft() for _ in range(min(self._ahead, len(self._rows)))]
                size = len(self._head)
                headed = [row for row in rows if size < len(row.unread) and row.unread[:size] == self._head]
                self._read_ahead(headed, size)
                self._read_ahead([row for row in rows if row not in headed], 0)
            prompts, left = self._read.popleft()
            chosen, left = left[:count], left[count:]
            if left:
                self._read.appendleft((prompts, left))
            count -= len(chosen)
            yield prompts, chosen

    def _read_ahead(self, rows: Sequence[Row], shared: int) -> None:
        """Reads prompts of which the first `shared` tokens are the head."""
        model = self._language_model
        rest = [row.unread[shared:] for row in rows]
        prefix = model.prefix(self._head) if shared and rows else None
        for numbers in by_length(list(map(len, rest)), [1] * len(rest), model.batch_tokens):
            logits, branches = model.prefill([rest[n] for n in numbers], prefix)
            for n in numbers:
                rows[n].unread = []
            prompts = Prompts([rows[n] for n in numbers], branches, logits)
            self._read.append((prompts, list(range(len(numbers)))))
