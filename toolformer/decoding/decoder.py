"""Greedy decoding, except that a call starts when its start token is among the k most likely (paper, section 4.2).

A batch stays full: rows write side by side, one token per step, and the next prompt takes the place of a row that ends, whatever
its limit, stop texts and tools. Calls that cost less than a step run at once; others are run together, tool by tool, when a
sixteenth of the rows waits for a result. Short results are read one token per step beside the other rows. No text that the model
wrote is tokenised again, and no token is read twice.
"""

import functools
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import torch

from toolformer.calls import END
from toolformer.data import Document
from toolformer.decoding.completion import Completion, Request
from toolformer.decoding.policy import TIES, ToolNames, likeliest, starts_call
from toolformer.decoding.row import Row, State, Writer, arrow_tokens
from toolformer.decoding.settings import Decoding
from toolformer.errors import UserError
from toolformer.lm import memory
from toolformer.lm.batching import shared_heads
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.memory import BatchSize
from toolformer.lm.rows import Rows
from toolformer.tools.base import Tool
from toolformer.tools.limits import Calling

log = logging.getLogger(__name__)

T = TypeVar("T")

WAITING_SHARE = 0.0625
"""Share of a batch's rows that have to wait for a result before calls are run: a tool runs several at once faster."""
READ_BY_STEPS = 16
"""Tokens of a result that a row reads one by one, beside the others' steps; more are read at once."""
AHEAD = 0.5
"""Prompts that are read together, before there is a place for them, as a share of a batch: a few are read no faster than many."""
LAST = 0.125
"""The last prompts join a full batch if they are at most this share of it: alone, a few rows take as many steps as many."""


@dataclass(eq=False)
class Decoder(Decoding):
    """Continues prompts with a language model that may call tools."""

    language_model: LanguageModel
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """By key, as in the configuration."""
    calling: Mapping[str, Calling] = field(default_factory=dict)
    """How each of them is called, by key; those left out as `Calling` has it."""
    mode: str = "tools"
    """With `plain` no tool runs and no token is forbidden (the baselines)."""

    def __post_init__(self) -> None:
        self.language_model.check_tool_names(tool.name for tool in self.tools.values())

    @property
    def forbids_start_token(self) -> bool:
        """Whether the model was finetuned on calls: if so, texts are scored with the start token forbidden."""
        return self.mode == "tools"

    @property
    def identity(self) -> dict[str, Any]:
        """The language model, as part of the keys of all answers."""
        return {"model": self.language_model.name, "dtype": str(self.language_model.dtype)}

    def cache_key(self, request: Request) -> Any:
        """Everything besides the language model that decides the answer to a request."""
        others = ("language_model", "tools", "calling", "batch_size")
        settings = {key.name: getattr(self, key.name) for key in fields(self) if key.name not in others}
        keys, document = request.keys(self.tools), request.document
        date = document.date.isoformat() if document.date else None
        asked = [request.prompt, request.limit, request.stop, sorted(keys), date, document.source_id]
        calling = {key: self.how(key) for key in self.tools} if self.k else {}
        called = {key: [asdict(how) | {"fallback": None}] for key, how in calling.items() if key in keys}
        instead = {
            key: how.fallback for key, how in calling.items() if key not in keys and how.fallback in keys
        }
        return [settings, called, instead, asked]

    def forced(self) -> Self:
        """See `Decoding.forced`; no tool has a separate k."""
        calling = {key: replace(self.how(key), k=None) for key in self.tools}
        return replace(super().forced(), calling=calling)

    def how(self, key: str) -> Calling:
        """How a tool is called."""
        how = self.calling.get(key, Calling())
        return Calling(**{part.name: getattr(how, part.name) for part in fields(Calling)})

    @property
    def text_settings(self) -> Any:
        """Everything besides the language model that decides the score of a text."""
        return not self.forbids_start_token

    def score_texts(self, texts: Sequence[str]) -> list[tuple[float, int]]:
        """See `LanguageModel.rolling_log_likelihoods`."""
        return self._attempt(
            lambda: self.language_model.rolling_log_likelihoods(texts, not self.forbids_start_token)
        )

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """See `LanguageModel.log_likelihoods`."""
        return self._attempt(lambda: self.language_model.log_likelihoods(pairs))

    def _attempt(self, score: Callable[[], T]) -> T:
        """The scores, in passes of half as many tokens where a GPU's memory is full for the first time."""

        def work() -> T:
            self.language_model.batch_tokens = self.tokens.value
            return score()

        return self.tokens.attempt(work)

    @functools.cached_property
    def tokens(self) -> BatchSize:
        """Tokens of a forward pass when texts are scored."""
        return BatchSize("engine.batch_tokens", self.language_model.batch_tokens)

    @functools.cached_property
    def size(self) -> BatchSize:
        """Prompts that are completed together."""
        size = memory.batch_rows(self.language_model.device) if self.batch_size == "auto" else self.batch_size
        return BatchSize("decoding.batch_size", size)

    def complete(
        self,
        prompts: Sequence[str],
        documents: Sequence[Document] | None = None,
        *,
        max_new_tokens: int,
        stop: Sequence[str] = (),
        allowed: Iterable[str] | None = None,
        strict: bool = False,
    ) -> list[Completion]:
        """Continues each prompt by at most `max_new_tokens` tokens outside of calls, with the tools `allowed`, by key, or all.

        UserError if the context has no room for a continuation, or with `strict` for a whole prompt.
        """
        documents = documents or [Document(doc_id=str(n), text=prompt) for n, prompt in enumerate(prompts)]
        tools = None if allowed is None else frozenset(allowed)
        requests = [
            Request(prompt, document, max_new_tokens, tuple(stop), tools)
            for prompt, document in zip(prompts, documents, strict=True)
        ]
        return self.answers(requests, strict=strict)

    def answers(
        self,
        requests: Sequence[Request],
        on_finished: Callable[[Mapping[int, Completion]], object] = lambda finished: None,
        strict: bool = False,
    ) -> list[Completion]:
        """The completions of requests of any kinds; `on_finished` hears of them by number as soon as they are finished.

        A prompt that does not fit is a UserError if `strict`; otherwise it loses its beginning, with a line in the log.
        """
        completions: dict[int, Completion] = {}

        def complete_rest() -> None:
            rest = [n for n in range(len(requests)) if n not in completions]
            with closing(self.batches([requests[n] for n in rest], strict)) as batches:
                for batch in batches:
                    finished = {rest[n]: completion for n, completion in batch.items()}
                    completions.update(finished)
                    on_finished(finished)

        self.size.attempt(complete_rest)
        return [completions[n] for n in range(len(requests))]

    @functools.cached_property
    def k_by_name(self) -> dict[str, int]:
        """The k of each tool, by its name in calls; empty where all have the same."""
        every = {tool.name: self.how(key).k for key, tool in self.tools.items()}
        separate = any(k is not None for k in every.values())
        return {name: self.k if k is None else k for name, k in every.items()} if separate else {}

    @torch.inference_mode()
    def batches(
        self, requests: Sequence[Request], strict: bool = False
    ) -> Generator[dict[int, Completion], None, None]:
        """Completions by the number of their request, as soon as they are finished."""
        queue = deque(self.begin(requests, strict))
        steps = Steps(
            self, self._writer(), self.language_model.rows(shared_heads([row.ids for row in queue]))
        )
        while steps.batch or queue or steps.ahead:
            ended = steps.fill(queue, self.size.value)
            if steps.batch:
                steps.step()
            if ended:
                yield {row.number: steps.writer.finish(row) for row in ended}

    def begin(self, requests: Sequence[Request], strict: bool = False) -> list[Row]:
        """The requests as rows: those that may take longest first, and of these the longest prompts."""
        model = self.language_model
        encoded = [model.bos_ids + model.encode(request.prompt) for request in requests]
        encoded = [ids or model.start_ids() for ids in encoded]
        cut = self._fit(encoded, [request.limit for request in requests], strict)
        enabled = self.mode == "tools" and self.k > 0 and self.max_calls > 0
        return [
            Row(
                n,
                requests[n],
                encoded[n],
                Completion("", "", prompt_cut=cut[n]),
                may_call=enabled and bool(requests[n].keys(self.tools)),
                start=len(encoded[n]),
            )
            for n in sorted(range(len(encoded)), key=lambda n: (-requests[n].limit, -len(encoded[n]), n))
        ]

    def _writer(self) -> Writer:
        fallback = {key: other for key in self.tools if (other := self.how(key).fallback)}
        is_free = not self.constrain_tool_name

        @functools.cache
        def names(keys: tuple[str, ...]) -> ToolNames:
            return ToolNames(self.language_model, self.tools, keys, fallback, is_free)

        calling = {tool.name: self.how(key) for key, tool in self.tools.items()}
        return Writer(self.language_model, self.tools, calling, self.max_calls, names)

    def room(self, max_new_tokens: int) -> int:
        """Tokens that a prompt may have, before its calls and its continuation; UserError if there is no room at all."""
        model = self.language_model
        # A call's limits do not count its start and end.
        brackets = 1 + len(model.encode_continuation(END)) + arrow_tokens(model)
        calling = [self.how(key) for key in self.tools] or [Calling()]
        call = brackets + max(how.max_call_tokens + how.max_result_tokens for how in calling)
        room = model.context_length - max_new_tokens - self.max_calls * call
        if room < 1:
            raise UserError(
                f"decoding: {max_new_tokens} new tokens and a call do not fit into the model's context of "
                f"{model.context_length} tokens; lower tool.NAME.max_call_tokens or max_result_tokens"
            )
        return room

    def _fit(self, encoded: list[list[int]], limits: Sequence[int], strict: bool) -> list[int]:
        """Cuts too long prompts on their left, in place; returns how many tokens each has lost."""
        model, room = self.language_model, {limit: self.room(limit) for limit in set(limits)}
        cut = [max(0, len(ids) - room[limit]) for ids, limit in zip(encoded, limits, strict=True)]
        long = [n for n, count in enumerate(cut) if count]
        if long and strict:
            limit = limits[long[0]]
            raise UserError(
                f"text: {len(encoded[long[0]])} tokens are too many: the context of {model.context_length} tokens leaves room for "
                f"{room[limit]} before a call and {limit} new tokens; shorten the text, or ask for fewer new tokens"
            )
        if long:
            least = min(room[limits[n]] for n in long)
            longer = "decoding: %d of %d prompts are longer than %d tokens: cut on their left"
            log.warning(longer, len(long), len(encoded), least)
            for n in long:
                encoded[n] = model.cut_left(encoded[n], room[limits[n]])
        return cut


class Steps:
    """The rows that are continued side by side, and those whose prompts have been read ahead."""

    def __init__(self, decoder: Decoder, writer: Writer, store: Rows) -> None:
        self.writer = writer
        self.batch: list[Row] = []
        self.ahead: deque[Row] = deque()
        self.decoder = decoder
        self._model = decoder.language_model
        self._store = store
        self._k = max(decoder.k_by_name.values(), default=decoder.k)
        self._ends = torch.tensor(sorted(self._model.end_ids), device=self._model.device)
        self._chosen: tuple[Sequence[Row], torch.Tensor, list[int]] | None = None
        """The tokens chosen last, for all rows of a batch."""
        self._flags: tuple[list[bool], torch.Tensor] | None = None

    def fill(self, queue: deque[Row], size: int) -> list[Row]:
        """Fills the batch with prompts, in the places of rows that have ended; returns these, and ends without a step."""
        holes = [n for n, row in enumerate(self.batch) if row.state is State.ENDED]
        ended = [self.batch[n] for n in holes]
        for row in ended:
            self._store.free(row.number)
        if (left := len(self.ahead) + len(queue)) <= LAST * size:
            size = max(size, len(self.batch) - len(holes) + left)
        while len(self.batch) - len(holes) < size and (self.ahead or queue):
            if not self.ahead:
                self._read_ahead(queue, max(size - len(self.batch) + len(holes), int(AHEAD * size)))
            row = self.ahead.popleft()
            if row.state is State.ENDED:
                self._store.free(row.number)
                ended.append(row)
            elif holes:
                self.batch[holes.pop(0)] = row
            else:
                self.batch.append(row)
        for n in reversed(holes):
            last = self.batch.pop()
            if n < len(self.batch):
                self.batch[n] = last
        return ended

    def step(self) -> None:
        """Runs the calls that wait, if it is time for them; else every other row reads and writes a token."""
        waiting = [row for row in self.batch if row.state is State.WAITING]
        if len(waiting) == len(self.batch) or len(waiting) >= max(1, WAITING_SHARE * len(self.batch)):
            self._run(waiting)
            return
        numbers = [row.number for row in self.batch]
        tokens = [row.ids[row.read] if row.state is not State.WAITING else -1 for row in self.batch]
        if self._chosen and self._chosen[2] == tokens and self._chosen[0] == self.batch:
            logits = self._store.read(numbers, self._chosen[1])
        else:
            logits = self._store.read(numbers, [[token] if token >= 0 else [] for token in tokens])
        for row in self.batch:
            row.read += row.state is not State.WAITING
        self._write(list(self.batch), logits)

    def _read_ahead(self, queue: deque[Row], count: int) -> None:
        rows = [queue.popleft() for _ in range(min(count, len(queue)))]
        self._read(rows)
        self.ahead.extend(rows)

    def _read(self, rows: list[Row]) -> None:
        """These rows read all their tokens at once, and write the next."""
        logits = self._store.read([row.number for row in rows], [row.ids[row.read :] for row in rows])
        for row in rows:
            row.read = len(row.ids)
        self._write(rows, logits)

    def _write(self, rows: list[Row], logits: torch.Tensor) -> None:
        """Writes the next token of every row that has read all its tokens; `logits` are [rows, vocabulary]."""
        start, writer = self._model.start_id, self.writer
        while rows:
            fresh = [
                n for n, row in enumerate(rows) if row.read == len(row.ids) and row.state is not State.WAITING
            ]
            tokens = self.choose(logits, rows, fresh) if fresh else []
            for n in fresh:
                row, token = rows[n], tokens[n]
                if token == start and row.may_call and row.call is None:
                    writer.open_call(row, logits[n].clone())
                    continue
                was_certain = row.call is not None and row.call.tool is not None
                writer.write(row, token)
                if row.call and row.call.tool and not was_certain and not self._keeps_call(row):
                    writer.suppress(row)
            quick = [
                row
                for row in (rows[n] for n in fresh)
                if row.state is State.WAITING and self._tool(row).is_quick
            ]
            if quick:
                self._execute(quick)
            rows, logits = self._rolled_back([rows[n] for n in fresh])

    def _rolled_back(self, rows: Iterable[Row]) -> tuple[list[Row], torch.Tensor]:
        """Those whose call was rolled back, taken back in the store, and the logits before the call."""
        back = [(row, row.back) for row in rows if row.back is not None]
        for row, _ in back:
            if row.read > len(row.ids):
                self._store.rewind(row.number, len(row.ids))
            row.read, row.back = len(row.ids), None
        logits = [logits for _, logits in back]
        return [row for row, _ in back], torch.stack(logits) if logits else torch.empty(0)

    def _run(self, waiting: list[Row]) -> None:
        """Runs the calls that wait."""
        self._execute(waiting)
        if long := [row for row in waiting if len(row.ids) - row.read > READ_BY_STEPS]:
            self._read(long)
        self._write(*self._rolled_back(waiting))

    def _tool(self, row: Row) -> Tool:
        """The tool of a call that waits."""
        assert row.call and row.call.asked
        tools, name = self.decoder.tools, row.call.asked.tool
        return next(tools[key] for key in row.request.keys(tools) if tools[key].name == name)

    def _execute(self, rows: Sequence[Row]) -> None:
        """Runs calls together, tool by tool, and appends their results."""
        by_tool: dict[Tool, list[Row]] = {}
        for row in rows:
            by_tool.setdefault(self._tool(row), []).append(row)
        for tool, calling in by_tool.items():
            inputs = [row.call.asked.input for row in calling if row.call and row.call.asked]
            results = tool.run(inputs, [row.request.document for row in calling])
            for row, result in zip(calling, results, strict=True):
                self.writer.resume(row, result)

    def _keeps_call(self, row: Row) -> bool:
        """Whether a row's open call goes on, now that it is certain which tool it names: that tool's k must be met, too."""
        assert row.call
        k = self.decoder.k_by_name.get(row.call.tool or "")
        if k is None or k >= self._k:
            return True
        logits = row.call.logits
        best = logits.topk(min(k, len(logits))).values[None] if k else None
        return best is not None and bool(starts_call(logits[None, self._model.start_id], best, k))

    def choose(self, logits: torch.Tensor, rows: Sequence[Row], fresh: Sequence[int]) -> list[int]:
        """The next token of each row: the most likely, or the start token where a call starts; of those not fresh, any.

        Logits [rows, vocabulary] are changed in place.
        """
        decoder, start = self.decoder, self._model.start_id
        early = [n for n in fresh if rows[n].text_tokens < decoder.min_new_tokens]
        if early and len(self._ends):
            if len(early) == len(rows):
                logits.index_fill_(1, self._ends, float("-inf"))
            else:
                logits[torch.tensor(early, device=logits.device)[:, None], self._ends] = float("-inf")
        vocabulary = logits.shape[1]
        is_any = self._k >= vocabulary  # a call starts wherever it may
        best, ids = logits.topk(min(max(0 if is_any else self._k, TIES), vocabulary))
        if decoder.mode == "plain":
            tokens = likeliest(best, ids)
        else:
            tokens = likeliest(best.masked_fill(ids == start, float("-inf")), ids)
            flags = [row.state is State.WRITING and row.may_start for row in rows]
            if self._k and any(flags):
                starts = ids[:, 0] >= 0 if is_any else starts_call(logits[:, start], best, self._k)
                starts = starts if all(flags) else starts & self._tensor(flags)
                tokens = tokens.masked_fill(starts, start)
            self._choose_in_calls(tokens, logits, rows, fresh)
        chosen = tokens.tolist()
        self._chosen = (rows, tokens, chosen)
        return chosen

    def _choose_in_calls(
        self, tokens: torch.Tensor, logits: torch.Tensor, rows: Sequence[Row], fresh: Sequence[int]
    ) -> None:
        """Within a call only names are constrained, and if they are, no other call starts inside of it."""
        naming: dict[tuple[ToolNames, tuple[int, ...]], list[int]] = {}
        free: list[int] = []
        for n in fresh:
            row = rows[n]
            if row.state is State.NAMING:
                naming.setdefault((self.writer.names_of(row), tuple(row.call_body)), []).append(n)
            elif row.state is State.CALLING and not self.decoder.constrain_tool_name:
                free.append(n)
        for (names, body), numbers in naming.items():
            tokens[numbers] = names.best(body, logits[numbers])
        if free:
            tokens[free] = likeliest(*logits[free].topk(min(TIES, logits.shape[1])))

    def _tensor(self, flags: list[bool]) -> torch.Tensor:
        """The flags on the model's device; they seldom change."""
        if self._flags is None or self._flags[0] != flags:
            self._flags = flags, torch.tensor(flags, device=self._model.device)
        return self._flags[1]
