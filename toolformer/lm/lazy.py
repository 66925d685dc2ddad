"""A language model that is loaded when it is first needed: whoever only looks up answers needs none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from toolformer.lm.language_model import LanguageModel
from toolformer.lm.placement import Placement


class LazyLanguageModel(LanguageModel):
    """Its name, its device and its dtype are known at once; anything else of it, or `load`, loads it.

    Args:
        settings: attributes that it gets when it is loaded.
    """

    def __init__(self, placement: Placement, **settings: Any) -> None:
        self._placement, self.name = placement, placement.name
        self.device, self.dtype = torch.device(placement.device), placement.dtype
        self._tool_names: set[str] = set()
        self._settings: dict[str, Any] | None = settings
        """None once it is loaded."""

    def load(self) -> None:
        """Reads the weights, unless that is done. UserError as of `from_pretrained`, and for a tool's name that is lost."""
        if self._settings is None:
            return
        before, settings = vars(self).copy(), self._settings
        try:
            self._settings = None
            super().__init__(*self._placement.load(), self.name)
            vars(self).update(settings)
            super().check_tool_names(self._tool_names)
        except BaseException:  # it is not loaded: the next use tries again and says the same
            vars(self).clear()
            vars(self).update(before)
            raise

    def check_tool_names(self, names: Iterable[str]) -> None:
        """As of any model, but not before it is loaded."""
        if self._settings is None:
            super().check_tool_names(names)
        else:
            self._tool_names |= {*names}

    def __getattr__(self, name: str) -> Any:
        # Asked for what is not there, such as the tokenizer before it is loaded.
        if vars(self).get("_settings") is None:
            raise AttributeError(f"a language model has no {name}")
        self.load()
        return getattr(self, name)
