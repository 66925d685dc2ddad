"""Families of models against their stock forward pass: the fast path where it is right, the slow one elsewhere."""

import copy
import functools
import math
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, BertConfig, BertLMHeadModel

from tests.build import Log, tiny_model, tiny_tokenizer
from tests.reference import assert_stock as check
from tests.reference import logits
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.slots import Slots

COMMON = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.3,
    "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
GPT = {"n_positions": 512, "n_embd": 32, "n_layer": 2, "n_head": 4}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SLIDING = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
LATENT = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4,
}  # fmt: skip
STATE = {
    "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8,
    "mamba_expand": 1, "mamba_chunk_size": 16,
}  # fmt: skip
DELTA = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "shared_expert_intermediate_size": 32,
}  # fmt: skip
JAMBA = {
    "num_experts": 4, "num_experts_per_tok": 2, "mamba_d_state": 8, "mamba_dt_rank": 4, "attn_layer_period": 2,
    "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1, "use_mamba_kernels": False,
}  # fmt: skip


def rope(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 10000.0, "rope_type": kind, **parameters}}


FAST: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, YaRN": rope("yarn", factor=4.0, original_max_position_embeddings=32),
    "llama, dynamic": rope("dynamic", factor=4.0),
    "mistral": {"sliding_window": 16},
    "qwen2, window": {"use_sliding_window": True, **SLIDING},
    "qwen3_moe": EXPERTS,
    "gemma2": SLIDING,
    "gemma3_text": SLIDING,
    "cohere2": SLIDING,
    "gpt_oss": EXPERTS | SLIDING,
    "smollm3": {},
    "mixtral": EXPERTS,
    "gpt_neox": {},
    "gptj": {**GPT, "rotary_dim": 4},
    "gpt2": GPT,
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32, "init_std": 0.3},
    "falcon": {"alibi": False},
    "deepseek_v3": EXPERTS | LATENT,
    "exaone4": SLIDING,
    "phi": {},
    "glm4": {},
}
"""Read with a cache and a mask, however long."""
SLOW: dict[str, dict[str, Any]] = {
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 512},
    "bloom": {"n_layer": 2, "n_head": 4},
    "falcon, ALiBi": {"alibi": True},
    "gpt_neo": {"num_layers": 2, "num_heads": 4, "window_size": 16, "attention_types": [[["global", "local"], 1]]},
    "mamba": {"state_size": 8},
    "mamba2": {"state_size": 8, "num_heads": 8, "n_groups": 1, "chunk_size": 16},
    "rwkv": {"attention_hidden_size": 32, "context_length": 512},
    "recurrent_gemma": {"lru_width": 32, "attention_window_size": 16, "block_types": ["recurrent", "attention"]},
    "falcon_h1": STATE,
    "jamba": JAMBA,
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "qwen3_next": {"layer_types": ["linear_attention", "full_attention"], **DELTA, **EXPERTS},
}  # fmt: skip
"""Read from the beginning for every token."""
LONG = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
BOUNDED: dict[str, dict[str, Any]] = {
    "phi3": {"original_max_position_embeddings": 32, "rope_scaling": {"type": "longrope", **LONG}},
    "llama, LongRoPE": rope("longrope", original_max_position_embeddings=32, **LONG),
    "llama4_text": {
        **EXPERTS, "attention_chunk_size": 32, "floor_scale": 32, "intermediate_size_mlp": 64,
        "layer_types": ["chunked_attention", "full_attention"], "no_rope_layers": [1, 0],
    },
}  # fmt: skip
"""Read with a cache and a mask up to 32 keys."""


@functools.cache
def tiny(name: str) -> LanguageModel:
    """A tiny random model of a family, in float32."""
    tokenizer = tiny_tokenizer()
    kind = name.partition(",")[0]
    configuration = type(AutoConfig.for_model(kind))
    own = {**FAST, **SLOW, **BOUNDED}[name]
    # Not what a family has under another name, or computes.
    theirs = {*getattr(configuration, "attribute_map", {}), *vars(configuration)} - {
        *configuration.__annotations__
    }
    known = {key: value for key, value in COMMON.items() if key not in theirs}
    torch.manual_seed(0)
    config = configuration(**{**known, **own}, vocab_size=len(tokenizer))
    return LanguageModel(AutoModelForCausalLM.from_config(config), tokenizer, name)


TOKENS = torch.randint(1, 400, (400,), generator=torch.Generator().manual_seed(0)).tolist()
HEAD, CONTEXTS = TOKENS[:12], [TOKENS[20:48], TOKENS[50:57], TOKENS[60:75]]


def scored_as_stock(model: LanguageModel) -> None:
    sequences = [TOKENS[:60], TOKENS[60:85], TOKENS[90:130]]
    scores = model.score(sequences, [range(1, len(ids)) for ids in sequences])
    for ids, score in zip(sequences, scores, strict=True):
        expected = logits(model, ids)[:-1].log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        torch.testing.assert_close(score.log_probs, expected, atol=1e-3, rtol=0)


def sampled_as_stock(model: LanguageModel) -> None:
    """Behind a prefix, padded, with branches that do not see the end of their context, as `propose` does."""
    logits, branches = model.prefill(CONTEXTS, model.prefix(HEAD))
    check(logits, model, *(HEAD + ids for ids in CONTEXTS))
    branches.keep_rows([0, 2])
    hidden = torch.tensor([[0, 17], [3, 9]])
    branches.hide_last(hidden)
    tails = torch.tensor(TOKENS[200:216]).view(2, 2, 4)
    for step in range(4):
        logits = branches.step(tails[:, :, step])
    for row, n in enumerate((0, 2)):
        seen = [HEAD + CONTEXTS[n][: len(CONTEXTS[n]) - count] for count in hidden[row].tolist()]
        check(logits[row], model, *(ids + tail for ids, tail in zip(seen, tails[row].tolist(), strict=True)))
    branches.select(torch.tensor([[1, 1], [0, 1]]))
    both = HEAD + CONTEXTS[0][:-17] + tails[0, 1].tolist()
    check(branches.step(torch.tensor([[7, 8], [9, 3]]))[0], model, [*both, 7], [*both, 8])


def decoded_as_stock(model: LanguageModel) -> None:
    """With results of calls that are read at once, rows from several batches, and tokens taken back, as the decoder does."""
    _, first = model.prefill(CONTEXTS[:2], model.prefix(HEAD))
    _, second = model.prefill([TOKENS[300:303]])
    first.step(torch.tensor([[3], [4]]))
    slots = Slots(model)
    slots.put([1], first, [1])
    slots.put([0], second, [0])
    more = [TOKENS[310:312], TOKENS[320:334]]
    sequences = [TOKENS[300:303] + more[0], HEAD + CONTEXTS[1] + [4] + more[1]]
    check(slots.extend([0, 1], more), model, *sequences)
    slots.forget(1, 9)
    slots.step([5, 0], fed=[True, False])
    check(slots.step([6, 7], fed=[True, True]), model, [*sequences[0], 5, 6], [*sequences[1][:-9], 7])


@pytest.mark.parametrize("name", [*FAST, *SLOW, *BOUNDED])
def test_every_path_is_the_stock_forward_pass(name: str) -> None:
    """Fast where it can be."""
    model = tiny(name)
    assert model.fast_length == (math.inf if name in FAST else 0 if name in SLOW else 32)
    scored_as_stock(model)
    sampled_as_stock(model)
    decoded_as_stock(model)


@pytest.mark.parametrize("name", ["llama", "mixtral", "gemma3_text"])
def test_rounding_puts_no_model_on_the_slow_path(name: str) -> None:
    half = copy.deepcopy(tiny(name).model).to(torch.bfloat16)
    assert LanguageModel(half, tiny_tokenizer(), name).fast_length == math.inf


def test_the_slow_path_is_reported_once(caplog: Log) -> None:
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
        UserError, match="^model: the tokenizer of small has tokens up to number 419, and the model knows 50"
    ):
        LanguageModel(tiny_model("gpt2", 50), tokenizer, "small")  # fewer tokens than the tokenizer has
