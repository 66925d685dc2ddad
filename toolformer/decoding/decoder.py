"""Greedy decoding, except that a call starts when its start token is among the k most likely (paper, section 4.2).

A batch stays full: rows write side by side, one token per step, and the next prompt takes the place of a row that ends.
Calls are run together, tool by tool, when a sixteenth of the rows waits for a result; short results are read one token per
step beside the other rows. No text that the model wrote is tokenised again, and no token is read twice.
"""

import functools
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

import torch

from toolformer.calls import END
from toolformer.data import Document
from toolformer.decoding.batch import Batch, Queue, Row
from toolformer.decoding.call_state import PendingCall, Writer, execute
from toolformer.decoding.completion import Completion, Task
from toolformer.decoding.policy import ToolNames, starts_call
from toolformer.decoding.recording import Question
from toolformer.decoding.settings import BATCH_SIZE, Decoding, cache_key_fields
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.memory import BatchSize
from toolformer.tools.base import Tool

log = logging.getLogger(__name__)

T = TypeVar("T")

WAITING_SHARE = 0.0625
"""Share of a batch's rows that have to wait for a result before calls are run: a tool runs several at once faster."""
READ_BY_STEPS = 16
"""Tokens of a result that a row reads one by one, beside the others' steps; more are read at once."""


@dataclass(eq=False)
class Decoder(Decoding):
    """Continues prompts with a language model that may call tools."""

    language_model: LanguageModel
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """By key, as in the configuration."""
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

    def cache_key(self, question: Question) -> Any:
        """Everything besides the language model that decides the answer to a question."""
        others = ("language_model", "tools")
        settings = {key.name: getattr(self, key.name) for key in fields(self) if key.name not in others}
        return [cache_key_fields(settings, self.tools), asdict(question)]

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

    def complete(
        self,
        prompts: Sequence[str],
        documents: Sequence[Document] | None = None,
        *,
        on_batch: Callable[[list[int], list[Completion]], object] | None = None,
        **task: Any,
    ) -> list[Completion]:
        """Continues each prompt; the other arguments are the fields of `Task`.

        `on_batch` is called with the prompts' indices and completions as soon as they are finished. UserError if the
        context has no room for any prompt.
        """
        documents = documents or [Document(doc_id=str(n), text=prompt) for n, prompt in enumerate(prompts)]
        completions: dict[int, Completion] = {}

        def complete_rest() -> None:
            rest = [n for n in range(len(prompts)) if n not in completions]
            some = Task([prompts[n] for n in rest], [documents[n] for n in rest], **task)
            with closing(self.batches(some)) as batches:
                for batch in batches:
                    finished = {rest[n]: completion for n, completion in batch.items()}
                    completions.update(finished)
                    if on_batch and finished:
                        on_batch(list(finished), list(finished.values()))

        self.size.attempt(complete_rest)
        return [completions[n] for n in range(len(prompts))]

    @functools.cached_property
    def size(self) -> BatchSize:
        """Prompts that are completed together, as last chosen."""
        return BatchSize("decoding.batch_size", 1)

    @functools.cached_property
    def k_by_name(self) -> dict[str, float]:
        """The k of each tool, by its name in calls; empty where all have the same."""
        by_tool = self.by_tool or {}
        return {tool.name: by_tool.get(key, self.k) for key, tool in self.tools.items()} if by_tool else {}

    def batches(self, task: Task) -> Generator[dict[int, Completion], None, None]:
        """Completions by the number of their prompt, as soon as they are finished."""
        rows, writer = self.begin(task)
        model = self.language_model
        head = model.bos_ids + model.encode(task.head) if task.head else ()
        queue = self.queue(rows, task, head)
        for ended in self.continue_rows(queue, writer):
            yield {row.index: writer.completion(row) for row in ended}

    def begin(self, task: Task) -> tuple[list[Row], Writer]:
        """The prompts as rows, longest first, and their writer."""
        model = self.language_model
        encoded = [model.bos_ids + model.encode(prompt) for prompt in task.prompts]
        encoded = [ids or model.start_ids() for ids in encoded]
        cut = self._fit(encoded, task.max_new_tokens, task.strict)
        keys = task.keys(sorted(self.tools))
        enabled = self.mode == "tools" and self.k > 0 and bool(keys) and self.max_calls > 0
        rows = [
            Row(n, task.documents[n], encoded[n], encoded[n], may_call=enabled, prompt_cut=cut[n])
            for n in sorted(range(len(encoded)), key=lambda n: (-len(encoded[n]), n))
        ]
        names = None
        if enabled and self.constrain_tool_name:
            names = ToolNames(model, self.tools, keys, self.stand_in or {})
        limits = (self.max_calls, self.max_call_tokens, self.max_result_tokens, task.max_new_tokens)
        tools = {self.tools[key].name: self.tools[key] for key in keys}
        return rows, Writer(model, tools, *limits, task.stop, names)

    def queue(self, rows: Sequence[Row], task: Task, head: Sequence[int] = ()) -> Queue:
        """The rows as they wait for a place in the batch."""
        longest = max((len(row.unread) for row in rows), default=0) + task.max_new_tokens
        longest += self.max_calls * (self.max_call_tokens + self.max_result_tokens)
        return Queue(self.language_model, rows, self.choose_size(longest), head)

    def choose_size(self, tokens: int) -> int:
        """Number of prompts to decode together, each of at most `tokens` tokens with all that follows it."""
        if self.batch_size != "auto":
            return self.size.choose(self.batch_size)
        memory = self.language_model.gpu_memory()
        size = self.size.choose(memory.batch_rows(tokens) if memory else BATCH_SIZE)
        if memory:
            log.info("decoding.batch_size=%d, by the GPU's free memory", size)
        return size

    def room(self, max_new_tokens: int) -> int:
        """Tokens that a prompt may have, before its calls and its continuation; UserError if there is no room at all."""
        model = self.language_model
        # A call's limits do not count its start and end.
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
        """Cuts too long prompts on their left, in place; returns how many tokens each has lost."""
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
            for n in long:
                encoded[n] = model.cut_left(encoded[n], room)
        return cut

    @torch.inference_mode()
    def continue_rows(self, queue: Queue, writer: Writer) -> Iterator[list[Row]]:
        """Continues all rows of the queue; yields rows as they end."""
        batch = Batch(self.language_model)
        while batch.taken or queue:
            batch.refill(queue, self.size.value)
            # 1. Write the next token of every row.
            self._write_next(batch, writer)
            # 2. Run the calls that wait for a result; rows whose call failed write another token instead.
            while self._run_calls(batch, writer):
                self._write_next(batch, writer)
            if ended := batch.release():
                yield ended
            # 3. Read the tokens that were written.
            if batch.taken:
                batch.step()

    def _run_calls(self, batch: Batch, writer: Writer) -> bool:
        """Runs the calls that wait, if there are enough of them; returns whether it did."""
        waiting = [(n, row, row.pending) for n, row in batch.taken if row.pending]
        active = any(row.active for _, row in batch.taken)
        if not waiting or (active and len(waiting) < WAITING_SHARE * len(batch.rows)):
            return False
        results = execute(writer.tools, [PendingCall(call, row.document) for _, row, call in waiting])
        for (n, row, _), result in zip(waiting, results, strict=True):
            writer.resume(row, result)
            batch.go_back(n)
        if long := [n for n, row, _ in waiting if len(row.unread) > READ_BY_STEPS]:
            batch.read_at_once(long)
        return True

    def _write_next(self, batch: Batch, writer: Writer) -> None:
        """Chooses and writes the next token of every fresh row; where a call is rolled back, another one."""
        start, ends = self.language_model.start_id, sorted(self.language_model.end_ids)
        while fresh := batch.fresh:
            numbers, rows = [n for n, _ in fresh], [row for _, row in fresh]
            early = [n for n, row in fresh if row.before + len(row.written) < self.min_new_tokens]
            if early and ends:
                batch.logits[torch.tensor(early)[:, None], ends] = float("-inf")
            tokens = self._choose(batch.logits[numbers].float(), rows, writer.names)
            for n, row, token in zip(numbers, rows, tokens, strict=True):
                if token == start and row.may_call and row.call_start is None:
                    row.at_start = batch.logits[n].clone()
                writer.write(row, token)
                if self.k_by_name and not self._keeps_call(writer.new_name(row), row):
                    writer.suppress(row)
                batch.go_back(n)

    def _keeps_call(self, name: str | None, row: Row) -> bool:
        """Whether a row's open call goes on, once it is certain that it names this tool: that tool's k must be met, too."""
        k = self.k_by_name.get(name or "")
        if k is None:
            return True
        assert row.at_start is not None
        return bool(starts_call(row.at_start[None].float(), self.language_model.start_id, int(k)))

    def _choose(self, logits: torch.Tensor, rows: Sequence[Row], names: ToolNames | None) -> list[int]:
        """The next token of each row: the most likely, or the start token where a call starts.

        Logits [rows, vocabulary] are changed in place.
        """
        if self.mode == "plain":
            return logits.argmax(-1).tolist()
        start = self.language_model.start_id
        starting = [n for n, row in enumerate(rows) if row.may_start]
        if starting:
            starts = starts_call(logits[starting], start, int(max(self.k_by_name.values(), default=self.k)))
        # Within a call only names are constrained, and what follows them; without names nothing is.
        logits[[n for n, row in enumerate(rows) if row.call_start is None or names], start] = float("-inf")
        tokens = logits.argmax(-1)
        if starting:
            tokens[starting] = torch.where(starts, start, tokens[starting])
        naming: dict[tuple[int, ...], list[int]] = {}
        for n, row in enumerate(rows):
            if names and row.call_start is not None and names.is_open(row.call_body):
                naming.setdefault(tuple(row.call_body), []).append(n)
        for written, numbers in naming.items():
            assert names
            tokens[numbers] = names.best(written, logits[numbers])
        return tokens.tolist()
