"""What reading tokens needs to know of a model. `LanguageModel` is one; rows and the probe know no more of it."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

import torch

from toolformer.lm.store import StateShape


class Network(Protocol):
    """A causal model that reads tokens."""

    name: str
    model: Any
    """Transformers' model."""
    device: torch.device
    dtype: torch.dtype
    batch_tokens: int
    """Maximum number of tokens in a forward pass."""
    graphs: bool
    """Whether a GPU runs steps of single tokens as CUDA graphs."""
    is_spread: bool
    """Whether layers are on several GPUs."""

    @property
    def state_shapes(self) -> list[tuple[StateShape, StateShape]]:
        """The shapes of each layer's keys and values."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, nothing added."""

    def head_states(self, heads: Collection[tuple[int, ...]]) -> dict[tuple[int, ...], list[torch.Tensor]]:
        """The keys and values of beginnings that many rows share, as `Store.take` gives them."""

    def logits(self, keep: int | torch.Tensor, **inputs: Any) -> torch.Tensor:
        """The logits of a forward pass at the positions to `keep`, as Transformers has it (`logits_to_keep`)."""

    def logits_after(
        self, sequences: Sequence[Sequence[int]], indices: Sequence[Sequence[int]]
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Batches: the numbers of their sequences, and the float32 logits [tokens, vocabulary] after these tokens."""
