"""Greedy decoding that starts a call whenever its token is among the k likeliest (paper, section 4.2).

With at most one call an input (max_calls), a batch goes through segments: every row writes until it ends or reaches an
arrow; the calls of the batch are run together, tool by tool; the rows that called go on behind their results. What the
model wrote is kept as tokens and never tokenised again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from toolformer.calls import ARROW, END, START, ApiCall, CallSyntaxError, call_end, linearise, parse
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.language_model import LanguageModel
from toolformer.tools.base import Result, Tool, run_safely

NOT_ENDED = "call not ended"
NOT_ALLOWED = "tool not allowed"
MALFORMED = "malformed call"
NO_ARROW = "call without arrow"


@dataclass(frozen=True)
class Completion:
    """What a model wrote after one prompt."""

    text: str
    """The continuation with its calls: " [Calculator(2 + 3) -> 5] 5."."""
    plain: str
    """The continuation without them: what is scored."""
    call: ApiCall | None = None
    """The first executed call, with its result."""
    failed: str | None = None
    """Why a call that was started has been taken back."""
    tokens: int = 0
    """Tokens the model wrote, results not counted."""


@dataclass
class _Row:
    """One input while it is being continued."""

    index: int
    document: Document
    context: list[int]
    """The prompt, and after a call everything written so far."""
    written: list[int] = field(default_factory=list)
    """Tokens since the context began."""
    text: str = ""
    """Finished text: calls and what stands before them."""
    plain: str = ""
    calls: list[ApiCall] = field(default_factory=list)
    failed: str | None = None
    tokens: int = 0
    before: int = 0
    """Tokens of text, calls left out, that stand in `context`."""
    call_start: int | None = None
    """Index in `written` of an open call's start token."""
    pending: ApiCall | None = None
    """A call that waits for its result."""
    done: bool = False
    may_call: bool = True


class Decoder:
    """Continues prompts with a language model that may call tools.

    `tools` is keyed as in configuration. `k` is the paper's: 1 is plain greedy decoding with 0 forbids the start
    token. `min_new_tokens` forbids the end of the text before so many tokens: chat models end at once where a plain
    language model would write on. With `mode="plain"` the model is left alone: no tool runs and no token is forbidden (the baselines).
    """

    def __init__(
        self,
        language_model: LanguageModel,
        tools: Mapping[str, Tool] | None = None,
        k: int = 10,
        max_calls: int = 1,
        max_call_tokens: int = 40,
        max_result_tokens: int = 64,
        batch_size: int = 32,
        mode: str = "tools",
        min_new_tokens: int = 0,
    ) -> None:
        if k < 0 or max_calls < 0 or batch_size < 1:
            raise UserError("decoding: k and max_calls must not be negative, batch_size must be at least 1")
        if mode not in ("tools", "plain"):
            raise UserError(f"decoding.mode is {mode!r}; it must be tools or plain")
        self.language_model = language_model
        self.tools = dict(tools or {})
        self.k = k
        self.max_calls = max_calls
        self.max_call_tokens = max_call_tokens
        self.max_result_tokens = max_result_tokens
        self.batch_size = batch_size
        self.mode = mode
        self.min_new_tokens = min_new_tokens

    def complete(
        self,
        prompts: Sequence[str],
        documents: Sequence[Document] | None = None,
        *,
        max_new_tokens: int,
        stop: Sequence[str] = (),
        allowed: Collection[str] | None = None,
        on_batch: Callable[[list[int], list[Completion]], None] | None = None,
    ) -> list[Completion]:
        """Continues each prompt by at most `max_new_tokens` tokens outside of calls.

        `documents[n]` is what the tools may know of prompt n (its date). `allowed` limits the tools by key. A batch's
        completions go to `on_batch` as soon as they are there, with the prompts' indices; batches are made of prompts
        of similar length.
        """
        if documents is None:
            documents = [Document(doc_id=str(n), text=prompt) for n, prompt in enumerate(prompts)]
        model = self.language_model
        encoded = [model.own_prefix + model.encode(prompt) for prompt in prompts]
        encoded = [ids or model.document_start() for ids in encoded]
        room = (
            model.context_length
            - max_new_tokens
            - self.max_calls * (self.max_call_tokens + self.max_result_tokens)
        )
        if room < 1:
            raise UserError(
                f"decoding: {max_new_tokens} new tokens and a call do not fit into the model's context of "
                f"{model.context_length} tokens; lower decoding.max_call_tokens or max_result_tokens"
            )
        names = {tool.name: key for key, tool in self.tools.items() if allowed is None or key in allowed}
        completions: dict[int, Completion] = {}
        order = sorted(range(len(prompts)), key=lambda n: (-len(encoded[n]), n))
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            rows = [_Row(n, documents[n], encoded[n][-room:]) for n in batch]
            self._run(rows, names, max_new_tokens, stop)
            found = [_completion(row, self.language_model, stop) for row in rows]
            completions.update(zip(batch, found, strict=True))
            if on_batch:
                on_batch(batch, found)
        return [completions[n] for n in range(len(prompts))]

    def _run(self, rows: list[_Row], names: Mapping[str, str], limit: int, stop: Sequence[str]) -> None:
        enabled = self.mode == "tools" and self.k > 0 and bool(names) and self.max_calls > 0
        tries = [self.language_model.encode_after_start(name) for name in sorted(names)]
        for row in rows:
            row.may_call = enabled
        while going := [row for row in rows if not row.done]:
            self._segment(going, tries, limit, stop)
            waiting = [row for row in going if row.pending]
            for row, result in zip(waiting, self._execute(waiting, names), strict=True):
                self._resume(row, result)

    def _segment(self, rows: list[_Row], tries: list[list[int]], limit: int, stop: Sequence[str]) -> None:
        """Writes until every row is done, waits for a result, or has a call taken back."""
        model = self.language_model
        logits, branches = model.prefill([row.context + row.written for row in rows])
        logits = logits[:, -1]
        active = list(rows)
        while active:
            tokens = self._next(logits, active, tries)
            going: list[int] = []
            for n, (row, token) in enumerate(zip(active, tokens, strict=True)):
                if self._write(row, token, limit, stop):
                    going.append(n)
            if not going:
                return
            if len(going) < len(active):
                branches.keep_rows(going)
                active = [active[n] for n in going]
            fed = torch.tensor([[row.written[-1]] for row in active])
            logits = branches.step(fed)[:, 0]

    def _next(self, logits: torch.Tensor, rows: list[_Row], tries: list[list[int]]) -> list[int]:
        """The next token of each row: the likeliest, or the start token if it is among the k likeliest."""
        start = self.language_model.start_id
        end = self.language_model.tokenizer.eos_token_id
        early = [n for n, row in enumerate(rows) if row.before + len(row.written) < self.min_new_tokens]
        if early and end is not None:
            logits = logits.clone()
            logits[torch.tensor(early, device=logits.device), end] = float("-inf")
        if self.mode == "plain":
            return [int(token) for token in logits.argmax(-1)]
        logits = logits.float()
        # As many tokens are likelier than the start token; equal ones do not push it out.
        ahead = (logits > logits[:, start : start + 1]).sum(-1).tolist()
        likeliest = logits.argmax(-1).tolist()
        chosen: list[int] = []
        for n, row in enumerate(rows):
            if row.call_start is not None:
                names = [
                    ids for ids in tries if ids[: self._since_start(row)] == row.written[row.call_start + 1 :]
                ]
                following = sorted(
                    {ids[self._since_start(row)] for ids in names if len(ids) > self._since_start(row)}
                )
                ended = any(len(ids) == self._since_start(row) for ids in names)
                if following and not ended:
                    best = logits[n, torch.tensor(following, device=logits.device)].argmax()
                    chosen.append(following[int(best)])
                else:
                    chosen.append(likeliest[n])
            elif row.may_call and ahead[n] < self.k:
                chosen.append(start)
            elif likeliest[n] == start:
                # Probability zero for <API>: the runner-up.
                chosen.append(int(logits[n].topk(2).indices[1]))
            else:
                chosen.append(likeliest[n])
        return chosen

    @staticmethod
    def _since_start(row: _Row) -> int:
        return len(row.written) - row.call_start - 1 if row.call_start is not None else 0

    def _write(self, row: _Row, token: int, limit: int, stop: Sequence[str]) -> bool:
        """Adds a token to a row; returns whether the row goes on in this segment."""
        model = self.language_model
        if token == model.tokenizer.eos_token_id:
            if row.call_start is not None:
                return self._take_back(row, NOT_ENDED)
            row.done = True
            return False
        row.written.append(token)
        row.tokens += 1
        if row.call_start is not None:
            return self._write_call(row)
        if token == model.start_id and row.may_call:
            row.call_start = len(row.written) - 1
            return True
        if row.before + len(row.written) >= limit or _ends(model.decode(row.written), stop):
            row.done = True
            return False
        return True

    def _write_call(self, row: _Row) -> bool:
        """Looks at an open call: complete at its arrow, taken back when it cannot become one."""
        assert row.call_start is not None
        body = self.language_model.decode(row.written[row.call_start + 1 :])
        end = call_end(body)
        arrow = body.rfind(ARROW)
        if arrow >= 0 and (end is None or arrow < end):
            try:
                row.pending = parse(START.strip() + body[:arrow].rstrip() + END)
            except CallSyntaxError:
                if end is not None:
                    return self._take_back(row, MALFORMED)
            else:
                return False
        if end is not None:
            return self._take_back(row, NO_ARROW)
        if self._since_start(row) >= self.max_call_tokens:
            return self._take_back(row, NOT_ENDED)
        return True

    def _take_back(self, row: _Row, reason: str) -> bool:
        """Drops an open call: the row goes on from before it, without calling again."""
        assert row.call_start is not None
        row.failed = reason
        row.written = row.written[: row.call_start]
        row.call_start, row.pending, row.may_call = None, None, False
        return False

    def _execute(self, rows: list[_Row], names: Mapping[str, str]) -> Iterator[Result]:
        """Runs the pending calls of a batch together, tool by tool."""
        results: dict[int, Result] = {}
        for name, key in names.items():
            calling = [(row, row.pending) for row in rows if row.pending and row.pending.tool == name]
            if calling:
                answered = run_safely(
                    self.tools[key], [call.input for _, call in calling], [row.document for row, _ in calling]
                )
                results.update(
                    {row.index: result for (row, _), result in zip(calling, answered, strict=True)}
                )
        for row in rows:
            yield results.get(row.index, Result(reason=NOT_ALLOWED))

    def _resume(self, row: _Row, result: Result) -> None:
        """Puts the result behind the arrow, or takes the call back when there is none."""
        model = self.language_model
        assert row.pending is not None and row.call_start is not None
        if result.text is None:
            self._take_back(row, result.reason or "no result")
            return
        call = row.pending.with_result(result.text)
        ids = model.encode(f" {call.result}")
        if len(ids) > self.max_result_tokens:
            call = row.pending.with_result(model.decode(ids[: self.max_result_tokens]))
        before = model.decode(row.written[: row.call_start])
        row.text += before + linearise(call)
        row.plain += before
        row.context = row.context + row.written + model.encode(f" {call.result}{END}")
        row.calls.append(call)
        row.before += row.call_start
        row.written, row.call_start, row.pending = [], None, None
        row.may_call = len(row.calls) < self.max_calls


def _ends(text: str, stop: Sequence[str]) -> bool:
    return any(end in text for end in stop)


def _completion(row: _Row, model: LanguageModel, stop: Sequence[str]) -> Completion:
    tail = model.decode(row.written)
    tail = tail[: min([tail.find(end) for end in stop if end in tail], default=len(tail))]
    call = row.calls[0] if row.calls else None
    return Completion(row.text + tail, row.plain + tail, call, row.failed, row.tokens)
