"""Where a model is, on which device and in which dtype it works, and how it is loaded: safetensors only, no code of its own.

Knows nothing of what a model is used for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers import logging as transformers_logging

from toolformer import assets
from toolformer.errors import UserError

EMBEDDED_MODELS = ("smollm2", "gemma3")


def native_bfloat16(device: str | torch.device) -> bool:
    """Whether the device multiplies bfloat16 in hardware; elsewhere it is up to a hundred times slower than fp32."""
    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def choose_device(device: str = "auto") -> str:
    """`auto` is the first CUDA device, or the CPU."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def choose_dtype(dtype: str, device: str) -> torch.dtype:
    """`auto` is bfloat16 where it is native, float32 elsewhere."""
    if dtype == "auto":
        return torch.bfloat16 if native_bfloat16(device) else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]


def number_format(dtype: str, device: str) -> str:
    """The name of what `dtype` comes to on a device, as runs are tagged with it: `bfloat16`."""
    return str(choose_dtype(dtype, choose_device(device))).removeprefix("torch.")


def locate(name_or_path: str) -> str:
    """The folder or hub name behind a model's name; an embedded model is fetched on first use."""
    if name_or_path in EMBEDDED_MODELS:
        return str(assets.ensure(name_or_path))
    path = Path(name_or_path).expanduser()
    if path.exists() and not (path / "config.json").is_file():
        raise UserError(
            f"model: {name_or_path} is no model folder (it has no config.json); name one that has, or a hub model"
        )
    if not path.exists() and (name_or_path.startswith((".", "/", "~")) or name_or_path.count("/") > 1):
        raise UserError(
            f"model: there is no folder {name_or_path}; name a model folder, a hub model or one of {', '.join(EMBEDDED_MODELS)}"
        )
    return str(path) if path.exists() else name_or_path


def check(name_or_path: str) -> None:
    """Whether a model is there, without its weights.

    Raises:
        UserError: it is no model, or cannot be reached.
    """
    location = locate(name_or_path)
    try:
        AutoConfig.from_pretrained(location, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise no_causal_model(name_or_path, error) from error


def load_tokenizer(name_or_path: str) -> Any:
    """The fast tokenizer of an embedded model, a hub model or a folder, which may hold nothing else.

    Raises:
        UserError: there is none, or it cannot be reached.
    """
    folder = Path(name_or_path).expanduser()
    place = str(folder) if (folder / "tokenizer_config.json").is_file() else locate(name_or_path)
    try:
        return AutoTokenizer.from_pretrained(place, use_fast=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(f"model: the tokenizer of {name_or_path} cannot be loaded: {reason}") from error


def tokens_of(tokenizer: Any, texts: Any, offsets: bool = False) -> Any:
    """What a tokenizer makes of a text or a list of them: their tokens, none added, with their places if asked for.

    What reads like a special token (`</s>` on a web page) is text like any other, and ends nothing.
    """
    return tokenizer(
        texts,
        add_special_tokens=False,
        split_special_tokens=True,
        return_offsets_mapping=offsets,
        verbose=False,
    )


def single_token(tokenizer: Any, text: str, name: str) -> int:
    """The one token that `text` is between other text; `name` is the model's.

    Raises:
        UserError: it is several, or melts into what stands beside it.
    """
    head, behind, between = (tokens_of(tokenizer, one).input_ids for one in ("a", f"a{text}", f"a{text}A"))
    if behind[:-1] != head or between[: len(behind)] != behind:
        raise UserError(
            f"model: the tokenizer of {name} has no single token for {text!r}; choose another model"
        )
    token: int = behind[-1]
    return token


def load_causal(name_or_path: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """A causal model in the main memory, and its fast tokenizer.

    Raises:
        UserError: it is no causal language model, or cannot be reached.
    """
    location = locate(name_or_path)
    transformers_logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(location, use_fast=True, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(
            location, dtype=dtype, trust_remote_code=False, use_safetensors=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise no_causal_model(name_or_path, error) from error
    return model, tokenizer


def no_causal_model(name: str, error: Exception) -> UserError:
    """What a failed loading means to the user, in one line."""
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return UserError(f"model: {name} cannot be loaded as a causal language model: {reason}")
