"""The baseline that asks instead of training: the untrained model is shown calls in its context, and decodes as Toolformer."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolformer.data import Document
from toolformer.decoding.call_state import Completion
from toolformer.decoding.decoder import Decoder

log = logging.getLogger(__name__)

PARTED = "\n\n"
"""Between two examples, and before the prompt."""


@dataclass(eq=False)
class PromptedDecoder(Decoder):
    """A `Decoder` that puts examples before every prompt, those of the tools that it may call.

    They take turns, a sentence of each tool. The tokens that prompts share are read once. Where the context has no room for
    all, examples are left out one by one, the first ones first; a prompt itself loses its beginning only when it
    has none left.
    """

    examples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By key of the tool."""

    @property
    def taught(self) -> bool:
        """False: the model is used as it is."""
        return False

    def complete(
        self,
        prompts: Sequence[str],
        documents: Sequence[Document] | None = None,
        *,
        max_new_tokens: int,
        allowed: Collection[str] | None = None,
        **options: Any,
    ) -> list[Completion]:
        """See `Decoder.complete`."""
        if documents is None:
            documents = [Document(doc_id=str(n), text=prompt) for n, prompt in enumerate(prompts)]
        shown = self._shown(allowed)
        room = self.room(max_new_tokens)
        kept = [self._fitting(shown, prompt, room) for prompt in prompts]
        if fewer := sum(len(own) < len(shown) for own in kept):
            log.warning(
                "decoding: %d of %d prompts leave no room for all %d examples", fewer, len(kept), len(shown)
            )
        asked = [PARTED.join([*own, prompt]) for own, prompt in zip(kept, prompts, strict=True)]
        options |= {"allowed": allowed, "head": PARTED.join(shown)}
        return super().complete(asked, documents, max_new_tokens=max_new_tokens, **options)

    def _shown(self, allowed: Collection[str] | None) -> list[str]:
        of_tools = [lines for key, lines in self.examples.items() if allowed is None or key in allowed]
        longest = max(map(len, of_tools), default=0)
        return [lines[n] for n in range(longest) for lines in of_tools if n < len(lines)]

    def _fitting(self, shown: Sequence[str], prompt: str, room: int) -> Sequence[str]:
        """The last of the examples, as many as fit into `room` tokens with the prompt."""
        model = self.language_model
        own = len(model.bos_ids)
        while shown and own + len(model.encode(PARTED.join([*shown, prompt]))) > room:
            shown = shown[1:]
        return shown
