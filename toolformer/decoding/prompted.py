"""The few-shot prompting baseline: an untrained model that sees calls in its context and decodes as Toolformer does."""

import itertools
import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from toolformer.decoding.completion import Completion, Task
from toolformer.decoding.decoder import Decoder

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

    def batches(self, task: Task) -> Generator[dict[int, Completion], None, None]:
        """See `Decoder.batches`."""
        lines = self._demonstrations(task)
        room = self.room(task.max_new_tokens)
        kept = [self._fitting(lines, prompt, room) for prompt in task.prompts]
        if fewer := sum(len(examples) < len(lines) for examples in kept):
            log.warning(
                "decoding: %d of %d prompts leave no room for all %d examples", fewer, len(kept), len(lines)
            )
        prompts = [
            SEPARATOR.join([*examples, prompt]) for examples, prompt in zip(kept, task.prompts, strict=True)
        ]
        return super().batches(replace(task, prompts=prompts, head=SEPARATOR.join(lines)))

    def _demonstrations(self, task: Task) -> list[str]:
        turns = itertools.zip_longest(*(self.examples[key] for key in task.keys(self.examples)))
        return [line for turn in turns for line in turn if line is not None]

    def _fitting(self, lines: Sequence[str], prompt: str, room: int) -> Sequence[str]:
        """The last of the examples, as many as fit into `room` tokens with the prompt."""
        model = self.language_model
        while lines and len(model.bos_ids) + len(model.encode(SEPARATOR.join([*lines, prompt]))) > room:
            lines = lines[1:]
        return lines
