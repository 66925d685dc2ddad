"""Translation by NLLB-200 (NLLB Team, 2022; the paper's tool, section 3): a `Translator` for the translation tool."""

import functools
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from toolformer.errors import UserError
from toolformer.step import NOTHING, ModelName
from toolformer.tools.base import Need, Result, at_least_one
from toolformer.tools.nllb_languages import ENGLISH, NLLB_LANGUAGES
from toolformer.tools.translation import Translator

log = logging.getLogger(__name__)

ARCHITECTURES = ("m2m_100", "nllb-moe")
"""`model_type` of NLLB's dense models and of its mixture of experts."""

_at_work = threading.Lock()
"""Held while a model loads or translates: neither the tokenizer nor the model's memory serves several threads."""


@dataclass(frozen=True)
class NllbTranslator(Translator):
    """NLLB-200 as a `Translator`, loaded at the first text. Thread-safe."""

    VERSION = 1
    model: Annotated[str, ModelName()] = "facebook/nllb-200-distilled-600M"
    """A folder or hub name of NLLB-200's architecture."""
    dtype: str = "auto"
    device: Annotated[str, NOTHING] = "auto"
    beam_size: int = 1
    """1 is greedy."""
    max_input_tokens: int = 512
    """Longer texts have no result."""
    max_new_tokens: int = 256
    """A translation that has not ended by then is not a result."""
    batch_tokens: Annotated[int, NOTHING] = 8192
    """Source and target tokens of a batch at most, for all beams: it bounds the memory."""

    def __post_init__(self) -> None:
        known = ("auto", "float32", "bfloat16", "float16")
        if self.dtype not in known:
            raise UserError(f"translation: dtype is {self.dtype!r}; it must be one of {', '.join(known)}")
        sizes = ("beam_size", "max_input_tokens", "max_new_tokens", "batch_tokens")
        at_least_one("translation", **{name: getattr(self, name) for name in sizes})

    @classmethod
    def describe(cls, settings: Mapping[str, Any]) -> str:
        """See `Part`."""
        return Path(str(settings.get("model", cls.model))).name

    @classmethod
    def needs(cls, settings: Mapping[str, Any]) -> Sequence[Need]:
        """The model."""
        from toolformer.lm.loading import is_at_hand

        model = str(settings.get("model", cls.model))
        size = "2.5 GB on disk, 1.2 GB of memory in bfloat16" if model == cls.model else ""
        return [
            Need(
                f"the translator {model}",
                "" if is_at_hand(model) else "not fetched yet",
                size,
                is_fetched=True,
            )
        ]

    def check(self) -> None:
        """`UserError` for a model whose configuration is not NLLB's."""
        from toolformer.lm.loading import load_config

        architecture = load_config(self.model).model_type
        if architecture not in ARCHITECTURES:
            raise UserError(
                f"translation: {self.model} is not an NLLB model (its architecture is {architecture}); name an NLLB model"
            )

    def translate(self, texts: Sequence[str], languages: Sequence[str]) -> list[str | Result]:
        """See `Translator`. Reasons: unknown language, text too long, translation too long."""
        from toolformer.lm.batching import by_length

        answers: list[str | Result] = [Result(reason="unknown language")] * len(texts)
        with _at_work:
            model, tokenizer = load_nllb(self.model, self.dtype, self.device)
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
            numbers = list(sources)
            room = [self.beam_size * (len(ids) + self.max_new_tokens) for ids in sources.values()]
            for batch in by_length(room, [0] * len(room), self.batch_tokens):
                chosen = [numbers[index] for index in batch]
                written = self._generate(model, tokenizer, [sources[n] for n in chosen])
                for n, ids in zip(chosen, written, strict=True):
                    text = tokenizer.decode(ids, skip_special_tokens=True).strip()
                    has_ended = tokenizer.eos_token_id in ids
                    answers[n] = text if has_ended else Result(reason="translation too long")
        return answers

    def _generate(self, model: Any, tokenizer: Any, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """The most likely English for each source, without the language token."""
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
    """Whether a language's code is a token."""
    return tokenizer.convert_tokens_to_ids(code) not in (None, tokenizer.unk_token_id)


def encode(tokenizer: Any, text: str, code: str) -> list[int]:
    """The encoder's input: language, text, end. Special tokens in the text are read as text."""
    from toolformer.lm.loading import tokens_of

    ids: list[int] = tokens_of(tokenizer, text).input_ids
    return [tokenizer.convert_tokens_to_ids(code), *ids, tokenizer.eos_token_id]


@functools.lru_cache(maxsize=2)
def load_nllb(model: str, dtype: str, device: str) -> tuple[Any, Any]:
    """A loaded model and its tokenizer, cached by (model, dtype, device); `UserError` if it cannot be loaded."""
    from transformers import AutoModelForSeq2SeqLM, GenerationConfig

    from toolformer.lm.devices import choose_device, choose_dtype
    from toolformer.lm.loading import load_tokenizer, load_weights

    tokenizer = load_tokenizer(model)
    if not knows(tokenizer, ENGLISH):
        reason = f"the tokenizer of {model} has no language codes such as {ENGLISH}"
        raise UserError(f"translation: {reason}; put the model's tokenizer.json next to it")
    where = choose_device(device)
    loaded = load_weights(AutoModelForSeq2SeqLM, "translation", model, choose_dtype(dtype, where))
    # The model's settings (a length, beams, a sampling temperature) must not override ours.
    loaded.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        decoder_start_token_id=loaded.config.decoder_start_token_id,
    )
    log.info("translating with %s", model)
    return loaded.to(where).eval(), tokenizer
