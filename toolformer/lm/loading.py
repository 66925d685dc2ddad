"""Locating and loading a model and its tokenizer: weights as data only, and never code from a model's folder."""

import logging
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import torch
from huggingface_hub import constants, get_session, is_offline_mode, try_to_load_from_cache
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers import logging as transformers_logging

from toolformer.calls import START, ApiCall, linearise
from toolformer.data import assets
from toolformer.errors import UserError, near, one_line
from toolformer.lm import devices, model_files

# Transformers would ask a service of the hub to convert a model's weights, and wait for it.
os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")

log = logging.getLogger(__name__)

EMBEDDED_MODELS = ("smollm2", "gemma3")
PARAMETERS = {
    "smollm2": 134_515_008, "gemma3": 268_098_176, "gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200, "EleutherAI/gpt-j-6b": 6_053_381_344,
}  # fmt: skip
"""Of the bundled and the paper's models, which are known before they are fetched."""
NOTATION = linearise(ApiCall("Calculator", '1.5 * (2 - "3")', "0.5"))
"""A call whose text has to survive a tokenizer."""


class Location(NamedTuple):
    """Where a model is: a folder, or its name on the hub and the revision there."""

    path: str
    revision: str = "main"

    @property
    def folder(self) -> Path | None:
        """The folder, if it is one."""
        return Path(self.path) if Path(self.path).is_dir() else None


def is_at_hand(name_or_path: str) -> bool:
    """Whether a model, or its tokenizer, is in a folder or cached. Fetches nothing."""
    if name_or_path in EMBEDDED_MODELS:
        return assets.find_asset(name_or_path) is not None
    if Path(name_or_path).expanduser().exists():
        return True
    name, _, revision = name_or_path.partition("@")
    try:
        from huggingface_hub import try_to_load_from_cache

        files = ("config.json", "tokenizer.json", "tokenizer_config.json")
        return any(
            isinstance(try_to_load_from_cache(name, file, revision=revision or None), str) for file in files
        )
    except ValueError:  # no name of the hub
        return False


def locate(name_or_path: str) -> Location:
    """The folder or hub name of a model; a bundled model is fetched on first use, NAME@REVISION is one of the hub's."""
    if name_or_path in EMBEDDED_MODELS:
        return Location(str(assets.ensure(name_or_path)))
    path = Path(name_or_path).expanduser()
    if path.exists():
        model_files.check_kind(path, name_or_path)
        return Location(str(path))
    if name_or_path.startswith((".", "/", "~")) or name_or_path.partition("@")[0].count("/") > 1:
        raise UserError(
            f"model: there is no folder {name_or_path}; name a model folder, a hub model or one of {', '.join(EMBEDDED_MODELS)}"
        )
    name, _, revision = name_or_path.partition("@")
    return Location(name, revision or "main")


def load_config(name_or_path: str) -> Any:
    """A model's configuration, without its weights. UserError if it is not a model, or cannot be reached."""
    location = locate(name_or_path)
    with _loading(f"{name_or_path} cannot be loaded", location):
        config = AutoConfig.from_pretrained(
            location.path, revision=location.revision, trust_remote_code=False
        )
    model_files.check_code(config, name_or_path)
    return config


def context_length(config: Any) -> int | None:
    """Maximum number of tokens of a sequence, or None where the configuration does not say."""
    text = config.get_text_config()
    # Beyond Doge's window a token's prediction depends on later ones.
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "keep_window_size")
    sizes = [getattr(text, name, None) for name in names]
    return min([size for size in sizes if isinstance(size, int) and size > 0], default=None)


def fast_length(config: Any) -> float:
    """Number of keys up to which attention and positions do not depend on that number; infinite for most models.

    Beyond, LongRoPE uses other frequencies for all positions, and Llama 4 attends in chunks and with another scale.
    """
    if "local" in getattr(config, "attention_layers", ()):
        return 0  # GPT-Neo's window counts keys that a token does not see
    limits = [getattr(config, name, None) for name in ("attention_chunk_size", "floor_scale")]
    rope = getattr(config, "rope_parameters", None) or {}
    for settings in (rope, *rope.values()):
        if isinstance(settings, dict) and settings.get("rope_type") == "longrope":
            limits.append(settings["original_max_position_embeddings"])
    return min((limit for limit in limits if limit), default=math.inf)


def load_tokenizer(name_or_path: str) -> Any:
    """The fast tokenizer of a bundled model, a hub model or a folder, which may hold nothing else.

    The only place that loads one, and never with code from the folder. UserError if there is none, or it cannot be reached.
    """
    folder = Path(name_or_path).expanduser()
    has_tokenizer = (folder / "tokenizer_config.json").is_file()
    location = Location(str(folder)) if has_tokenizer else locate(name_or_path)
    if location.folder:
        model_files.check_tokenizer(location.folder, name_or_path)
    with _loading(f"the tokenizer of {name_or_path} cannot be loaded", location):
        return AutoTokenizer.from_pretrained(
            location.path, revision=location.revision, use_fast=True, trust_remote_code=False
        )


def tokens_of(tokenizer: Any, texts: Any, offsets: bool = False) -> Any:
    """The tokens of a text or a list of texts, none added; special tokens (`</s>`) are read as plain text."""
    return tokenizer(
        texts,
        add_special_tokens=False,
        split_special_tokens=True,
        return_offsets_mapping=offsets,
        verbose=False,
    )


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text, nothing added."""
    ids: list[int] = tokens_of(tokenizer, text).input_ids
    return ids


def encode_continuation(tokenizer: Any, text: str) -> list[int]:
    """Token ids of `text` where it follows other text: some tokenizers put a blank before a text."""
    for sign in ("a", "]", "\n", "0"):
        alone, both = encode(tokenizer, sign), encode(tokenizer, sign + text)
        if both[: len(alone)] == alone:  # else the sign and the text share a token
            return both[len(alone) :]
    return encode(tokenizer, text)


def token_positions(text: str, offsets: Sequence[tuple[int, int]]) -> list[int | None]:
    """The character position before each token, or None where a token begins inside a character."""
    positions: list[int | None] = []
    previous = 0
    for start, end in offsets:
        # Some tokenizers leave out the blank before a word from its offsets: the call goes before the blank.
        inside = start < previous or text[previous:start].strip() != ""
        positions.append(None if inside else previous)
        previous = max(previous, end)
    return positions


def bos_ids(tokenizer: Any) -> list[int]:
    """Tokens that the tokenizer puts before a text if it adds special tokens (a BOS, for Llama and Gemma)."""
    plain = tokenizer("a", add_special_tokens=False).input_ids
    full = tokenizer("a", add_special_tokens=True).input_ids
    starts = range(len(full) - len(plain) + 1)
    return next((list(full[:n]) for n in starts if full[n : n + len(plain)] == plain), [])


def first_token(tokenizer: Any) -> int | None:
    """The token before a text that nothing precedes: BOS, else EOS; None if the tokenizer has neither."""
    token: int | None = (
        tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    )
    return token


def start_token(tokenizer: Any, vocabulary: int, name: str) -> int:
    """The token that starts a call. UserError if the tokenizer has none, changes the text of calls, or is another model's.

    Args:
        vocabulary: number of tokens that the model knows.
        name: of the model.
    """
    head, after, between = (encode(tokenizer, written) for written in ("a", f"a{START}", f"a{START}A"))
    if after[:-1] != head or between[: len(after)] != after:
        raise UserError(
            f"model: the tokenizer of {name} has no single token for {START!r}, which starts a call; name a model "
            "whose tokenizer has one, such as smollm2, gemma3, gpt2 or EleutherAI/gpt-j-6b"
        )
    before, whole = (
        tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        for ids in (head, encode(tokenizer, "a" + NOTATION))
    )
    if (written := whole[len(before) :]) != NOTATION:
        raise UserError(
            f"model: the tokenizer of {name} changes the text of a call ({NOTATION!r} becomes {written!r}); name a model "
            "whose tokenizer keeps capitals, blanks and signs"
        )
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    largest = max(number for number in tokenizer.get_vocab().values() if number not in special)
    if largest >= vocabulary:
        raise UserError(
            f"model: the tokenizer of {name} has token ids up to {largest}, but the model has only {vocabulary} embeddings; save "
            "it with resize_token_embeddings, or with the tokenizer that it was trained with"
        )
    return after[-1]


def load_causal(
    name_or_path: str, dtype: torch.dtype, starts_calls: bool = True, spread: bool = False
) -> tuple[Any, Any]:
    """A causal model in main memory and its fast tokenizer. UserError if it is not one, or cannot be reached.

    Args:
        starts_calls: its tokenizer must have a single token for the start of a call.
        spread: over all GPUs instead, by layers.
    """
    config = load_config(name_or_path)
    if config.is_encoder_decoder or type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        kind = "an encoder-decoder model" if config.is_encoder_decoder else "not a causal language model"
        raise UserError(
            f"model: {name_or_path} is {kind} ({config.model_type}); name a causal one, such as smollm2"
        )
    tokenizer = load_tokenizer(name_or_path)
    if starts_calls:  # before the weights, which take long to load
        start_token(tokenizer, config.get_text_config().vocab_size, name_or_path)
    model = load_weights(AutoModelForCausalLM, "causal language", name_or_path, dtype, spread)
    return model, tokenizer


def count_parameters(name_or_path: str, config: Any = None) -> int:
    """The parameters of a causal model, from its configuration alone. UserError if it is not one, or cannot be reached.

    Args:
        config: its configuration, where that has been read.
    """
    config = config or load_config(name_or_path)
    with _loading(f"{name_or_path} cannot be loaded", locate(name_or_path)), torch.device("meta"):
        return int(AutoModelForCausalLM.from_config(config, trust_remote_code=False).num_parameters())


def parameters_at_hand(name_or_path: str) -> int | None:
    """The parameters of a causal model whose configuration is on this machine, or that is known; fetches nothing."""
    if name_or_path in PARAMETERS:
        return PARAMETERS[name_or_path]
    folder: str | None = name_or_path
    if not Path(name_or_path).expanduser().exists():
        name, _, revision = name_or_path.partition("@")
        try:
            cached = try_to_load_from_cache(name, "config.json", revision=revision or None)
        except ValueError:  # no name of the hub
            return None
        folder = str(Path(cached).parent) if isinstance(cached, str) else None
    return count_parameters(folder) if folder else None


def load_weights(
    kind: Any, description: str, name_or_path: str, dtype: torch.dtype, spread: bool = False
) -> Any:
    """A model in main memory, by one of Transformers' classes: from safetensors, else from PyTorch's own files.

    With `spread` its layers are on all GPUs, as Accelerate divides them (`device_map="auto"`).

    No code in a file of weights is run. UserError if the model is of another kind, damaged, unreachable, or its weights are not
    those that its configuration names.
    """
    location = locate(name_or_path)
    if location.folder:
        load_config(name_or_path)  # refuses a model with code of its own
        model_files.check_weights(location.folder, name_or_path)
    placed: dict[str, Any] = {}
    if spread:  # without a place in main memory, to which Accelerate would move what does not fit
        placed = {"device_map": "auto", "max_memory": devices.free_memory()}
    transformers_logging.disable_progress_bar()
    with _loading(f"{name_or_path} cannot be loaded as a {description} model", location):
        model, info = kind.from_pretrained(
            location.path,
            revision=location.revision,
            dtype=dtype,
            trust_remote_code=False,
            weights_only=True,
            output_loading_info=True,
            **placed,
        )
    if spread and "disk" in model.hf_device_map.values():
        raise UserError(
            f"model: {name_or_path} does not fit into what other processes leave of the GPUs' memory"
        )
    model_files.check_loaded(model, info["missing_keys"], info["unexpected_keys"], name_or_path)
    return model


def _reach_hub(location: Location) -> None:
    """OSError for a model that is not on this machine while the hub is unreachable: its client would retry for half a minute."""
    files = ("config.json", "tokenizer_config.json")
    name, revision = location
    if location.folder or any(try_to_load_from_cache(name, file, revision=revision) for file in files):
        return
    if not is_offline_mode():
        try:
            get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        except httpx2.TransportError as error:
            raise OSError(
                f"it is not on this machine, and {constants.ENDPOINT} is out of reach ({error})"
            ) from error


@contextmanager
def _loading(problem: str, location: Location) -> Iterator[None]:
    """Turns all errors of Transformers, safetensors and tokenizers for damaged or missing files into one line."""
    try:
        _reach_hub(location)
        yield
    except Exception as error:
        hint = near(location.path, EMBEDDED_MODELS)
        advice = f"name a folder, a hub model or one of {', '.join(EMBEDDED_MODELS)}{hint}"
        if location.folder:
            advice = model_files.advice(location.folder)
        reason, advice = model_files.diagnosis(error) or (one_line(error), advice)
        raise UserError(f"model: {problem}: {reason}; {advice}") from error
