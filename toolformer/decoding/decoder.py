"""Greedy decoding that starts a call whenever its token is among the k likeliest (paper, section 4.2).

A batch stays full: rows write side by side, a token a step, until a quarter of them has ended or waits for a result.
Then the calls are run together, tool by tool, their results are read into the rows' caches, and the next prompts take
the ended rows' places. What the model wrote is kept as tokens and never tokenised again, what it has read is never read
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from toolformer.batching import Branches
from toolformer.calls import ARROW, END, START, ApiCall, CallSyntaxError, call_end, linearise, parse
from toolformer.decoding.rows import Batch, Queue, Row
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.language_model import LanguageModel
from toolformer.tools.base import Result, Tool, run_safely

log = logging.getLogger(__name__)

NOT_ENDED = "call not ended"
NOT_ALLOWED = "tool not allowed"
MALFORMED = "malformed call"
NO_ARROW = "call without arrow"

STALLED_SHARE = 0.25
"""Share of a batch's rows that may have ended or wait for a result before their places are filled."""


@dataclass(frozen=True)
class Completion:
    """What a model wrote after one prompt."""

    text: str
    """The continuation with its calls: " [Calculator(2 + 3) -> 5] 5."."""
    plain: str
    """The continuation without them: what is scored."""
    calls: tuple[ApiCall, ...] = ()
    """The executed calls with their results, in the text's order."""
    failed: str | None = None
    """Why a call that was started has been taken back."""
    tokens: int = 0
    """Tokens of the text and of the executed calls that the model wrote; results and calls taken back not counted."""
    fault: bool = False
    """Whether it has been taken back since its tool broke down (`Result.fault`): asked again, it may be answered."""
    prompt_cut: int = 0
    """Tokens that the prompt lost on its left, since the context had no room for them."""

    @property
    def call(self) -> ApiCall | None:
        """The first executed call, which is the only one unless `max_calls` allows more."""
        return self.calls[0] if self.calls else None


class Decoder:
    """Continues prompts with a language model that may call tools.

    `tools` is keyed as in configuration. `k` is the paper's: 1 is plain greedy decoding with calls, 0 forbids the start
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
        strict: bool = False,
    ) -> list[Completion]:
        """Continues each prompt by at most `max_new_tokens` tokens outside of calls.

        `documents[n]` is what the tools may know of prompt n (its date). `allowed` limits the tools by key. A batch's
        completions go to `on_batch` as soon as they are there, with the prompts' indices; batches are made of prompts
        of similar length.

        A prompt that leaves no room for its continuation and a call loses its beginning, with a line in the log; with
        `strict` it is refused.

        Raises:
            UserError: the context has no room at all, or with `strict` too little for a prompt.
        """
        if documents is None:
            documents = [Document(doc_id=str(n), text=prompt) for n, prompt in enumerate(prompts)]
        model = self.language_model
        encoded = [model.own_prefix + model.encode(prompt) for prompt in prompts]
        encoded = [ids or model.document_start() for ids in encoded]
        cut = self._fit(encoded, max_new_tokens, strict)
        names = {tool.name: key for key, tool in self.tools.items() if allowed is None or key in allowed}
        enabled = self.mode == "tools" and self.k > 0 and bool(names) and self.max_calls > 0
        order = sorted(range(len(prompts)), key=lambda n: (-len(encoded[n]), n))
        rows = [
            Row(n, documents[n], encoded[n], encoded[n], may_call=enabled, prompt_cut=cut[n]) for n in order
        ]
        queue = Queue(model, rows, self.batch_size)
        completions: dict[int, Completion] = {}
        for ended in self._run(queue, names, max_new_tokens, stop):
            found = {row.index: _completion(row, model, stop) for row in ended}
            completions.update(found)
            if on_batch:
                on_batch(list(found), list(found.values()))
        return [completions[n] for n in range(len(prompts))]

    def _fit(self, encoded: list[list[int]], max_new_tokens: int, strict: bool) -> list[int]:
        """Cuts prompts that leave no room on their left, in place, or with `strict` refuses the first.

        Returns how many tokens each has lost.
        """
        model = self.language_model
        # A call's start and end, which stand around what its limits count.
        brackets = 1 + len(model.encode_behind(END))
        call = brackets + self.max_call_tokens + self.max_result_tokens
        room = model.context_length - max_new_tokens - self.max_calls * call
        if room < 1:
            raise UserError(
                f"decoding: {max_new_tokens} new tokens and a call do not fit into the model's context of "
                f"{model.context_length} tokens; lower decoding.max_call_tokens or max_result_tokens"
            )
        long = [n for n, ids in enumerate(encoded) if len(ids) > room]
        if long and strict:
            raise UserError(
                f"text: it has {len(encoded[long[0]])} tokens, and the context of {model.context_length} leaves room for "
                f"{room} before a call and {max_new_tokens} new tokens; shorten it, or ask for fewer"
            )
        cut = [max(0, len(ids) - room) for ids in encoded]
        if long:
            log.warning(
                "decoding: %d of %d prompts are longer than %d tokens: cut on their left",
                len(long),
                len(encoded),
                room,
            )
            head = model.own_prefix
            for n in long:
                encoded[n] = head + encoded[n][cut[n] + len(head) :]
        return cut

    @torch.inference_mode()
    def _run(
        self, queue: Queue, names: Mapping[str, str], limit: int, stop: Sequence[str]
    ) -> Iterator[list[Row]]:
        """Continues all rows of the queue; yields them as they end."""
        tries = [self.language_model.encode_after_start(name) for name in sorted(names)]
        batch: Batch | None = None
        while batch or queue:
            batch = self._turn(batch, queue, names)
            while True:
                self._write_next(batch, tries, limit, stop)
                active = [n for n, row in enumerate(batch.rows) if row.active]
                stalled = len(batch.rows) - len(active)
                if not active or stalled >= max(1.0, STALLED_SHARE * len(batch.rows)):
                    break
                fed = [row.unread if row.active else [0] for row in batch.rows]
                idle = [n for n, row in enumerate(batch.rows) if not row.active]
                batch.logits = batch.branches.step(torch.tensor(fed), idle)[:, 0]
                batch.fresh = active
                for n in active:
                    batch.rows[n].unread = []
            ended = [row for row in batch.rows if row.done]
            if ended:
                yield ended
            if len(ended) == len(batch.rows):
                batch = None

    def _turn(self, batch: Batch | None, queue: Queue, names: Mapping[str, str]) -> Batch:
        """Runs the calls that wait, and puts new rows into the places of those that have ended."""
        rows: list[Row] = []
        fresh: list[int] = []
        parts: list[tuple[Branches, Sequence[int]]] = []
        logits: list[torch.Tensor] = []
        if batch:
            waiting = [n for n, row in enumerate(batch.rows) if row.pending]
            results = self._execute([batch.rows[n] for n in waiting], names)
            for n, result in zip(waiting, results, strict=True):
                self._resume(batch.rows[n], result)
                self._go_back(batch, n)
            # Rows that only have to read the token they wrote, or have gone back, stay as they are.
            steady = [n for n, row in enumerate(batch.rows) if not row.done and len(row.unread) < 2]
            if steady:
                parts.append((batch.branches, steady))
                logits.append(batch.logits[steady])
                fresh += [n for n, old in enumerate(steady) if not batch.rows[old].unread]
                rows += [batch.rows[n] for n in steady]
            resumed = [n for n, row in enumerate(batch.rows) if len(row.unread) > 1]
            if resumed:
                branches = Branches.join([(batch.branches, resumed)])
                logits.append(branches.extend([batch.rows[n].unread for n in resumed]))
                parts.append((branches, range(len(resumed))))
                fresh += range(len(rows), len(rows) + len(resumed))
                rows += [batch.rows[n] for n in resumed]
        for ahead, new in queue.take(self.batch_size - len(rows)):
            logits.append(ahead.logits[new])
            parts.append((ahead.branches, new))
            fresh += range(len(rows), len(rows) + len(new))
            rows += [ahead.rows[n] for n in new]
        for n in fresh:
            rows[n].unread = []
        joined = (
            parts[0][0] if len(parts) == 1 and len(rows) == len(parts[0][0].visible) else Branches.join(parts)
        )
        return Batch(rows, joined, torch.cat(logits), fresh)

    def _write_next(self, batch: Batch, tries: list[list[int]], limit: int, stop: Sequence[str]) -> None:
        """Chooses and writes the next token of every fresh row."""
        while batch.fresh:
            rows = [batch.rows[n] for n in batch.fresh]
            tokens = self._next(batch.logits[batch.fresh], rows, tries)
            for n, row, token in zip(batch.fresh, rows, tokens, strict=True):
                if token == self.language_model.start_id and row.may_call and row.call_start is None:
                    row.at_start = batch.logits[n].clone()
                self._write(row, token, limit, stop)
            # Where a call has been taken back, the next token is chosen once more.
            batch.fresh = [n for n in batch.fresh if self._go_back(batch, n)]

    @staticmethod
    def _go_back(batch: Batch, n: int) -> bool:
        """Undoes what a row has read of a call that was taken back; returns whether there was one."""
        row = batch.rows[n]
        if row.at_start is None or row.call_start is not None:
            return False
        batch.branches.forget(n, row.forget)
        batch.logits[n] = row.at_start
        row.at_start, row.forget = None, 0
        return True

    def _next(self, logits: torch.Tensor, rows: list[Row], tries: list[list[int]]) -> list[int]:
        """The next token of each row: the likeliest, or the start token if it is among the k likeliest."""
        start = self.language_model.start_id
        ends = sorted(self.language_model.end_ids)
        early = [n for n, row in enumerate(rows) if row.before + len(row.written) < self.min_new_tokens]
        if early and ends:
            logits = logits.clone()
            logits[torch.tensor(early, device=logits.device)[:, None], ends] = float("-inf")
        if self.mode == "plain":
            return [int(token) for token in logits.argmax(-1)]
        logits = logits.float()
        # As many tokens are likelier than the start token; equal ones do not push it out.
        ahead = (logits > logits[:, start : start + 1]).sum(-1).tolist()
        likeliest = logits.argmax(-1).tolist()
        chosen: list[int] = []
        for n, row in enumerate(rows):
            if row.call_start is not None:
                names = [ids for ids in tries if ids[: row.since_start] == row.written[row.call_start + 1 :]]
                following = sorted({ids[row.since_start] for ids in names if len(ids) > row.since_start})
                ended = any(len(ids) == row.since_start for ids in names)
                if following and not ended:
                    best = logits[n, torch.tensor(following, device=logits.device)].argmax()
                    chosen.append(following[int(best)])
                else:
                    chosen.append(likeliest[n])
            elif row.may_call and ahead[n] < self.k:
                chosen.append(start)
            elif likeliest[n] == start:
                # Probability zero for <API>: the runner-up, also of a tie.
                others = logits[n].clone()
                others[start] = float("-inf")
                chosen.append(int(others.argmax()))
            else:
                chosen.append(likeliest[n])
        return chosen

    def _write(self, row: Row, token: int, limit: int, stop: Sequence[str]) -> None:
        """Adds a token to a row, which may end it, complete its call, or take the call back."""
        model = self.language_model
        if token in model.end_ids:
            if row.call_start is not None:
                self._take_back(row, NOT_ENDED)
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
        elif row.before + len(row.written) >= limit or (
            stop and _ends(row.plain + model.decode(row.written), stop)
        ):
            row.done = True

    def _write_call(self, row: Row) -> None:
        """Looks at an open call: complete at its arrow, taken back when it cannot become one."""
        assert row.call_start is not None
        body = self.language_model.decode(row.written[row.call_start + 1 :])
        end = call_end(body)
        arrow = body.rfind(ARROW)
        if arrow >= 0 and (end is None or arrow < end):
            try:
                row.pending = parse(START.strip() + body[:arrow].rstrip() + END)
                return
            except CallSyntaxError:
                if end is not None:
                    self._take_back(row, MALFORMED)
                    return
        if end is not None:
            self._take_back(row, NO_ARROW)
        elif row.since_start >= self.max_call_tokens:
            self._take_back(row, NOT_ENDED)

    @staticmethod
    def _take_back(row: Row, reason: str) -> None:
        """Drops an open call: the row goes on from before it, without calling again."""
        assert row.call_start is not None
        row.failed = reason
        row.forget = len(row.written) - row.call_start - len(row.unread)
        row.tokens -= len(row.written) - row.call_start
        row.written = row.written[: row.call_start]
        row.unread = []
        row.call_start, row.pending, row.may_call = None, None, False

    def _execute(self, rows: list[Row], names: Mapping[str, str]) -> Iterator[Result]:
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

    def _resume(self, row: Row, result: Result) -> None:
        """Puts the result behind the arrow, or takes the call back when there is none."""
        model = self.language_model
        assert row.pending is not None and row.call_start is not None
        if result.text is None:
            self._take_back(row, result.reason or "no result")
            row.fault = result.fault
            return
        call = row.pending.with_result(result.text)
        call = row.pending.with_result(self._cut(call.result or ""))
        before = model.decode(row.written[: row.call_start])
        row.text += before + linearise(call)
        row.plain += before
        # What was written last, the arrow, has not been read yet.
        result_ids = model.encode_behind(f" {call.result}{END}")
        row.unread = row.unread + result_ids
        row.context = row.context + row.written + result_ids
        row.calls.append(call)
        row.before += row.call_start
        row.written, row.call_start, row.pending, row.at_start = [], None, None, None
        row.may_call = len(row.calls) < self.max_calls

    def _cut(self, result: str) -> str:
        """As much of a result as has at most `max_result_tokens` tokens."""
        model = self.language_model
        ids = model.encode_behind(f" {result}")
        most = self.max_result_tokens
        while len(ids) > self.max_result_tokens:
            # Cut inside of a character, or into tokens that are encoded to more: shorter still.
            result = model.decode(ids[:most]).rstrip("\ufffd").strip()
            ids, most = model.encode_behind(f" {result}"), most - 1
        return result


def _ends(text: str, stop: Sequence[str]) -> bool:
    return any(end in text for end in stop)


def _completion(row: Row, model: LanguageModel, stop: Sequence[str]) -> Completion:
    """What the row has written, up to the first stop text, which may begin before a call and end behind it."""
    plain = row.plain + model.decode(row.written)
    plain = plain[: min([plain.find(end) for end in stop if end in plain], default=len(plain))]
    text = row.text + plain[len(row.plain) :]
    return Completion(text, plain, tuple(row.calls), row.failed, row.tokens, row.fault, row.prompt_cut)
