"""The few-shot prompting baseline: an untrained model that sees calls in its context and decodes as Toolformer does."""

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from toolformer.decoding.completion import Request
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.row import Row

log = logging.getLogger(__name__)

SEPARATOR = "\n\n"
"""Between two examples, and before the prompt."""


@dataclass(eq=False)
class PromptedDecoder(Decoder):
    """A `Decoder` that puts examples of the tools that may be called before every prompt, one of each tool in turn.

    Where the context has no room for all, examples are left out, the first ones first; a prompt itself is cut only when
    none are left.
    """

    examples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By key of the tool."""

    @property
    def forbids_start_token(self) -> bool:
        """False: the model is used as it is."""
        return False

    def begin(self, requests: Sequence[Request], strict: bool = False) -> list[Row]:
        """See `Decoder.begin`."""
        shown = []
        fewer = 0
        for request in requests:
            turns = itertools.zip_longest(*(self.examples[key] for key in request.keys(self.examples)))
            lines = [line for turn in turns for line in turn if line is not None]
            kept = self._fitting(lines, request.prompt, self.room(request.limit))
            fewer += len(kept) < len(lines)
            shown.append(replace(request, prompt=SEPARATOR.join([*kept, request.prompt])))
        if fewer:
            log.warning("decoding: %d of %d prompts leave no room for all their examples", fewer, len(shown))
        return super().begin(shown, strict)

    def _fitting(self, lines: Sequence[str], prompt: str, room: int) -> Sequence[str]:
        """The last of the examples, as many as fit into `room` tokens with the prompt."""
        model = self.language_model
        while lines and len(model.bos_ids) + len(model.encode(SEPARATOR.join([*lines, prompt]))) > room:
            lines = lines[1:]
        return lines
