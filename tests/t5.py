"""Tiny made-up T5s of both kinds, with a tokenizer that ends every text as T5's does. No downloads."""

from typing import Any

import torch
from tokenizers import processors
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from tests.conftest import TRAINING_TEXT, byte_level

WORDS = "question answer title context lighthouse windmill harbour compass sundial bee honey north south ships rocks"


def t5_tokenizer() -> PreTrainedTokenizerFast:
    special = ["<pad>", "</s>", "<unk>", "<extra_id_0>"]
    tokenizer = byte_level([*TRAINING_TEXT, WORDS], 360, special, unk_token="<unk>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))]
    )
    names = dict(zip(("pad_token", "eos_token", "unk_token"), special, strict=False))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, additional_special_tokens=special[3:], model_max_length=512, **names
    )


def tiny_t5(vocabulary: int, first: bool = False, seed: int = 0) -> Any:
    """A random T5 1.1 (gated, output embeddings of its own), or with `first` one like T5's first version."""
    torch.manual_seed(seed)
    config_class: Any = T5Config
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    sizes |= {"vocab_size": vocabulary, "relative_attention_num_buckets": 16}
    config = config_class(
        **sizes, feed_forward_proj="relu" if first else "gated-gelu", tie_word_embeddings=first,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
        initializer_factor=3.0,  # wide initial weights: what it writes depends on what it read
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    if not first:
        model.lm_head.weight = torch.nn.Parameter(torch.randn(vocabulary, 32))
    return model.eval()
