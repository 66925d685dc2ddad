"""Greedy decoding that starts a call whenever its token is among the k likeliest (paper, section 4.2).

A batch stays full: rows write side by side, a token a step, until a quarter of them has ended or waits for a result.
Then the calls are run together, tool by tool, their results are read into the rows' caches, and the next prompts take
the ended rows' places. What the model wrote is kept as tokens and never tokenised again, what it has read is never read
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import torch

from toolformer.batching import Branches
from toolformer.calls import END
from toolformer.decoding.rows import Batch, Queue, Row
from toolformer.decoding.writing import Completion, Writer
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.language_model import LanguageModel
from toolformer.tools.base import Tool

log = logging.getLogger(__name__)

STALLED_SHARE = 0.25
"""Share of a batch's rows that may have ended or wait for a result before their places are filled."""


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
        tools = {tool.name: tool for key, tool in self.tools.items() if allowed is None or key in allowed}
        enabled = self.mode == "tools" and self.k > 0 and bool(tools) and self.max_calls > 0
        order = sorted(range(len(prompts)), key=lambda n: (-len(encoded[n]), n))
        rows = [
            Row(n, documents[n], encoded[n], encoded[n], may_call=enabled, prompt_cut=cut[n]) for n in order
        ]
        queue = Queue(model, rows, self.batch_size)
        writer = Writer(
            model,
            tools,
            max_calls=self.max_calls,
            max_call_tokens=self.max_call_tokens,
            max_result_tokens=self.max_result_tokens,
            max_new_tokens=max_new_tokens,
            stop=stop,
        )
        tries = [model.encode_after_start(name) for name in sorted(tools)]
        completions: dict[int, Completion] = {}
        for ended in self._run(queue, writer, tries):
            found = {row.index: writer.completion(row) for row in ended}
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
    def _run(self, queue: Queue, writer: Writer, tries: list[list[int]]) -> Iterator[list[Row]]:
        """Continues all rows of the queue; yields them as they end. `tries` are the names of the tools as tokens."""
        batch: Batch | None = None
        while batch or queue:
            batch = self._turn(batch, queue, writer)
            while True:
                self._write_next(batch, writer, tries)
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

    def _turn(self, batch: Batch | None, queue: Queue, writer: Writer) -> Batch:
        """Runs the calls that wait, and puts new rows into the places of those that have ended."""
        rows: list[Row] = []
        fresh: list[int] = []
        parts: list[tuple[Branches, Sequence[int]]] = []
        logits: list[torch.Tensor] = []
        if batch:
            waiting = [n for n, row in enumerate(batch.rows) if row.pending]
            results = writer.execute([batch.rows[n] for n in waiting])
            for n, result in zip(waiting, results, strict=True):
                writer.resume(batch.rows[n], result)
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

    def _write_next(self, batch: Batch, writer: Writer, tries: list[list[int]]) -> None:
        """Chooses and writes the next token of every fresh row."""
        while batch.fresh:
            rows = [batch.rows[n] for n in batch.fresh]
            tokens = self._next(batch.logits[batch.fresh], rows, tries)
            for n, row, token in zip(batch.fresh, rows, tokens, strict=True):
                if token == self.language_model.start_id and row.may_call and row.call_start is None:
                    row.at_start = batch.logits[n].clone()
                writer.write(row, token)
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
