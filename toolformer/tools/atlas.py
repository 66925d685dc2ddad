"""Question answering by Atlas (Izacard et al., 2022), the paper's tool: T5 with fusion in decoder over passages.

Reads the published checkpoints (`model.pth.tar`): their reader is converted once, without running any code that the file
may hold, into safetensors in the cache. Passages come from any `Retriever` and not from Atlas's own Contriever.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import pathlib
import pickle
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer import assets
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.tools.base import Result
from toolformer.tools.made_once import made_once
from toolformer.tools.question_answering import answered
from toolformer.tools.retrieval.passages import Passage, Retriever, own_article

if TYPE_CHECKING:
    import torch

    from toolformer.tools.fusion_in_decoder import FusionInDecoder

CHECKPOINT = "model.pth.tar"
_CONVERSION = "1"
_KEY = "tool.qa.implementation.checkpoint_path"


class Atlas:
    """Question answering as a tool, by a checkpoint of Atlas."""

    name = "QA"

    def __init__(
        self,
        retriever: Retriever,
        checkpoint_path: str | None = None,
        tokenizer: str = "google-t5/t5-base",
        passages: int = 40,
        max_tokens: int = 512,
        max_new_tokens: int = 32,
        dtype: str = "auto",
        device: str = "auto",
    ) -> None:
        """The checkpoint is converted, if it is not yet, and loaded at the first question.

        Args:
            checkpoint_path: Atlas's `model.pth.tar`, or the folder that it is in.
            tokenizer: a hub name or folder with T5's tokenizer, which is the same for all sizes of T5.
            passages: read for each question; Atlas was evaluated with 40.
            max_tokens: of the question with one passage that are read.
            max_new_tokens: of an answer.

        Raises:
            UserError: there is no checkpoint.
        """
        if checkpoint_path is None:
            raise UserError(f"{_KEY} is missing; name the {CHECKPOINT} of an Atlas model, or its folder")
        place = Path(checkpoint_path).expanduser()
        self.checkpoint = place / CHECKPOINT if place.is_dir() else place
        if not self.checkpoint.is_file():
            raise UserError(
                f"{_KEY}: there is no file {self.checkpoint}; name the {CHECKPOINT} of an Atlas model"
            )
        self.retriever = retriever
        self.tokenizer = tokenizer
        self.passages = passages
        self.max_tokens = max_tokens
        self.max_new_tokens = max_new_tokens
        self.dtype = dtype
        self.device = device

    def depends_on(self, document: Document) -> str:
        """What its own article is known by."""
        return own_article(document)

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """A short answer to each question; equal questions over equal passages are read once."""
        return answered(inputs, documents, self.retriever, self.passages, self._read)

    def _read(self, questions: Sequence[str], found: Sequence[Sequence[Passage]]) -> list[str | Result]:
        texts = [
            tuple(reader_input(question, passage) for passage in passages)
            for question, passages in zip(questions, found, strict=True)
        ]
        distinct = sorted(set(texts))
        reader = load_reader(self.checkpoint, self.tokenizer, self.dtype, self.device)
        answers = dict(
            zip(distinct, reader.read(distinct, self.max_tokens, self.max_new_tokens), strict=True)
        )
        return [answers[one] for one in texts]


def reader_input(question: str, passage: Passage) -> str:
    """What Atlas's encoder was trained to read: the question as its task `qa` writes it, then title and text."""
    return f"question: {question} answer: <extra_id_0> title: {passage.title} context: {passage.text}"


@functools.lru_cache(maxsize=2)
def load_reader(checkpoint: Path, tokenizer: str, dtype: str, device: str) -> FusionInDecoder:
    """A loaded reader; tools with the same checkpoint share it.

    Raises:
        UserError: the file is no checkpoint of Atlas, or the tokenizer cannot be loaded.
    """
    from transformers import T5ForConditionalGeneration
    from transformers import logging as transformers_logging

    from toolformer.loading import choose_device, choose_dtype, load_tokenizer
    from toolformer.tools.fusion_in_decoder import FusionInDecoder

    loaded = load_tokenizer(tokenizer)
    place = choose_device(device)
    folder = converted(checkpoint)
    transformers_logging.disable_progress_bar()
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # that input and output embeddings differ, as T5 1.1 has it
    try:
        model: Any = T5ForConditionalGeneration.from_pretrained(
            folder, dtype=choose_dtype(dtype, place), use_safetensors=True
        )
    finally:
        transformers_logging.set_verbosity(before)
    if len(loaded) > model.config.vocab_size:
        raise UserError(
            f"qa: the tokenizer {tokenizer} has {len(loaded)} tokens and {checkpoint} knows {model.config.vocab_size}; "
            "name T5's"
        )
    return FusionInDecoder(model.to(place), loaded)


# -------------------------------------------------------------------- conversion


def converted(checkpoint: Path) -> Path:
    """The folder with the reader of a checkpoint as a T5 in safetensors, made at the first call.

    Raises:
        UserError: the file is no checkpoint of Atlas.
    """
    stat = checkpoint.stat()
    told = f"{_CONVERSION} {checkpoint.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    folder = assets.cache_dir() / "atlas" / hashlib.sha256(told.encode()).hexdigest()[:16]
    made_once(folder, lambda place: _convert(checkpoint, place), assets.cache_dir())
    return folder


def _convert(checkpoint: Path, folder: Path) -> None:
    import torch
    from transformers import T5ForConditionalGeneration
    from transformers import logging as transformers_logging

    weights = reader_weights(checkpoint)
    transformers_logging.disable_progress_bar()
    try:
        with torch.device("meta"):  # eleven billion random numbers would only be overwritten
            model = T5ForConditionalGeneration(t5_config(weights))
        model.load_state_dict(weights, assign=True)
    except (RuntimeError, KeyError, IndexError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"qa: the reader in {checkpoint} is no T5 ({reason})") from error
    model.save_pretrained(folder)


def reader_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint's reader under the names that Transformers gives them.

    A checkpoint holds `model`, the weights of reader and retriever under `reader.` and `retriever.`, and the settings of
    the training, `opt`. Older ones wrap the encoder, its blocks, or all of it.

    Raises:
        UserError: the file is no such checkpoint, or wants more than weights and settings to be made of it.
    """
    import torch

    try:
        # Nothing is run that the file names: but tensors and plain values, it may make settings and paths.
        with torch.serialization.safe_globals([argparse.Namespace, pathlib.PosixPath]):
            loaded = torch.load(
                checkpoint, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(checkpoint)
            )
        state: Mapping[str, torch.Tensor] = loaded["model"]
        weights = {
            _name(name): tensor for name, tensor in state.items() if re.match(r"(module\.)?reader\.", name)
        }
    except (
        pickle.UnpicklingError,
        RuntimeError,
        OSError,
        EOFError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise UserError(f"qa: {checkpoint} is no checkpoint of Atlas ({reason})") from error
    # A weight of T5's first versions that no T5 uses.
    weights = {
        name: tensor
        for name, tensor in weights.items()
        if "EncDecAttention.relative_attention_bias" not in name
    }
    if "shared.weight" not in weights:
        raise UserError(f"qa: {checkpoint} holds no reader; name the {CHECKPOINT} of an Atlas model")
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"):
        weights.setdefault(name, weights["shared.weight"])
    return weights


def _name(name: str) -> str:
    name = re.sub(r"^(module\.)?reader\.", "", name).replace("module.", "")
    return re.sub(r"^encoder\.encoder\.", "encoder.", name)


def t5_config(weights: Mapping[str, torch.Tensor]) -> Any:
    """The T5 that weights are of, by their names and shapes alone: no hub is asked for a size's configuration.

    Raises:
        KeyError: a weight that every T5 has is missing.
    """
    import torch
    from transformers import T5Config

    def layers(part: str) -> int:
        found = (re.match(rf"{part}\.block\.(\d+)\.", name) for name in weights)
        return 1 + max(int(match[1]) for match in found if match)

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
        # T5 1.1 has output embeddings of its own; the first T5 shares and scales them.
        tie_word_embeddings=torch.equal(weights["lm_head.weight"], weights["shared.weight"]),
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
