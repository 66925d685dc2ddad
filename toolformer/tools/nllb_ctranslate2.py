"""NLLB on CTranslate2: a model is converted and quantised once, kept in the cache, and run from there.

Token ids in, token ids out; knows no text and no language. A conversion is whole or not there (`made_once`), so that
processes may ask at once and be killed at any time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolformer import assets
from toolformer.errors import UserError
from toolformer.tools.made_once import made_once

log = logging.getLogger(__name__)

QUANTIZATIONS = (
    "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32",
)  # fmt: skip
INSTALL = "pip install ctranslate2, or choose backend=transformers"
MARKER = "conversion.json"
"""Written last into a converted folder: the size of each file in bytes."""
PATIENCE = 2.0
"""Beam search goes on until this many times the beam size have ended: with 1 it stops earlier than Transformers."""


def installed() -> bool:
    """Whether CTranslate2 can be imported; imports nothing."""
    return importlib.util.find_spec("ctranslate2") is not None


def converted(location: str, revision: str | None, quantization: str) -> Path:
    """The converted model of a folder or a hub name, made first if need be.

    Args:
        revision: the hub's commit, where `location` is a hub name.

    Raises:
        UserError: it cannot be converted or written.
    """
    place = assets.cache_dir() / "ctranslate2" / _name(location, revision, quantization)
    try:
        made_once(
            place,
            lambda folder: _convert(location, revision, quantization, folder),
            assets.cache_dir(),
            _whole,
            replaces=True,
        )
    except OSError as error:
        raise UserError(
            f"translation: {location} cannot be converted for CTranslate2: {' '.join(str(error).split())[:300]}; "
            f"mend the folder {assets.cache_dir()} or set {assets.CACHE_VARIABLE} to another"
        ) from error
    return place


def _name(location: str, revision: str | None, quantization: str) -> str:
    """Names what decides a conversion; weights are told by size and time of change."""
    import ctranslate2

    parts: list[Any] = [location, revision, quantization, ctranslate2.__version__]
    folder = Path(location)
    if folder.is_dir():
        parts[0] = str(folder.resolve())
        for file in sorted(folder.iterdir()):
            if file.suffix in (".safetensors", ".bin", ".json", ".model"):
                parts.append((file.name, file.stat().st_size, file.stat().st_mtime_ns))
    digest = hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name)[:60].strip(".-") or "model"
    return f"{readable}-{quantization}-{digest[:12]}"


def _whole(place: Path) -> bool:
    try:
        files = json.loads((place / MARKER).read_text(encoding="utf-8"))
        return bool(files) and all((place / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, AttributeError):
        return False


def _convert(location: str, revision: str | None, quantization: str, folder: Path) -> None:
    from ctranslate2.converters import TransformersConverter

    log.info("converting %s for CTranslate2 (%s), only once", location, quantization)
    try:
        # It loads by Transformers, as everybody does: of a pickle the weights only.
        TransformersConverter(location, revision=revision).convert(
            str(folder), quantization=quantization, force=True
        )
    except (ValueError, RuntimeError, KeyError, pickle.UnpicklingError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"translation: {location} cannot be converted for CTranslate2 ({reason}); choose backend=transformers"
        ) from error
    files = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    (folder / MARKER).write_text(json.dumps(files, indent=1), encoding="utf-8")


class CTranslate2Model:
    """A converted model, loaded."""

    def __init__(self, folder: Path, tokenizer: Any, quantization: str, device: str) -> None:
        """`device`: auto, cpu, cuda or cuda:N. Raises UserError where CTranslate2 cannot work there."""
        import ctranslate2
        import torch

        self.tokenizer = tokenizer
        if device == "auto":
            device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
        kind, _, index = device.partition(":")
        if kind not in ("cpu", "cuda"):
            raise UserError(f"translation: CTranslate2 cannot use {device}; choose backend=transformers")
        try:
            self.model = ctranslate2.Translator(
                str(folder),
                device=kind,
                device_index=int(index or 0),
                compute_type=quantization,
                intra_threads=torch.get_num_threads(),  # an engine's workers share the cores by it
            )
        except (ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:300]
            raise UserError(
                f"translation: CTranslate2 cannot run {quantization} on {device} ({reason}); choose another "
                f"quantization or device, or backend=transformers"
            ) from error

    def generate(
        self, sources: Sequence[Sequence[int]], target: int, beam_size: int, max_new_tokens: int
    ) -> list[list[int]]:
        """The likeliest continuations of `target`, without it; one that ended has the end token last."""
        spell = self.tokenizer.convert_ids_to_tokens
        results = self.model.translate_batch(
            [spell(list(ids)) for ids in sources],
            target_prefix=[[spell(target)]] * len(sources),
            beam_size=beam_size,
            patience=PATIENCE if beam_size > 1 else 1.0,
            max_input_length=0,  # longer texts were refused before
            max_decoding_length=max_new_tokens + 1,  # the target's own token is counted
            return_end_token=True,
        )
        return [self.tokenizer.convert_tokens_to_ids(result.hypotheses[0][1:]) for result in results]
