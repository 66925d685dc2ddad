"""What a model is asked to continue, and what it wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from toolformer.calls import ApiCall, linearise
from toolformer.data import Document


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
    """Why a call that was started was rolled back."""
    tokens: int = 0
    """Tokens of the text and of the executed calls that the model wrote, without results and rolled back calls."""
    fault: bool = False
    """Whether it was rolled back because its tool broke down (`Result.fault`): asked again, it may be answered."""
    prompt_cut: int = 0
    """Tokens cut from the prompt's left because the context had no room for them."""
    results_begun: int = 0
    """Calls whose result the model began to write itself: text after the arrow, before the tool was run."""
    calls_in_calls: int = 0
    """Calls inside of which the model began another one."""

    @property
    def call(self) -> ApiCall | None:
        """The first executed call."""
        return self.calls[0] if self.calls else None

    @classmethod
    def from_dict(cls, answer: Mapping[str, Any]) -> Completion:
        """The inverse of `dataclasses.asdict`, through JSON too; other fields are ignored."""
        values = {field.name: answer[field.name] for field in fields(Completion)}
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
