"""What is found when a model is loaded: how it has to be read, or that it cannot be."""

import copy
import math

import pytest
import torch
from transformers import BertConfig, BertLMHeadModel

from tests.build import Log, tiny_model, tiny_tokenizer
from tests.lm.families import BOUNDED, FAST, SLOW, tiny
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel


@pytest.mark.parametrize("name", [*FAST, *SLOW, *BOUNDED])
def test_a_family_is_read_with_a_store_where_that_is_right(name: str) -> None:
    model = tiny(name)
    assert model.is_plain == (name in SLOW)
    assert model.context_length == 32 or name not in BOUNDED


@pytest.mark.parametrize("name", ["llama", "mixtral", "gemma3_text"])
def test_rounding_makes_no_model_plain(name: str) -> None:
    half = copy.deepcopy(tiny(name).model).to(torch.bfloat16)
    assert not LanguageModel(half, tiny_tokenizer(), name).is_plain


def test_a_plain_model_is_reported_once(caplog: Log) -> None:
    model = copy.deepcopy(tiny("mpt").model)
    caplog.clear()  # of the first load, which other tests share
    LanguageModel(model, tiny_tokenizer(), "mpt")
    assert [message[:16] for message in caplog.messages] == ["model: mpt (mpt)"]


def test_the_probe_leaves_a_window_as_it_was() -> None:
    assert tiny("gemma3_text").model.config.sliding_window == 16


def test_models_that_are_not_causal_or_fail_are_refused() -> None:
    tokenizer = tiny_tokenizer()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    bert = BertLMHeadModel(BertConfig(**sizes, vocab_size=len(tokenizer)))
    with pytest.raises(UserError, match=r"^model: bert is not causal \(its prediction of a token depends"):
        LanguageModel(bert, tokenizer, "bert")
    endless = tiny_model("gpt2", len(tokenizer))
    endless.transformer.ln_f.weight.data.fill_(math.inf)
    with pytest.raises(UserError, match="^model: endless gives no finite numbers in torch.float32"):
        LanguageModel(endless, tokenizer, "endless")
    with pytest.raises(
        UserError, match="^model: the tokenizer of small has token ids up to 419, but the model has only 50"
    ):
        LanguageModel(tiny_model("gpt2", 50), tokenizer, "small")  # fewer tokens than the tokenizer has
