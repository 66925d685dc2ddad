"""A request to continue a prompt, and the completion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from toolformer.calls import ApiCall, linearise
from toolformer.data import Document


@dataclass(frozen=True)
class Completion:
    """A model's continuation of one prompt."""

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
    results_cut: int = 0
    """Executed calls whose result had more tokens than the tool's limit."""
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
class Request:
    """A prompt to continue."""

    prompt: str
    document: Document
    """Context that tools may read: its date, its article."""
    limit: int
    """Tokens outside of calls at most."""
    stop: tuple[str, ...] = ()
    """Texts outside of calls that end the continuation."""
    tools: frozenset[str] | None = None
    """The tools that may be called, by key; None for all."""

    def keys(self, tools: Iterable[str]) -> list[str]:
        """Those of the tools that may be called, in their order."""
        return [key for key in tools if self.tools is None or key in self.tools]
