"""A row: one request while it is continued, and how the tokens chosen for it become text and calls (paper, section 4.2).

WRITING ── start token ──> NAMING ── name ──> CALLING ── arrow ──> WAITING ── result ──> WRITING ──> ENDED
   ^─────────────────────── a call that cannot become one is rolled back ────────┘
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import torch

from toolformer.calls import (
    ARROW,
    END,
    START,
    ApiCall,
    CallSyntaxError,
    begins_call,
    begins_result,
    call_end,
    linearise,
    parse,
)
from toolformer.decoding.completion import Completion, Request
from toolformer.decoding.policy import ToolNames
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.results import with_result
from toolformer.lm.stop import cut_at, has_ended
from toolformer.tools.base import Result, Tool
from toolformer.tools.limits import CALL_TOO_LONG, Calling

NOT_ENDED = "call not ended"
MALFORMED = "malformed call"
NO_ARROW = "call without arrow"


class State(Enum):
    """State of a row."""

    WRITING = "writing text"
    NAMING = "naming a tool"
    CALLING = "writing a call's input"
    WAITING = "waiting for a call's result"
    ENDED = "ended"


@dataclass(eq=False)
class OpenCall:
    """A call that is being written."""

    start: int
    """Index of its start token in the row."""
    logits: torch.Tensor
    """[vocabulary] before it: the row goes on from them if the call fails."""
    tool: str | None = None
    """The name of its tool, once it is certain."""
    asked: ApiCall | None = None
    """The whole call, once it waits for its result."""


@dataclass(eq=False)
class Row:
    """One request while it is continued."""

    number: int
    """Number of its request, and of its row in the store."""
    request: Request
    ids: list[int]
    """The tokens of the prompt, and of all that follows: text, calls, results."""
    completion: Completion
    """The text up to the last executed call, and what is to be known of it."""
    may_call: bool
    state: State = State.WRITING
    call: OpenCall | None = None
    read: int = 0
    """Tokens that the model has read."""
    start: int = 0
    """Index of the first token after the prompt, or after the last executed call."""
    before: int = 0
    """Tokens of text, calls left out, before `start`."""
    suppressed_at: int | None = None
    """Length at which a call was last suppressed, because its tool's k was not met: none starts there again."""
    back: torch.Tensor | None = field(default=None, repr=False)
    """[vocabulary]: the logits that a row goes on from, of which a call has just been rolled back."""

    @property
    def may_start(self) -> bool:
        """Whether a call may start before the next token."""
        return self.may_call and self.call is None and self.suppressed_at != len(self.ids)

    @property
    def text_tokens(self) -> int:
        """Tokens of text, calls left out, unless a call is open."""
        return self.before + len(self.ids) - self.start

    @property
    def call_body(self) -> list[int]:
        """The tokens of an open call after its start token."""
        return self.ids[self.call.start + 1 :] if self.call else []


@dataclass(frozen=True)
class Writer:
    """Writes rows.

    Args:
        tools: by key.
    """

    language_model: LanguageModel
    tools: Mapping[str, Tool]
    calling: Mapping[str, Calling]
    """How each of them is called, by its name in calls."""
    max_calls: int
    names: Callable[[tuple[str, ...]], ToolNames]
    """What may name a tool in a call, of the keys of the tools that may be called; the same object for the same keys."""

    @functools.cached_property
    def _arrow_tokens(self) -> int:
        return arrow_tokens(self.language_model)

    def names_of(self, row: Row) -> ToolNames:
        """What may name a tool in calls of this row."""
        return self.names(tuple(row.request.keys(self.tools)))

    def open_call(self, row: Row, logits: torch.Tensor) -> None:
        """Writes the start token of a call, chosen by these logits [vocabulary]."""
        row.call, row.state = OpenCall(len(row.ids), logits), State.NAMING
        row.ids.append(self.language_model.start_id)

    def write(self, row: Row, token: int) -> None:
        """Adds a token to a row, which may end it, complete its call, or roll the call back."""
        if token in self.language_model.end_ids:
            if row.call:
                self._fail(row, NOT_ENDED)
            else:
                row.state = State.ENDED
            return
        row.ids.append(token)
        if row.call:
            self._write_call(row, row.call)
        elif row.text_tokens >= row.request.limit or (
            row.request.stop
            and has_ended(
                row.ids[row.start :], self.language_model.decode, row.request.stop, row.completion.plain
            )
        ):
            row.state = State.ENDED

    def _write_call(self, row: Row, call: OpenCall) -> None:
        """Checks an open call: complete at its arrow, rolled back when it cannot become one."""
        if row.state is State.NAMING:
            names = self.names_of(row)
            call.tool = names.named(row.call_body)
            if not names.is_open(row.call_body):
                row.state = State.CALLING
        body = self.language_model.decode(row.call_body)
        end = call_end(body)
        arrow = body.rfind(ARROW)
        if arrow >= 0 and (end is None or arrow < end):
            try:
                call.asked = parse(START.strip() + body[:arrow].rstrip() + END)
            except CallSyntaxError:
                if end is not None:
                    self._fail(row, MALFORMED)
                    return
            else:
                call.tool, row.state = call.asked.tool, State.WAITING
                return
        if end is not None:
            self._fail(row, NO_ARROW)
        elif len(row.call_body) >= self._longest(row, call) + self._arrow_tokens:
            self._fail(row, CALL_TOO_LONG)

    def _longest(self, row: Row, call: OpenCall) -> int:
        """Tokens of an open call at most, without its arrow: those of its tool, or while this is open, of any."""
        names = [self.tools[key].name for key in row.request.keys(self.tools)]
        possible = [call.tool] if call.tool in names else names
        return max(self.calling[name].max_call_tokens for name in possible)

    def _count(self, row: Row) -> None:
        """Counts what a call holds that only its tool, or another call, should write; once, before it is run or rolled back."""
        body, now = self.language_model.decode(row.call_body), row.completion
        names = [self.tools[key].name for key in row.request.keys(self.tools)]
        row.completion = replace(
            now,
            results_begun=now.results_begun + begins_result(body),
            calls_in_calls=now.calls_in_calls + begins_call(body, names),
        )

    def _fail(self, row: Row, reason: str) -> None:
        """Counts a call that cannot become one, and rolls it back."""
        self._count(row)
        self._roll_back(row, reason)

    @staticmethod
    def _roll_back(row: Row, reason: str | None, fault: bool = False) -> None:
        """Removes an open call: the row goes on from before it, without calling again."""
        assert row.call
        row.completion = replace(row.completion, failed=reason, fault=fault)
        del row.ids[row.call.start :]
        row.back, row.call, row.state, row.may_call = row.call.logits, None, State.WRITING, False

    def suppress(self, row: Row) -> None:
        """Rolls back an open call that should not start here; later the row may call."""
        self._roll_back(row, row.completion.failed, row.completion.fault)
        row.may_call, row.suppressed_at = True, len(row.ids)

    def resume(self, row: Row, result: Result) -> None:
        """Appends the result to the arrow, or rolls the call back when there is none."""
        model, call = self.language_model, row.call
        assert call and call.asked
        self._count(row)
        if result.text is None:
            self._roll_back(row, result.reason or "no result", result.fault)
            return
        limit = self.calling[call.asked.tool].max_result_tokens
        answered = with_result(model, call.asked, result.text, limit)
        before = model.decode(row.ids[row.start : call.start])
        now = row.completion
        row.completion = replace(
            now,
            text=now.text + before + linearise(answered),
            plain=now.plain + before,
            calls=(*now.calls, answered),
            tokens=now.tokens + len(row.ids) - row.start,
            results_cut=now.results_cut + (answered != call.asked.with_result(result.text)),
        )
        row.ids += model.encode_continuation(f" {answered.result}{END}")
        row.before += call.start - row.start
        row.start, row.call, row.state = len(row.ids), None, State.WRITING
        row.may_call = len(row.completion.calls) < self.max_calls

    def finish(self, row: Row) -> Completion:
        """The text of a row up to the first stop text, which may begin before a call and end after it."""
        now, written = row.completion, row.ids[row.start :]
        plain = cut_at(now.plain + self.language_model.decode(written), row.request.stop)
        text = now.text + plain[len(now.plain) :]
        return replace(now, text=text, plain=plain, tokens=now.tokens + len(written))


def arrow_tokens(model: LanguageModel) -> int:
    """Tokens of the arrow that ends a call at inference; an annotation's ends with its bracket."""
    return len(model.encode_continuation(f" {ARROW}"))
