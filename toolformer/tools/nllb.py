"""Translation by NLLB-200 (NLLB Team, 2022; the paper's tool, section 3), on CTranslate2 or on Transformers.

A `Translator` for the translation tool: texts and fastText's languages in, English out. Knows no documents and no
language identification. The model is loaded at the first text; one object may be used from several threads.
"""

from __future__ import annotations

import functools
import logging
import pickle
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from toolformer.errors import UserError
from toolformer.tools import nllb_ctranslate2
from toolformer.tools.base import Result, at_least_one
from toolformer.tools.nllb_languages import ENGLISH, NLLB_LANGUAGES

log = logging.getLogger(__name__)

BACKENDS = ("auto", "ctranslate2", "transformers")
ARCHITECTURES = ("m2m_100", "nllb-moe")
"""`model_type` of NLLB's dense models and of its mixture of experts; CTranslate2 knows the dense ones."""

_loading = threading.Lock()


class Generator(Protocol):
    """An encoder-decoder model on one of the backends."""

    def generate(
        self, sources: Sequence[Sequence[int]], target: int, beam_size: int, max_new_tokens: int
    ) -> list[list[int]]:
        """The likeliest continuations of `target`, without it; one that ended has the end token last."""
        ...


@dataclass(frozen=True)
class Loaded:
    """A model with its tokenizer, on one backend."""

    generator: Generator
    tokenizer: Any
    lock: threading.Lock
    """Held while it works: neither the tokenizer nor a model's memory is made for several threads."""


class NllbTranslator:
    """NLLB-200 as a `Translator`."""

    def __init__(
        self,
        model: str = "facebook/nllb-200-distilled-600M",
        backend: str = "auto",
        quantization: str = "int8",
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
            backend: ctranslate2, transformers, or auto: CTranslate2 where it is installed.
            quantization: CTranslate2's weights and sums (int8, int8_float16, float16, float32, ...).
            dtype: Transformers' weights: auto (bfloat16 where native, else float32), float32, bfloat16 or float16.
            device: auto (CUDA if there is a GPU), cpu, cuda, cuda:1, ...
            beam_size: 1 is greedy.
            max_input_tokens: longer texts have no result.
            max_new_tokens: translations that have not ended by then are none.
            batch_tokens: source and target tokens of a batch at most, all beams counted: what bounds the memory.

        Raises:
            UserError: a value that nothing can be done with.
        """
        for name, value, known in (
            ("backend", backend, BACKENDS),
            ("quantization", quantization, nllb_ctranslate2.QUANTIZATIONS),
            ("dtype", dtype, ("auto", "float32", "bfloat16", "float16")),
        ):
            if value not in known:
                raise UserError(f"translation: {name} is {value!r}; it must be one of {', '.join(known)}")
        at_least_one(
            "translation",
            beam_size=beam_size,
            max_input_tokens=max_input_tokens,
            max_new_tokens=max_new_tokens,
            batch_tokens=batch_tokens,
        )
        if backend == "ctranslate2" and not nllb_ctranslate2.installed():
            raise UserError(
                f"translation: backend is ctranslate2, which is not installed: {nllb_ctranslate2.INSTALL}"
            )
        self.model = model
        self.load = functools.partial(load, model, backend, quantization, dtype, device)
        self.beam_size = beam_size
        self.max_input_tokens = max_input_tokens
        self.max_new_tokens = max_new_tokens
        self.batch_tokens = batch_tokens

    def check(self) -> None:
        """Whether the model is there and is one of NLLB's, without its weights.

        Raises:
            UserError: it is not, or cannot be reached.
        """
        architecture(self.model)

    def translate(self, texts: Sequence[str], languages: Sequence[str]) -> list[str | Result]:
        """See `Translator`. Reasons: unknown language, text too long, translation too long."""
        with _loading:  # two threads would load it twice
            loaded = self.load()
        with loaded.lock:
            return self._translate(loaded, texts, languages)

    def _translate(
        self, loaded: Loaded, texts: Sequence[str], languages: Sequence[str]
    ) -> list[str | Result]:
        tokenizer = loaded.tokenizer
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
        target = tokenizer.convert_tokens_to_ids(ENGLISH)
        for batch in self._batches(sources):
            written = loaded.generator.generate(
                [sources[n] for n in batch], target, self.beam_size, self.max_new_tokens
            )
            for n, ids in zip(batch, written, strict=True):
                if tokenizer.eos_token_id in ids:
                    answers[n] = tokenizer.decode(ids, skip_special_tokens=True).strip()
                else:
                    answers[n] = Result(reason="translation too long")
        return answers

    def _batches(self, sources: dict[int, list[int]]) -> Iterator[list[int]]:
        """Texts of similar length, longest first: the first of a batch decides what each of it may take."""
        order = sorted(sources, key=lambda n: (-len(sources[n]), n))
        while order:
            room = self.beam_size * (len(sources[order[0]]) + self.max_new_tokens)
            size = max(1, self.batch_tokens // room)
            yield order[:size]
            order = order[size:]


def knows(tokenizer: Any, code: str) -> bool:
    """Whether a language's code is a token of its own."""
    return tokenizer.convert_tokens_to_ids(code) not in (None, tokenizer.unk_token_id)


def encode(tokenizer: Any, text: str, code: str) -> list[int]:
    """The encoder's input: the language, the text, the end. What looks like a special token in the text is text."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids
    language = tokenizer.convert_tokens_to_ids(code)
    if getattr(tokenizer, "legacy_behaviour", False):
        return [*ids, tokenizer.eos_token_id, language]
    return [language, *ids, tokenizer.eos_token_id]


def architecture(model: str) -> Any:
    """The configuration of an NLLB model, a folder or on the hub.

    Raises:
        UserError: it is no NLLB model, or cannot be reached.
    """
    from transformers import AutoConfig

    from toolformer.loading import locate

    location = locate(model)
    try:
        config = AutoConfig.from_pretrained(location, trust_remote_code=False)
        if config.model_type not in ARCHITECTURES:
            raise ValueError(f"its architecture is {config.model_type}")
    except (OSError, ValueError, KeyError) as error:
        raise _no_model(model, error) from error
    return config


@functools.lru_cache(maxsize=2)
def load(model: str, backend: str, quantization: str, dtype: str, device: str) -> Loaded:
    """A loaded model; tools that ask with the same words share it.

    Raises:
        UserError: it is no NLLB model, cannot be reached, or cannot run here.
    """
    from transformers import AutoTokenizer
    from transformers import logging as transformers_logging

    from toolformer.loading import locate

    transformers_logging.disable_progress_bar()
    location, config = locate(model), architecture(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(location, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise _no_model(model, error) from error
    if not knows(tokenizer, ENGLISH):
        raise UserError(
            f"translation: the tokenizer of {model} has no language codes such as {ENGLISH}: one that is made from a "
            "raw SentencePiece file lacks them; put the model's own tokenizer.json beside it"
        )
    if backend == "auto":
        fits = nllb_ctranslate2.installed() and config.model_type == "m2m_100"
        backend = "ctranslate2" if fits else "transformers"
    log.info("translating by %s with %s", model, backend)
    generator: Generator
    if backend == "ctranslate2":
        folder = nllb_ctranslate2.converted(location, getattr(config, "_commit_hash", None), quantization)
        generator = nllb_ctranslate2.CTranslate2Model(folder, tokenizer, quantization, device)
    else:
        generator = TransformersModel(model, location, tokenizer, dtype, device)
    return Loaded(generator, tokenizer, threading.Lock())


def _no_model(name: str, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return UserError(
        f"translation: {name} cannot be loaded as an NLLB model: {reason} Name an NLLB model, a folder or on the hub"
    )


class TransformersModel:
    """An NLLB model on Transformers."""

    def __init__(self, name: str, location: str, tokenizer: Any, dtype: str, device: str) -> None:
        from transformers import AutoModelForSeq2SeqLM, GenerationConfig

        from toolformer.loading import choose_device, choose_dtype

        device = choose_device(device)
        try:
            model: Any = AutoModelForSeq2SeqLM.from_pretrained(
                location,
                dtype=choose_dtype(dtype, device),
                trust_remote_code=False,
                weights_only=True,  # the published models are pickled: no code of a pickle is run
            )
            self.model = model.to(device).eval()
        except (OSError, ValueError, KeyError, RuntimeError, pickle.UnpicklingError) as error:
            raise _no_model(name, error) from error
        self.pad = tokenizer.pad_token_id
        # A model's own settings (a length, beams, a sampling temperature) would decide in place of ours.
        model.generation_config = GenerationConfig(
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            decoder_start_token_id=model.config.decoder_start_token_id,
        )

    def generate(
        self, sources: Sequence[Sequence[int]], target: int, beam_size: int, max_new_tokens: int
    ) -> list[list[int]]:
        """See `Generator`."""
        import torch

        length = max(len(ids) for ids in sources)
        ids = torch.tensor([[*row, *[self.pad] * (length - len(row))] for row in sources])
        seen = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in sources])
        with torch.inference_mode():
            written = self.model.generate(
                input_ids=ids.to(self.model.device),
                attention_mask=seen.to(self.model.device),
                forced_bos_token_id=target,
                num_beams=beam_size,
                do_sample=False,
                max_new_tokens=max_new_tokens + 1,  # the target's own token is counted
            )
        end = self.model.generation_config.eos_token_id
        rows: list[list[int]] = written[:, 2:].tolist()
        return [row[: row.index(end) + 1] if end in row else row for row in rows]
