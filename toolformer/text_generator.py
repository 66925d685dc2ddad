"""A language model for a tool to write with, loaded when its first text is asked for."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolformer.language_model import LanguageModel


@functools.lru_cache(maxsize=4)
def load(model: str, dtype: str, device: str) -> LanguageModel:
    """A loaded model; tools that ask with the same words share it."""
    from toolformer.language_model import LanguageModel

    return LanguageModel.from_pretrained(model, dtype, device)


@dataclass(frozen=True)
class ModelGenerator:
    """Greedy continuations of a causal LM (a `TextGenerator`)."""

    model: str = "smollm2"
    dtype: str = "auto"
    device: str = "auto"

    def __call__(self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()) -> list[str]:
        return load(self.model, self.dtype, self.device).generate(prompts, max_new_tokens, stop)
