"""Translation by NLLB-200 (NLLB Team, 2022; the paper's tool, section 3): a `Translator` for the translation tool."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from toolformer.errors import UserError
from toolformer.tools.base import Result, at_least_one
from toolformer.tools.nllb_languages import ENGLISH, NLLB_LANGUAGES

log = logging.getLogger(__name__)

ARCHITECTURES = ("m2m_100", "nllb-moe")
"""`model_type` of NLLB's dense models and of its mixture of experts."""

_at_work = threading.Lock()
"""Held while a model is loaded or works: neither a tokenizer nor a model's memory is made for several threads."""


class NllbTranslator:
    """NLLB-200 as a `Translator`, loaded at its first text; one object may be used from several threads."""

    def __init__(
        self,
        model: str = "facebook/nllb-200-distilled-600M",
        dtype: str = "auto",
        device: str = "auto",
        beam_size: int = 1,
        max_input_tokens: int = 512,
        max_new_tokens: int = 256,
        batch_tokens: int = 8192,
    ) -> None:
        """
        Args:
            model: a folder or hub name of NLLB-200's architecture.
            dtype, device: see `lm.loading`.
            beam_size: 1 is greedy.
            max_input_tokens: longer texts have no result.
            max_new_tokens: translations that have not ended by then are none.
            batch_tokens: source and target tokens of a batch at most, all beams counted: what bounds the memory.
        """
        known = ("auto", "float32", "bfloat16", "float16")
        if dtype not in known:
            raise UserError(f"translation: dtype is {dtype!r}; it must be one of {', '.join(known)}")
        at_least_one(
            "translation",
            beam_size=beam_size,
            max_input_tokens=max_input_tokens,
            max_new_tokens=max_new_tokens,
            batch_tokens=batch_tokens,
        )
        self.model = model
        self.load = functools.partial(load, model, dtype, device)
        self.beam_size = beam_size
        self.max_input_tokens = max_input_tokens
        self.max_new_tokens = max_new_tokens
        self.batch_tokens = batch_tokens

    def check(self) -> None:
        """Whether the model is there and is one of NLLB's, without its weights (`UserError`)."""
        check_architecture(self.model)

    def translate(self, texts: Sequence[str], languages: Sequence[str]) -> list[str | Result]:
        """See `Translator`. Reasons: unknown language, text too long, translation too long."""
        with _at_work:
            model, tokenizer = self.load()
            return self._translate(model, tokenizer, texts, languages)

    def _translate(
        self, model: Any, tokenizer: Any, texts: Sequence[str], languages: Sequence[str]
    ) -> list[str | Result]:
        answers: list[str | Result] = [Result(reason="unknown language")] * len(texts)
        sources: dict[int, list[int]] = {}
        for n, (text, language) in enumerate(zip(texts, languages, strict=True)):
            code = NLLB_LANGUAGES.get(language)
            if code is None or not knows(tokenizer, code):
                continue
            ids = encode(tokenizer, text, code)
            if len(ids) > self.max_input_tokens:
                answers[n] = Result(reason="text too long")
            else:
                sources[n] = ids
        for batch in self._batches(sources):
            for n, ids in zip(
                batch, self._generate(model, tokenizer, [sources[n] for n in batch]), strict=True
            ):
                has_ended = tokenizer.eos_token_id in ids
                text = tokenizer.decode(ids, skip_special_tokens=True).strip()
                answers[n] = text if has_ended else Result(reason="translation too long")
        return answers

    def _batches(self, sources: dict[int, list[int]]) -> Iterator[list[int]]:
        """Texts of similar length, longest first: the first of a batch decides what each of it may take."""
        order = sorted(sources, key=lambda n: (-len(sources[n]), n))
        while order:
            room = self.beam_size * (len(sources[order[0]]) + self.max_new_tokens)
            size = max(1, self.batch_tokens // room)
            yield order[:size]
            order = order[size:]

    def _generate(self, model: Any, tokenizer: Any, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """The most likely English for each source, without the language's own token."""
        import torch

        padded = tokenizer.pad({"input_ids": sources}, padding_side="right", return_tensors="pt")
        with torch.inference_mode():
            written = model.generate(
                **padded.to(model.device),
                forced_bos_token_id=tokenizer.convert_tokens_to_ids(ENGLISH),
                num_beams=self.beam_size,
                do_sample=False,
                max_new_tokens=self.max_new_tokens + 1,  # the language's token is counted
            )
        rows: list[list[int]] = written[:, 2:].tolist()
        return rows


def knows(tokenizer: Any, code: str) -> bool:
    """Whether a language's code is a token of its own."""
    return tokenizer.convert_tokens_to_ids(code) not in (None, tokenizer.unk_token_id)


def encode(tokenizer: Any, text: str, code: str) -> list[int]:
    """The encoder's input: the language, the text, the end. What looks like a special token in the text is text."""
    from toolformer.lm.loading import tokens_of

    ids: list[int] = tokens_of(tokenizer, text).input_ids
    return [tokenizer.convert_tokens_to_ids(code), *ids, tokenizer.eos_token_id]


def check_architecture(model: str) -> None:
    """Refuses (`UserError`) a model, a folder or on the hub, that is not NLLB's by its configuration."""
    from toolformer.lm.loading import load_config

    architecture = load_config(model).model_type
    if architecture not in ARCHITECTURES:
        raise UserError(
            f"translation: {model} is no NLLB model (its architecture is {architecture}); name one"
        )


@functools.lru_cache(maxsize=2)
def load(model: str, dtype: str, device: str) -> tuple[Any, Any]:
    """A loaded model and its tokenizer, which tools with the same arguments share; `UserError` if it is none or cannot be reached."""
    from transformers import AutoModelForSeq2SeqLM, GenerationConfig

    from toolformer.lm.loading import choose_device, choose_dtype, load_tokenizer, load_weights

    check_architecture(model)
    tokenizer = load_tokenizer(model)
    if not knows(tokenizer, ENGLISH):
        raise UserError(
            f"translation: the tokenizer of {model} has no language codes such as {ENGLISH}: one that is made from a "
            "raw SentencePiece file lacks them; put the model's own tokenizer.json beside it"
        )
    place = choose_device(device)
    # The published models are pickled.
    loaded = load_weights(
        AutoModelForSeq2SeqLM, "translation", model, choose_dtype(dtype, place), pickled=True
    )
    # A model's own settings (a length, beams, a sampling temperature) would decide in place of ours.
    loaded.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        decoder_start_token_id=loaded.config.decoder_start_token_id,
    )
    log.info("translating by %s", model)
    return loaded.to(place).eval(), tokenizer
