"""A language model for a tool to write with, causal or encoder-decoder, loaded when its first text is requested."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from toolformer.lm import memory
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.memory import BatchSize
from toolformer.lm.seq2seq import Seq2SeqModel, is_encoder_decoder
from toolformer.step import NOTHING, ModelName


@functools.lru_cache(maxsize=4)
def load_model(model: str, dtype: str, device: str) -> LanguageModel:
    """A loaded causal model, cached by (model, dtype, device)."""
    return LanguageModel.from_pretrained(model, dtype, device)


@functools.lru_cache(maxsize=4)
def load_seq2seq(model: str, dtype: str, device: str) -> Seq2SeqModel:
    """A loaded encoder-decoder model, cached likewise."""
    return Seq2SeqModel(model, dtype, device)


@functools.lru_cache
def _batch_tokens(model: str, tokens: int) -> BatchSize:
    """Tokens of a tool's model's forward pass, as they are halved where they fill a GPU's memory."""
    return BatchSize("generate.batch_tokens", tokens, f" in {model}, a tool's model")


@dataclass(frozen=True)
class ModelGenerator:
    """Greedy texts of any model of the hub or in a folder (a `TextGenerator`)."""

    VERSION = 1
    """Raise it in the commit that changes texts."""
    is_remote = False
    """It works in this process."""
    model: Annotated[str, ModelName()] = "smollm2"
    dtype: str = "auto"
    device: Annotated[str, NOTHING] = "auto"
    batch_tokens: Annotated[int | None, NOTHING] = None
    """Tokens of a forward pass; null: by the device. Halved once if the GPU's memory is full."""

    @classmethod
    def describe(cls, settings: Mapping[str, Any]) -> str:
        """Name of the model that writes, by these arguments of the class."""
        return Path(str(settings.get("model", cls.model))).name

    @classmethod
    def needs(cls, settings: Mapping[str, Any]) -> Sequence[Any]:
        """Needs: the model, which is fetched or refused when the tool is made."""
        return ()

    def check(self) -> None:
        """UserError if there is no such model; weights are not loaded."""
        is_encoder_decoder(self.model)

    def __call__(self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()) -> list[str]:
        loader = load_seq2seq if is_encoder_decoder(self.model) else load_model
        model = loader(self.model, self.dtype, self.device)
        # Its own size: the model that asks may be the same one.
        size = _batch_tokens(self.model, self.batch_tokens or memory.batch_tokens(model.device))
        return size.attempt(lambda: model.generate(prompts, max_new_tokens, stop, size.value))
