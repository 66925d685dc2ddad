"""Fusion in decoder (Izacard and Grave, 2021): a T5 reads many passages, each alone, and writes one answer from all.

Knows neither retrieval nor what its texts say; Atlas is what gives it them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers.modeling_outputs import BaseModelOutput

from toolformer.batching import by_length
from toolformer.seq2seq import greedy

QUESTIONS = 4
"""Questions whose passages are in memory together: forty passages of 512 tokens are 84 MB of Atlas-large's states each."""


class FusionInDecoder:
    """A T5 whose encoder reads each text alone and whose decoder attends to the states of all of them."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer

    @torch.inference_mode()
    def read(self, texts: Sequence[Sequence[str]], max_tokens: int, max_new_tokens: int) -> list[str]:
        """The greedy answer to each question; `texts[n]` has the question with one passage after the other.

        Args:
            max_tokens: of a text that are read, its end cut off.
        """
        answers: list[str] = []
        for start in range(0, len(texts), QUESTIONS):
            group = texts[start : start + QUESTIONS]
            states = self.encode([text for question in group for text in question], max_tokens)
            fused: list[torch.Tensor] = []
            for question in group:
                fused.append(torch.cat(states[: len(question)]))
                states = states[len(question) :]
            answers += self.tokenizer.batch_decode(
                self.decode(fused, max_new_tokens), skip_special_tokens=True
            )
        return answers

    def encode(self, texts: Sequence[str], max_tokens: int) -> list[torch.Tensor]:
        """The encoder's states of each text [its tokens, width], without padding."""
        encoded = [
            self.tokenizer(text, truncation=True, max_length=max_tokens, verbose=False).input_ids
            for text in texts
        ]
        states = [torch.empty(0)] * len(texts)
        for batch in by_length([len(ids) for ids in encoded], [1] * len(encoded)):
            padded = self.tokenizer.pad(
                {"input_ids": [encoded[n] for n in batch]}, padding_side="right", return_tensors="pt"
            ).to(self.model.device)
            read = self.model.get_encoder()(
                input_ids=padded["input_ids"], attention_mask=padded["attention_mask"]
            ).last_hidden_state
            for n, row in zip(batch, read, strict=True):
                states[n] = row[: len(encoded[n])]
        return states

    def decode(self, fused: Sequence[torch.Tensor], max_new_tokens: int) -> torch.Tensor:
        """Token ids [batch, length] written from the states of each question [tokens of all its texts, width]."""
        states = pad_sequence(list(fused), batch_first=True)
        lengths = torch.tensor([len(one) for one in fused])
        # T5's attention to the encoder knows no positions: the order of the passages decides nothing.
        seen = (torch.arange(states.shape[1])[None] < lengths[:, None]).long()
        return greedy(
            self.model,
            max_new_tokens,
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=seen.to(states.device),
        )
