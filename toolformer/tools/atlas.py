"""Question answering by Atlas (Izacard et al., 2022), the paper's tool: T5 with fusion in decoder over passages.

The reader of a published checkpoint (`model.pth.tar`) is converted once, without running code from the file, to
safetensors in the cache. Passages come from any `Retriever`, not from Atlas's Contriever.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import pathlib
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import T5Config, T5ForConditionalGeneration
from transformers import logging as transformers_logging
from transformers.modeling_outputs import BaseModelOutput

from toolformer.data import assets
from toolformer.errors import UserError, one_line
from toolformer.lm.devices import choose_device, choose_dtype
from toolformer.lm.loading import is_at_hand, load_tokenizer, load_weights
from toolformer.lm.seq2seq import greedy, padded_batches
from toolformer.step import NOTHING, Content, ModelName
from toolformer.storage import build_once
from toolformer.tools.base import Need
from toolformer.tools.question_answering import Reader
from toolformer.tools.retrieval.passages import Passage, Retriever

CHECKPOINT = "model.pth.tar"
WHERE = "github.com/facebookresearch/atlas, models/atlas_nq/large and xxl"
SIZES = "large: about 3 GB, XXL: about 45 GB of weights on disk, once more when converted; 1.6 and 22 GB of memory in bfloat16"
QUESTIONS = 4
"""Questions read at once: the states of forty passages of 512 tokens take 84 MB with Atlas-large."""
_CONVERSION = "1"
_KEY = "tool.qa.implementation.checkpoint_path"


@dataclass(eq=False)
class Atlas(Reader):
    """Question answering by a checkpoint of Atlas; `UserError` if it is missing."""

    VERSION = 1
    retriever: Retriever
    checkpoint_path: Annotated[str | None, Content()] = None
    """Atlas's `model.pth.tar`, or the folder that it is in."""
    tokenizer: Annotated[str, ModelName()] = "google-t5/t5-base"
    """A hub name or folder of T5's tokenizer, which all sizes of T5 share."""
    passages: int = 40
    """Passages per question; Atlas was evaluated with 40."""
    max_tokens: int = 512
    """Tokens read of the question with one passage."""
    max_new_tokens: int = 32
    dtype: str = "auto"
    device: Annotated[str, NOTHING] = "auto"

    def __post_init__(self) -> None:
        path = Path(self.checkpoint_path or "").expanduser()
        checkpoint = path if path.is_file() else path / CHECKPOINT
        if self.checkpoint_path is None or not checkpoint.is_file():
            raise UserError(
                f"{_KEY} is {self.checkpoint_path}; name the {CHECKPOINT} of an Atlas model, or its folder"
            )
        self.load = functools.partial(load_reader, checkpoint, self.tokenizer, self.dtype, self.device)

    @classmethod
    def describe(cls, settings: Mapping[str, Any]) -> str:
        """See `Part`."""
        path = Path(str(settings.get("checkpoint_path")))
        name = path.parent.name if path.name == CHECKPOINT else path.name
        return f"Atlas ({name}) on {settings.get('passages', cls.passages)} passages"

    @classmethod
    def needs(cls, settings: Mapping[str, Any]) -> Sequence[Need]:
        """The checkpoint and T5's tokenizer."""
        path = Path(str(settings.get("checkpoint_path"))).expanduser()
        is_there = path.is_file() or (path / CHECKPOINT).is_file()
        place = "set paths.data_dir, or " if path.parts[0] == "None" else ""
        missing = (
            "" if is_there else f"it is not there; fetch it ({WHERE}) and {place}name it in checkpoint_path"
        )
        tokenizer = str(settings.get("tokenizer", cls.tokenizer))
        state = "" if is_at_hand(tokenizer) else "not fetched yet"
        return [
            Need(f"Atlas's checkpoint {path}", missing, SIZES),
            Need(f"the tokenizer {tokenizer}", state, "2 MB", is_fetched=True),
        ]

    def prompt(self, question: str, passages: Sequence[Passage]) -> tuple[str, ...]:
        """Atlas's input: the question in the format of its task `qa`, once with each passage."""
        return tuple(
            f"question: {question} answer: <extra_id_0> title: {passage.title} context: {passage.text}"
            for passage in passages
        )

    def read(self, prompts: Sequence[tuple[str, ...]]) -> Sequence[str]:
        """See `Reader`."""
        return self.load().read(prompts, self.max_tokens, self.max_new_tokens)


@functools.lru_cache(maxsize=2)
def load_reader(checkpoint: Path, tokenizer: str, dtype: str, device: str) -> FusionInDecoder:
    """A loaded reader, cached by its arguments; `UserError` if the checkpoint has none."""
    loaded = load_tokenizer(tokenizer)
    where = choose_device(device)
    folder = str(converted(checkpoint))
    model = load_weights(T5ForConditionalGeneration, "T5", folder, choose_dtype(dtype, where))
    if len(loaded) > model.config.vocab_size:
        known = f"{checkpoint} knows {model.config.vocab_size}"
        raise UserError(f"qa: the tokenizer {tokenizer} has {len(loaded)} tokens and {known}; name T5's")
    return FusionInDecoder(model.to(where), loaded)


class FusionInDecoder:
    """A T5 that encodes each text alone and attends to all of them in the decoder (Izacard and Grave, 2021)."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer

    @torch.inference_mode()
    def read(self, texts: Sequence[Sequence[str]], max_tokens: int, max_new_tokens: int) -> list[str]:
        """The greedy answer to each question, whose texts are cut to `max_tokens`."""
        answers: list[str] = []
        for start in range(0, len(texts), QUESTIONS):
            group = texts[start : start + QUESTIONS]
            states = self.encode([text for question in group for text in question], max_tokens)
            fused = [torch.cat([states.pop(0) for _ in question]) for question in group]
            written = self.decode(fused, max_new_tokens)
            answers += self.tokenizer.batch_decode(written, skip_special_tokens=True)
        return answers

    def encode(self, texts: Sequence[str], max_tokens: int) -> list[torch.Tensor]:
        """The encoder's states of each text [tokens, width], without padding."""
        states = [torch.empty(0)] * len(texts)
        for batch, padded in padded_batches(self.model, self.tokenizer, texts, max_tokens):
            read = self.model.get_encoder()(**padded).last_hidden_state
            for n, row, length in zip(batch, read, padded["attention_mask"].sum(1), strict=True):
                states[n] = row[:length]
        return states

    def decode(self, fused: Sequence[torch.Tensor], max_new_tokens: int) -> torch.Tensor:
        """Token ids [batch, length], generated from each question's states [tokens of all its texts, width]."""
        states = pad_sequence(list(fused), batch_first=True)
        lengths = torch.tensor([len(row) for row in fused])
        # T5's cross-attention has no positions: the order of the passages does not matter.
        seen = (torch.arange(states.shape[1])[None] < lengths[:, None]).long()
        return greedy(
            self.model,
            max_new_tokens,
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=seen.to(states.device),
        )


# -------------------------------------------------------------------- conversion


def converted(checkpoint: Path) -> Path:
    """The folder with a checkpoint's reader as a T5 in safetensors, created at the first call."""
    stat = checkpoint.stat()
    state = f"{_CONVERSION} {checkpoint.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    folder = assets.cache_dir() / "atlas" / hashlib.sha256(state.encode()).hexdigest()[:16]
    build_once(folder, lambda path: _convert(checkpoint, path), assets.cache_dir())
    return folder


def _convert(checkpoint: Path, folder: Path) -> None:
    weights = reader_weights(checkpoint)
    transformers_logging.disable_progress_bar()
    try:
        with torch.device("meta"):  # eleven billion random numbers would only be overwritten
            model = T5ForConditionalGeneration(t5_config(weights))
        model.load_state_dict(weights, assign=True)
    except (RuntimeError, KeyError, IndexError, ValueError) as error:
        raise UserError(f"qa: the reader in {checkpoint} is not a T5 ({one_line(error, 200)})") from error
    model.save_pretrained(folder)


def reader_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint's reader under Transformers' names.

    `UserError` if the file is not an Atlas checkpoint, or would create more than weights and settings when loaded.
    """
    try:
        # Only tensors, plain values, settings and paths are loaded; no code of the file runs.
        with torch.serialization.safe_globals([argparse.Namespace, pathlib.PosixPath]):
            loaded = torch.load(
                checkpoint, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(checkpoint)
            )
        state: Mapping[str, torch.Tensor] = loaded["model"]
        weights = {
            # Some wrap the reader, its encoder, or the encoder's blocks.
            re.sub(r"^encoder\.encoder\.", "encoder.", match[2].replace("module.", "")): weight
            for name, weight in state.items()
            # Early versions of T5 have one more weight, which is unused.
            if (match := re.match(r"(module\.)?reader\.(.*)", name))
            and "EncDecAttention.relative_attention_bias" not in name
        }
    except Exception as error:  # a file may hold anything
        reason = f"{type(error).__name__}: {one_line(error, 200)}"
        raise UserError(f"qa: {checkpoint} is not a checkpoint of Atlas ({reason})") from error
    if "shared.weight" not in weights:
        raise UserError(f"qa: {checkpoint} has no reader; name the {CHECKPOINT} of an Atlas model")
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"):
        weights.setdefault(name, weights["shared.weight"])
    return weights


def t5_config(weights: Mapping[str, torch.Tensor]) -> Any:
    """The T5 configuration that the names and shapes of weights imply; KeyError if one is missing."""

    def layers(part: str) -> int:
        matches = (re.match(rf"{part}\.block\.(\d+)\.", name) for name in weights)
        return 1 + max(int(match[1]) for match in matches if match)

    first = "encoder.block.0.layer"
    buckets, heads = weights[f"{first}.0.SelfAttention.relative_attention_bias.weight"].shape
    inner, width = weights[f"{first}.0.SelfAttention.q.weight"].shape
    gated = f"{first}.1.DenseReluDense.wi_0.weight" in weights
    wide = weights[f"{first}.1.DenseReluDense.{'wi_0' if gated else 'wi'}.weight"]
    config: Any = T5Config  # its keywords are not typed
    return config(
        vocab_size=weights["shared.weight"].shape[0],
        d_model=width,
        d_kv=inner // heads,
        d_ff=wide.shape[0],
        num_layers=layers("encoder"),
        num_decoder_layers=layers("decoder"),
        num_heads=heads,
        relative_attention_num_buckets=buckets,
        feed_forward_proj="gated-gelu" if gated else "relu",
        # T5 1.1 has separate output embeddings; the first T5 shares and scales them.
        tie_word_embeddings=torch.equal(weights["lm_head.weight"], weights["shared.weight"]),
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
