"""An encoder-decoder model (T5, BART, ...) for a tool to write with: prompts in, greedy text out."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM

from toolformer.lm import devices, loading, memory
from toolformer.lm.batching import by_length
from toolformer.lm.stop import cut_at

DEFAULT_LENGTH = 512
"""Maximum prompt tokens if neither model nor tokenizer states a limit."""
_ENDLESS = 10**6
"""A tokenizer's maximum length of this or more means that it has none."""


@functools.lru_cache(maxsize=16)
def is_encoder_decoder(name_or_path: str) -> bool:
    """Whether a model is an encoder-decoder, by its configuration. UserError if it is not a model, or cannot be reached."""
    if name_or_path in loading.EMBEDDED_MODELS:
        return False
    return bool(getattr(loading.load_config(name_or_path), "is_encoder_decoder", False))


class Seq2SeqModel:
    """An encoder-decoder model of a folder or the hub, with its tokenizer. UserError if it is not one."""

    def __init__(self, name_or_path: str, dtype: str = "auto", device: str = "auto") -> None:
        device = devices.choose_device(device)
        self.tokenizer = loading.load_tokenizer(name_or_path)
        model = loading.load_weights(
            AutoModelForSeq2SeqLM, "sequence-to-sequence", name_or_path, devices.choose_dtype(dtype, device)
        )
        self.model = model.to(device).eval()
        self.device: torch.device = self.model.device
        # The question is at the end of a prompt: one that is too long is cut at its beginning.
        self.tokenizer.truncation_side = "left"
        sizes = (self.tokenizer.model_max_length, loading.context_length(model.config))
        self.longest: int = min([size for size in sizes if size and size < _ENDLESS], default=DEFAULT_LENGTH)

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[str],
        max_new_tokens: int,
        stop: Sequence[str] = (),
        batch_tokens: int | None = None,
    ) -> list[str]:
        """Greedy texts, cut before the first stop text; a prompt's answer does not depend on its batch.

        `batch_tokens` bounds the prompts' tokens in a forward pass; None: by the device.
        """
        texts = [""] * len(prompts)
        for batch, padded in padded_batches(self.model, self.tokenizer, prompts, self.longest, batch_tokens):
            written = greedy(self.model, max_new_tokens, **padded)
            decoded = self.tokenizer.batch_decode(written, skip_special_tokens=True)
            for n, text in zip(batch, decoded, strict=True):
                texts[n] = cut_at(text, stop)
        return texts


def padded_batches(
    model: Any, tokenizer: Any, texts: Sequence[str], max_tokens: int, batch_tokens: int | None = None
) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
    """Texts of similar length together, cut to `max_tokens`: their indices, and the inputs of the model's encoder."""
    encoded = [
        tokenizer(text, truncation=True, max_length=max_tokens, verbose=False).input_ids for text in texts
    ]
    budget = batch_tokens or memory.batch_tokens(model.device)
    for batch in by_length([len(ids) for ids in encoded], [1] * len(encoded), budget):
        rows = {"input_ids": [encoded[n] for n in batch]}
        padded = tokenizer.pad(rows, padding_side="right", return_tensors="pt").to(model.device)
        yield batch, {name: padded[name] for name in ("input_ids", "attention_mask")}


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
