"""An encoder-decoder model (T5, BART, ...) that a tool writes with: prompts in, greedy text out.

Knows nothing of calls or tools; the language model M of the method is never one of these.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM
from transformers import logging as transformers_logging

from toolformer.batching import by_length
from toolformer.errors import UserError
from toolformer.loading import (
    EMBEDDED_MODELS,
    choose_device,
    choose_dtype,
    load_tokenizer,
    locate,
)

DEFAULT_LENGTH = 512
"""Tokens of a prompt that are read where neither model nor tokenizer says how many may be."""
_ENDLESS = 10**6
"""From here on, a tokenizer's length says that it knows none."""


@functools.lru_cache(maxsize=16)
def is_encoder_decoder(name_or_path: str) -> bool:
    """Whether a model is one of these and no causal one, by its configuration.

    Raises:
        UserError: it is no model, or cannot be reached.
    """
    if name_or_path in EMBEDDED_MODELS:
        return False
    try:
        config = AutoConfig.from_pretrained(locate(name_or_path), trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise _no_model(name_or_path, error) from error
    return bool(getattr(config, "is_encoder_decoder", False))


class Seq2SeqModel:
    """An encoder-decoder model with its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        # The question stands at the end of a prompt: what does not fit is left out at its beginning.
        tokenizer.truncation_side = "left"
        sizes = (tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None))
        self.longest: int = min(
            [size for size in sizes if isinstance(size, int) and 0 < size < _ENDLESS], default=DEFAULT_LENGTH
        )

    @classmethod
    def from_pretrained(cls, name_or_path: str, dtype: str = "auto", device: str = "auto") -> Seq2SeqModel:
        """Loads a folder or a hub model: safetensors only, and no code of the model's own.

        Raises:
            UserError: it is no encoder-decoder model, or cannot be reached.
        """
        place = choose_device(device)
        tokenizer = load_tokenizer(name_or_path)
        transformers_logging.disable_progress_bar()
        try:
            model: Any = AutoModelForSeq2SeqLM.from_pretrained(
                locate(name_or_path),
                dtype=choose_dtype(dtype, place),
                trust_remote_code=False,
                use_safetensors=True,
            )
        except (OSError, ValueError, KeyError) as error:
            raise _no_model(name_or_path, error) from error
        return cls(model.to(place), tokenizer)

    @torch.inference_mode()
    def generate(self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()) -> list[str]:
        """Greedy texts, cut before the first stop text; a prompt's answer does not depend on its batch."""
        texts = [""] * len(prompts)
        encoded = [
            self.tokenizer(prompt, truncation=True, max_length=self.longest, verbose=False).input_ids
            for prompt in prompts
        ]
        for batch in by_length([len(ids) for ids in encoded], [1] * len(encoded)):
            padded = self.tokenizer.pad(
                {"input_ids": [encoded[n] for n in batch]}, padding_side="right", return_tensors="pt"
            ).to(self.model.device)
            written = greedy(
                self.model,
                max_new_tokens,
                input_ids=padded["input_ids"],
                attention_mask=padded["attention_mask"],
            )
            for n, text in zip(
                batch, self.tokenizer.batch_decode(written, skip_special_tokens=True), strict=True
            ):
                texts[n] = text[: min([text.find(end) for end in stop if end in text], default=len(text))]
        return texts


def greedy(model: Any, max_new_tokens: int, **inputs: Any) -> torch.Tensor:
    """Token ids [batch, length] by plain greedy decoding, whatever the model's own generation settings are."""
    written: torch.Tensor = model.generate(
        **inputs,
        max_new_tokens=max_new_tokens,
        min_length=0,
        do_sample=False,
        num_beams=1,
        no_repeat_ngram_size=0,
        repetition_penalty=1.0,
    )
    return written


def _no_model(name: str, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return UserError(f"model: {name} cannot be loaded: {reason}")
