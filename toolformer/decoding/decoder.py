"""Greedy decoding that starts a call when its policy says so: top-k is the paper's (section 4.2).

A batch stays full: rows write side by side, a token a step, until a quarter of them has ended or waits for a result.
Then the calls are run together, tool by tool, their results are read into the rows' caches, and the next prompts take
the ended rows' places. Nothing that the model wrote is tokenised again, nothing that it has read is read again.
"""

import functools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from toolformer.calls import END
from toolformer.data import Document
from toolformer.decoding.batch import Batch, Queue, Row
from toolformer.decoding.call_state import Completion, Writer, execute
from toolformer.decoding.settings import POLICIES, Decoding, deciding
from toolformer.errors import UserError
from toolformer.lm.branches import Branches
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Tool

log = logging.getLogger(__name__)

STALLED_SHARE = 0.25
"""Share of a batch's rows that may have ended or wait for a result before their places are filled."""


def rank(logits: torch.Tensor, start: int) -> torch.Tensor:
    """The start token's rank from 1 on, [rows]; equally likely tokens do not push it down. Logits [rows, vocabulary]."""
    return (logits > logits[:, start : start + 1]).sum(-1) + 1


def margin(logits: torch.Tensor, start: int) -> torch.Tensor:
    """Logit of the best other token minus that of the start token, [rows]: the bias that makes the start token the best."""
    return _without(logits, start).amax(-1) - logits[:, start]


def _without(logits: torch.Tensor, token: int) -> torch.Tensor:
    """The logits [rows, vocabulary] with one token's probability set to zero."""
    others = logits.clone()
    others[:, token] = float("-inf")
    return others


def probability(logits: torch.Tensor, start: int) -> torch.Tensor:
    """The start token's probability, [rows]."""
    return logits.softmax(-1)[:, start]


MEASURES = {"topk": rank, "bias": margin, "threshold": probability}
"""By policy, what it goes by."""


def fires(policy: str, measured: float, limit: float) -> bool:
    """Whether a policy starts a call at a place: at most rank k, at most the margin `bias`, at least `threshold`."""
    return measured >= limit if policy == "threshold" else measured <= limit


@dataclass(eq=False)
class Decoder(Decoding):
    """Continues prompts with a language model that may call tools."""

    language_model: LanguageModel
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """Keyed as in configuration."""
    mode: str = "tools"
    """With `plain` no tool runs and no token is forbidden (the baselines)."""

    @property
    def taught(self) -> bool:
        """Whether the model was finetuned on calls: if so, texts are scored with the start token forbidden."""
        return self.mode == "tools"

    def deciding(self) -> dict[str, Any]:
        """The settings that decide a completion, by name."""
        others = ("language_model", "tools")
        return deciding(
            {each.name: getattr(self, each.name) for each in fields(self) if each.name not in others},
            self.tools,
        )

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
        head: str = "",
    ) -> list[Completion]:
        """Continues each prompt by at most `max_new_tokens` tokens outside of calls.

        `documents[n]` is what the tools may know of prompt n (its date). `allowed` limits the tools by key. Completions
        go to `on_batch` as soon as they are there, with the prompts' indices. `head` is a text that most prompts begin with:
        the model reads it once.

        A prompt that leaves no room for its continuation and a call loses its beginning, with a line in the log. UserError if
        the context has no room at all, or with `strict` too little for a prompt.
        """
        rows, writer, tries = self._begin(prompts, documents, max_new_tokens, stop, allowed, strict)
        model = self.language_model
        beginning = model.bos_ids + model.encode(head) if head else ()
        queue = Queue(model, rows, self.batch_size, beginning)
        completions: dict[int, Completion] = {}
        for ended in self._run(queue, writer, tries):
            batch = {row.index: writer.completion(row) for row in ended}
            completions.update(batch)
            if on_batch:
                on_batch(list(batch), list(batch.values()))
        return [completions[n] for n in range(len(prompts))]

    def _begin(
        self,
        prompts: Sequence[str],
        documents: Sequence[Document] | None,
        max_new_tokens: int,
        stop: Sequence[str],
        allowed: Collection[str] | None,
        strict: bool = False,
    ) -> tuple[list[Row], Writer, dict[str, list[int]]]:
        """The prompts as rows, the longest first; what writes them; the tool names a call may begin with, with their tokens."""
        if documents is None:
            documents = [Document(doc_id=str(n), text=prompt) for n, prompt in enumerate(prompts)]
        model = self.language_model
        encoded = [model.bos_ids + model.encode(prompt) for prompt in prompts]
        encoded = [ids or model.start_ids() for ids in encoded]
        cut = self._fit(encoded, max_new_tokens, strict)
        tools = {tool.name: tool for key, tool in self.tools.items() if allowed is None or key in allowed}
        enabled = self.mode == "tools" and self.k > 0 and bool(tools) and self.max_calls > 0
        order = sorted(range(len(prompts)), key=lambda n: (-len(encoded[n]), n))
        rows = [
            Row(n, documents[n], encoded[n], encoded[n], may_call=enabled, prompt_cut=cut[n]) for n in order
        ]
        limits = (self.max_calls, self.max_call_tokens, self.max_result_tokens, max_new_tokens)
        writer = Writer(model, tools, *limits, stop)
        names = sorted(tools) if self.constrain_tool_name else []
        tries = {name: model.encode_after_start(name) for name in names}
        return rows, writer, tries

    def room(self, max_new_tokens: int) -> int:
        """Tokens that a prompt may have, before its calls and its continuation; UserError if there is no room at all."""
        model = self.language_model
        # A call's start and end, which stand around what its limits count.
        brackets = 1 + len(model.encode_continuation(END))
        call = brackets + self.max_call_tokens + self.max_result_tokens
        room = model.context_length - max_new_tokens - self.max_calls * call
        if room < 1:
            raise UserError(
                f"decoding: {max_new_tokens} new tokens and a call do not fit into the model's context of "
                f"{model.context_length} tokens; lower decoding.max_call_tokens or max_result_tokens"
            )
        return room

    def _fit(self, encoded: list[list[int]], max_new_tokens: int, strict: bool) -> list[int]:
        """Cuts prompts that leave no room on their left, in place; returns how many tokens each has lost."""
        model, room = self.language_model, self.room(max_new_tokens)
        long = [n for n, ids in enumerate(encoded) if len(ids) > room]
        if long and strict:
            raise UserError(
                f"text: it has {len(encoded[long[0]])} tokens, and the context of {model.context_length} leaves room for "
                f"{room} before a call and {max_new_tokens} new tokens; shorten it, or ask for fewer"
            )
        cut = [max(0, len(ids) - room) for ids in encoded]
        if long:
            longer = "decoding: %d of %d prompts are longer than %d tokens: cut on their left"
            log.warning(longer, len(long), len(encoded), room)
            head = model.bos_ids
            for n in long:
                encoded[n] = head + encoded[n][cut[n] + len(head) :]
        return cut

    @torch.inference_mode()
    def _run(self, queue: Queue, writer: Writer, tries: Mapping[str, list[int]]) -> Iterator[list[Row]]:
        """Continues all rows of the queue; yields them as they end. `tries` as of `_begin`."""
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
            waiting = [(n, row.pending) for n, row in enumerate(batch.rows) if row.pending]
            asked = [(call, batch.rows[n].document) for n, call in waiting]
            for (n, _), result in zip(waiting, execute(writer.tools, asked), strict=True):
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

    def _write_next(self, batch: Batch, writer: Writer, tries: Mapping[str, list[int]]) -> None:
        """Chooses and writes the next token of every fresh row."""
        while batch.fresh:
            rows = [batch.rows[n] for n in batch.fresh]
            tokens = self._next(batch.logits[batch.fresh], rows, tries)
            for n, row, token in zip(batch.fresh, rows, tokens, strict=True):
                if token == self.language_model.start_id and row.may_call and row.call_start is None:
                    row.at_start = batch.logits[n].clone()
                writer.write(row, token)
                if row.call_start is not None and self._passes_over(row, _named(row, tries)):
                    writer.pass_over(row)
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

    def _next(self, logits: torch.Tensor, rows: list[Row], tries: Mapping[str, list[int]]) -> list[int]:
        """The next token of each row: the likeliest, or the start token where the policy starts a call."""
        start = self.language_model.start_id
        ends = sorted(self.language_model.end_ids)
        early = [n for n, row in enumerate(rows) if row.before + len(row.written) < self.min_new_tokens]
        if early and ends:
            logits = logits.clone()
            logits[torch.tensor(early, device=logits.device)[:, None], ends] = float("-inf")
        likeliest: list[int] = logits.argmax(-1).tolist()
        if self.mode == "plain":
            return likeliest
        logits = logits.float()
        starts = self._starts(logits, rows)
        # Of all rows at once: a GPU is waited for each time that a number is read.
        others = _without(logits, start).argmax(-1).tolist()
        spelling = logits[:, self._spelling].tolist() if tries else []
        chosen: list[int] = []
        for n, row in enumerate(rows):
            if row.call_start is not None and not tries:
                chosen.append(likeliest[n])
            elif row.call_start is not None:
                values = self._of_names(row, spelling[n], tries)
                chosen.append(max(sorted(values), key=values.__getitem__) if values else others[n])
            elif row.may_call and starts[n] and row.passed != row.tokens:
                chosen.append(start)
            else:
                chosen.append(others[n] if likeliest[n] == start else likeliest[n])
        return chosen

    @functools.cached_property
    def _spelling(self) -> list[int]:
        """The tokens that tools' names consist of, and those that begin with a parenthesis."""
        model = self.language_model
        names = (token for tool in self.tools.values() for token in model.encode_after_start(tool.name))
        return sorted({*model.opening_ids, *names})

    def _of_names(
        self, row: Row, logits: Sequence[float], tries: Mapping[str, list[int]]
    ) -> dict[int, float]:
        """The logits of the tokens with which an open call's name, or its parenthesis, goes on; none behind these.

        `logits` are those of `_spelling`. The bias of a tool's name is added. A stand-in's first token has that of the name it
        stands for, if that is larger.
        """
        model, step, begun = self.language_model, row.since_start, _begun(row, tries)
        of_token = dict(zip(self._spelling, logits, strict=True))
        values: dict[int, float] = {}
        for key, tool in self.tools.items():
            written: Sequence[int] = ()
            if tool.name in begun:
                written = read = tries[tool.name][step : step + 1] or model.opening_ids
            elif step == 0 and (stand_in := self.tools.get((self.stand_in or {}).get(key, ""))):
                written = tries.get(stand_in.name, [])[:1] if tool.name not in tries else ()
                read = model.encode_after_start(tool.name)[:1]
            for token, spoken in zip(written, read if written else (), strict=True):
                value = of_token[spoken] + (self.name_bias or {}).get(key, 0.0)
                values[token] = max(value, values.get(token, value))
        return values

    def _starts(self, logits: torch.Tensor, rows: Sequence[Row]) -> list[bool]:
        """Of each row whether the policy starts a call of some tool before the next token; logits [rows, vocabulary]."""
        measured = MEASURES[self.policy](logits, self.language_model.start_id).tolist()
        limits = self._limits.values()
        for row, value in zip(rows, measured, strict=True):
            if row.call_start is None:
                row.measured = value
        return [any(fires(self.policy, value, limit) for limit in limits) for value in measured]

    @property
    def _limits(self) -> dict[str, float]:
        """The policy's number for each tool, by its name in calls."""
        usual, own = getattr(self, POLICIES[self.policy]), self.by_tool or {}
        return {tool.name: own.get(key, usual) for key, tool in self.tools.items()}

    def _passes_over(self, row: Row, name: str | None) -> bool:
        """Whether the policy starts no call of the tool that an open call names, where it has been started."""
        limit = self._limits.get(name) if self.by_tool and name else None
        return limit is not None and not fires(self.policy, row.measured, limit)


def _begun(row: Row, tries: Mapping[str, list[int]]) -> list[str]:
    """The names that a row's open call may be writing."""
    assert row.call_start is not None
    body = row.written[row.call_start + 1 :]
    return [name for name, ids in tries.items() if ids[: len(body)] == body]


def _named(row: Row, tries: Mapping[str, list[int]]) -> str | None:
    """The tool that a row's open call is bound to name, or has named."""
    if row.pending:
        return row.pending.tool
    begun = _begun(row, tries)
    return begun[0] if len(begun) == 1 else None
