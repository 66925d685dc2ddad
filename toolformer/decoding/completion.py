"""What a model writes after a prompt, and what all that complete prompts have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from toolformer.calls import ApiCall, linearise
from toolformer.data import Document
from toolformer.lm.memory import BatchSize


@dataclass(frozen=True)
class Completion:
    """What a model wrote after one prompt."""

    text: str
    """With its calls: " [Calculator(2 + 3) -> 5] 5."."""
    plain: str
    """Without them: what is scored."""
    calls: tuple[ApiCall, ...] = ()
    """The executed calls with their results, in the text's order."""
    failed: str | None = None
    """Why a call that was started has been taken back."""
    tokens: int | None = 0
    """Tokens of the text and of the executed calls that the model wrote, without results and calls taken back; None where
    they were not counted."""
    fault: bool = False
    """Whether it was taken back because its tool broke down (`Result.fault`): asked again, it may be answered."""
    prompt_cut: int = 0
    """Tokens cut from the prompt's left because the context had no room for them."""
    results_begun: int | None = 0
    """Calls whose result the model began to write itself: text after the arrow, before the tool was run. None where this was
    not counted."""
    calls_in_calls: int | None = 0
    """Calls inside of which the model began another one; None where this was not counted."""

    @property
    def call(self) -> ApiCall | None:
        """The first executed call."""
        return self.calls[0] if self.calls else None

    @classmethod
    def from_dict(cls, answer: Mapping[str, Any]) -> Completion:
        """The inverse of `dataclasses.asdict`, through JSON too; other fields are ignored."""
        counted: dict[str, Any] = {"results_begun": None, "calls_in_calls": None}  # older answers lack them
        values = {field.name: {**counted, **answer}[field.name] for field in fields(Completion)}
        return Completion(**{**values, "calls": tuple(ApiCall(**call) for call in answer["calls"])})

    @property
    def through_calls(self) -> str:
        """The text up to the end of its last executed call; empty without one."""
        end = 0
        for written in map(linearise, self.calls):
            end = self.text.index(written, end) + len(written)
        return self.text[:end]


@dataclass(frozen=True)
class Task:
    """Prompts to continue, each by at most `max_new_tokens` tokens outside of calls."""

    prompts: Sequence[str]
    documents: Sequence[Document]
    """What tools may know of each prompt (its date)."""
    max_new_tokens: int
    stop: Sequence[str] = ()
    """Texts outside of calls that end a continuation."""
    allowed: Collection[str] | None = None
    """The tools that may be called, by key; None for all."""
    strict: bool = False
    """Whether a prompt that does not fit is a UserError; otherwise it loses its beginning, with a line in the log."""
    head: str = ""
    """A text that most prompts begin with: the model reads it once."""

    def keys(self, tools: Iterable[str]) -> list[str]:
        """Those of the tools that may be called."""
        return [key for key in tools if self.allowed is None or key in self.allowed]


C = TypeVar("C", bound=Completion)


class Completer(Generic[C]):
    """Completes prompts, in batches."""

    def complete(
        self,
        prompts: Sequence[str],
        documents: Sequence[Document] | None = None,
        *,
        on_batch: Callable[[list[int], list[C]], object] | None = None,
        **task: Any,
    ) -> list[C]:
        """Continues each prompt; the other arguments are the fields of `Task`.

        `on_batch` is called with the prompts' indices and completions as soon as they are finished. UserError if the
        context has no room for any prompt.
        """
        documents = documents or [Document(doc_id=str(n), text=prompt) for n, prompt in enumerate(prompts)]
        completions: dict[int, C] = {}

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

    def batches(self, task: Task) -> Generator[dict[int, C], None, None]:
        """Completions by the number of their prompt, as soon as they are finished."""
        raise NotImplementedError
