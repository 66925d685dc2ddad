"""State machine that turns the tokens chosen for a row into text and calls, executed or rolled back (paper, section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from toolformer.data import Document
from toolformer.decoding.batch import Row
from toolformer.decoding.completion import Completion
from toolformer.decoding.policy import ToolNames
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.results import with_result
from toolformer.lm.stop import cut_at
from toolformer.tools.base import Result, Tool

NOT_ENDED = "call not ended"
NOT_ALLOWED = "tool not allowed"
MALFORMED = "malformed call"
NO_ARROW = "call without arrow"


@dataclass(frozen=True)
class Writer:
    """Writes rows, with the tools that may be called, by their names in calls, and the limits."""

    language_model: LanguageModel
    tools: Mapping[str, Tool]
    max_calls: int
    max_call_tokens: int
    max_result_tokens: int
    max_new_tokens: int
    """Tokens outside of calls after which a row ends."""
    stop: Sequence[str]
    """Texts outside of calls that end a row."""
    names: ToolNames | None = None
    """Chooses the names of tools in calls; without it they are decoded as all else."""

    def write(self, row: Row, token: int) -> None:
        """Adds a token to a row, which may end it, complete its call, or roll the call back."""
        model = self.language_model
        if token in model.end_ids:
            if row.call_start is not None:
                self._fail(row, NOT_ENDED)
            else:
                row.done = True
            return
        row.written.append(token)
        row.unread = [token]
        row.tokens += 1
        if row.call_start is not None:
            self._write_call(row)
        elif token == model.start_id and row.may_call:
            row.call_start = len(row.written) - 1
        elif row.before + len(row.written) >= self.max_new_tokens:
            row.done = True
        elif self.stop:
            text = row.plain + model.decode(row.written)
            row.done = any(end in text for end in self.stop)

    def _write_call(self, row: Row) -> None:
        """Checks an open call: complete at its arrow, rolled back when it cannot become one."""
        body = self.language_model.decode(row.call_body)
        end = call_end(body)
        arrow = body.rfind(ARROW)
        if arrow >= 0 and (end is None or arrow < end):
            try:
                row.pending = parse(START.strip() + body[:arrow].rstrip() + END)
                return
            except CallSyntaxError:
                if end is not None:
                    self._fail(row, MALFORMED)
                    return
        if end is not None:
            self._fail(row, NO_ARROW)
        elif len(row.call_body) >= self.max_call_tokens:
            self._fail(row, NOT_ENDED)

    def _count(self, row: Row) -> None:
        """Counts what a call holds that only its tool, or another call, should write; once, before it is run or rolled back."""
        body = self.language_model.decode(row.call_body)
        row.results_begun += begins_result(body)
        row.calls_in_calls += begins_call(body, self.tools)

    def _fail(self, row: Row, reason: str) -> None:
        """Counts a call that cannot become one, and rolls it back."""
        self._count(row)
        self._roll_back(row, reason)

    @staticmethod
    def _roll_back(row: Row, reason: str | None) -> None:
        """Removes an open call: the row goes on from before it, without calling again."""
        assert row.call_start is not None
        row.failed = reason
        row.forget = len(row.written) - row.call_start - len(row.unread)
        row.tokens -= len(row.written) - row.call_start
        row.written = row.written[: row.call_start]
        row.unread = []
        row.call_start, row.pending, row.tool, row.may_call = None, None, None, False

    def new_name(self, row: Row) -> str | None:
        """The name of an open call's tool, once: when it has become certain."""
        if row.tool or row.call_start is None:
            return None
        named = self.names.named(row.call_body) if self.names and not row.pending else None
        row.tool = row.pending.tool if row.pending else named
        return row.tool

    def suppress(self, row: Row) -> None:
        """Rolls back an open call that should not start here; later the row may call."""
        self._roll_back(row, None)
        row.may_call, row.suppressed_at = True, row.tokens

    def resume(self, row: Row, result: Result) -> None:
        """Appends the result to the arrow, or rolls the call back when there is none."""
        model = self.language_model
        assert row.pending is not None and row.call_start is not None
        self._count(row)
        if result.text is None:
            self._roll_back(row, result.reason or "no result")
            row.fault = result.fault
            return
        call = with_result(model, row.pending, result.text, self.max_result_tokens)
        before = model.decode(row.written[: row.call_start])
        row.text += before + linearise(call)
        row.plain += before
        # The token written last, the arrow, has not been read yet.
        result_ids = model.encode_continuation(f" {call.result}{END}")
        row.unread = row.unread + result_ids
        row.context = row.context + row.written + result_ids
        row.calls.append(call)
        row.before += row.call_start
        row.written, row.call_start, row.pending, row.tool, row.at_start = [], None, None, None, None
        row.may_call = len(row.calls) < self.max_calls

    def completion(self, row: Row) -> Completion:
        """The text of a row up to the first stop text, which may begin before a call and end after it."""
        plain = cut_at(row.plain + self.language_model.decode(row.written), self.stop)
        text = row.text + plain[len(row.plain) :]
        counted = (row.failed, row.tokens, row.fault, row.prompt_cut, row.results_begun, row.calls_in_calls)
        return Completion(text, plain, tuple(row.calls), *counted)


@dataclass(frozen=True)
class PendingCall:
    """A call that waits for its result."""

    call: ApiCall
    document: Document
    """The text in which it was written."""


def execute(tools: Mapping[str, Tool], pending: Sequence[PendingCall]) -> list[Result]:
    """Runs calls together, tool by tool; tools by their names in calls."""
    results = [Result(reason=NOT_ALLOWED)] * len(pending)
    for name, tool in tools.items():
        calling = [n for n, item in enumerate(pending) if item.call.tool == name]
        if calling:
            inputs = [pending[n].call.input for n in calling]
            documents = [pending[n].document for n in calling]
            for n, result in zip(calling, tool.run(inputs, documents), strict=True):
                results[n] = result
    return results
