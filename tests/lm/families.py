"""Tiny random models of many architectures, in float32."""

import functools
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.build import tiny_tokenizer
from toolformer.lm.language_model import LanguageModel

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
"""Read with a cache and a mask."""
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
"""Read with stock passes, from the beginning for every token."""
LONG = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
BOUNDED: dict[str, dict[str, Any]] = {
    "phi3": {"original_max_position_embeddings": 32, "rope_scaling": {"type": "longrope", **LONG}},
    "llama, LongRoPE": rope("longrope", original_max_position_embeddings=32, **LONG),
    "llama4_text": {
        **EXPERTS, "attention_chunk_size": 32, "floor_scale": 32, "intermediate_size_mlp": 64,
        "layer_types": ["chunked_attention", "full_attention"], "no_rope_layers": [1, 0],
    },
}  # fmt: skip
"""Read with a cache and a mask, in a context of 32 tokens: beyond, they read all of a text otherwise."""


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
