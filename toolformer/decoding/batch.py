"""Inputs while they are being continued: a row each, rows side by side in a batch, and those that wait for a place."""

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
    """One input while it is being continued."""

    index: int
    document: Document
    context: list[int]
    """The prompt, and after a call everything up to its end."""
    unread: list[int]
    """Tokens that the model has yet to read: the prompt, the token it wrote last, a call's result."""
    written: list[int] = field(default_factory=list)
    """Tokens since the context."""
    text: str = ""
    """Finished text: calls and what stands before them."""
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
    """Logits [vocabulary] where the open call was started: what the row goes back to if the call fails."""
    measured: float = 0.0
    """What the policy goes by, where the row last was outside of calls."""
    passed: int | None = None
    """Tokens that the row had where it last passed over a call, whose tool is not to be called there."""
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
    def since_start(self) -> int:
        """Tokens of an open call behind its start token."""
        return len(self.written) - self.call_start - 1 if self.call_start is not None else 0


@dataclass
class Batch:
    """Rows that are continued side by side."""

    rows: list[Row]
    branches: Branches
    """A row each; they have read all but `unread`."""
    logits: torch.Tensor
    """[rows, vocabulary] after the last token read."""
    fresh: list[int]
    """The rows whose next token is to be chosen from `logits`; the other active ones have a token to read."""


class Queue:
    """Prompts that wait for a place in the batch. They are read a batch ahead, since few are read no faster.

    `head` are tokens that most prompts begin with, which are read once.
    """

    def __init__(
        self, language_model: LanguageModel, rows: Iterable[Row], ahead: int, head: Sequence[int] = ()
    ) -> None:
        self._language_model = language_model
        self._rows = deque(rows)
        self._ahead = ahead
        self._head = list(head)
        self._read: deque[Batch] = deque()

    def __bool__(self) -> bool:
        return bool(self._rows or self._read)

    def add(self, rows: Iterable[Row]) -> None:
        """Has these read before the others."""
        self._rows.extendleft(rows)

    def take(self, count: int) -> Iterator[tuple[Batch, list[int]]]:
        """The next `count` prompts, as rows of what they were read with."""
        while count > 0 and self:
            if not self._read:
                rows = [self._rows.popleft() for _ in range(min(self._ahead, len(self._rows)))]
                headed = [row for row in rows if self._begins_with_head(row)]
                self._read_ahead(headed, len(self._head))
                self._read_ahead([row for row in rows if row not in headed], 0)
            batch = self._read[0]
            chosen, batch.fresh = batch.fresh[:count], batch.fresh[count:]
            if not batch.fresh:
                self._read.popleft()
            count -= len(chosen)
            yield batch, chosen

    def _begins_with_head(self, row: Row) -> bool:
        head = self._head
        return 0 < len(head) < len(row.unread) and row.unread[: len(head)] == head

    def _read_ahead(self, rows: Sequence[Row], shared: int) -> None:
        """Reads prompts of which the first `shared` tokens are the head."""
        model = self._language_model
        rest = [row.unread[shared:] for row in rows]
        prefix = model.prefix(self._head) if shared and rows else None
        for some in by_length(list(map(len, rest)), [1] * len(rows)):
            logits, branches = model.prefill([rest[n] for n in some], prefix)
            self._read.append(Batch([rows[n] for n in some], branches, logits, list(range(len(some)))))
