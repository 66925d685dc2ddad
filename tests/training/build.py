"""Tiny random models with a tokenizer trained on the spot, texts, and short trainings: no downloads."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import processors
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from tests.build import byte_level
from toolformer.calls import ApiCall
from toolformer.training.settings import TrainingSettings
from toolformer.training.tokens import AnnotatedText
from toolformer.training.trainer import train

CONTEXT = 64


WINDOW = 8
"""Tokens that the models with windows or chunks of attention see, fewer than a text has."""


TEXTS = [
    "The bridge is 1,200 metres long and was opened in 1932 by the mayor of the city.",
    "Out of 1400 participants, 400 [Calculator(400 / 1400) -> 0.29] (or 29%) passed the test.",
    "A cup of flour, two eggs and a pinch of salt; stir until the batter is smooth.",
    "Today is the first [Calendar() -> Today is Monday, January 30, 2023.] Monday of the year.",
    "The train leaves at nine. Bring water, a map and warm clothes.",
    'Pittsburgh is also known as [QA("What is Pittsburgh known as?") -> the Steel City] the Steel City.',
    "Prices went up by 4 percent over the year, and rents by 7 percent.",
    "The team won the final 3 to 1 after a goal in the last minute of the match.",
]


HELDOUT = [
    "The museum is open from ten to five, on Mondays it is closed.",
    "Two trains and a bus take you to the coast in four hours.",
    "The recipe asks for 3 eggs and 200 grams of sugar.",
]


ROOT = Path(__file__).resolve().parents[2]


SETTINGS = TrainingSettings(
    learning_rate=3e-3, max_steps=8, batch_size=4, micro_batch_size=2, sequence_length=32, eval_every=4, save_every=3,
    log_every=1, device="cpu", dtype="float32", seed=0,
)  # fmt: skip


ANNOTATED = [
    AnnotatedText("Of 1400, 400 passed.", ((12, ApiCall("Calculator", "400 / 1400", "0.29")),)),
    AnnotatedText("It is closed."),
]


def build_tokenizer(adds_bos: bool = False, tokens: int = 300) -> PreTrainedTokenizerFast:
    """A byte-level BPE with BOS, EOS and no padding token; of 270 tokens none is " ["."""
    raw = byte_level(TEXTS + HELDOUT, tokens, ["<s>", "</s>"])
    if adds_bos:
        raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>")


def build_config(name: str, **more: Any) -> Any:
    """A two-layer configuration, weights wide enough for a leak between documents to show."""
    ids: dict[str, Any] = {"vocab_size": 300, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
    wide: dict[str, Any] = {"initializer_range": 0.3, **ids}
    gpt = {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": CONTEXT, **wide}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
    common = {**heads, **wide, "intermediate_size": 32, "max_position_embeddings": CONTEXT}
    grouped = {**common, "num_key_value_heads": 1}
    windows = {**grouped, "head_dim": 8, "sliding_window": WINDOW}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    mamba = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 16}
    neo = {"num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]}
    chunks = {"head_dim": 8, "attention_chunk_size": WINDOW, "intermediate_size_mlp": 32}
    layers = {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 1}
    opt = {"word_embed_proj_dim": 16, "ffn_dim": 32, "max_position_embeddings": CONTEXT, "init_std": 0.3}
    configurations: dict[str, dict[str, Any]] = {
        "gpt2": {**gpt, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        "gpt2-dropout": gpt,
        "gptj": {**gpt, "rotary_dim": 4},
        "llama": common,
        "mistral": windows,
        "qwen2": grouped,
        "gemma2": {**grouped, "head_dim": 8},
        "cohere": grouped,
        "granite": grouped,
        "phi3": common,
        "gemma3_text": windows,
        "gpt_oss": {**windows, **experts},
        "mixtral": {**grouped, **experts},
        "llama4_text": {**grouped, **experts, **chunks},
        "falcon_h1": {**grouped, **mamba, "mamba_d_ssm": 32},
        "jamba": {**grouped, **layers, "mamba_d_state": 8, "mamba_dt_rank": 4},
        "lfm2": {**grouped, "layer_types": ["conv", "full_attention"]},
        "mamba": {**wide, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 8},
        "gpt_neox": common,
        "gpt_neo": {
            **wide,
            **neo,
            "window_size": WINDOW,
            "hidden_size": 16,
            "max_position_embeddings": CONTEXT,
        },
        "opt": {**heads, **ids, **opt, "dropout": 0.0},
        "bloom": {**wide, "hidden_size": 16, "n_layer": 2, "n_head": 2},
    }
    return AutoConfig.for_model(name.partition("-")[0], **configurations[name], **more)


def build_model(name: str, attention: str | None = None, **more: Any) -> Any:
    """A random model, the same in every call."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(build_config(name, **more), attn_implementation=attention).eval()


def save_model(name: str, folder: Path) -> Path:
    """A random model and its tokenizer in a folder that Transformers can load."""
    build_model(name).save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


class Logs(list[tuple[int, dict[str, float]]]):
    """Collects what `on_log` is given."""

    def __call__(self, metrics: dict[str, float], step: int) -> None:
        self.append((step, metrics))

    def of(self, metric: str) -> dict[int, float]:
        return {step: metrics[metric] for step, metrics in self if metric in metrics}


def perplexity(folder: Path, texts: list[str]) -> float:
    """Document by document, as the definition has it."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    loss = targets = 0.0
    for text in texts:
        ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False).input_ids]])
        with torch.no_grad():
            loss += float(model(input_ids=ids, labels=ids).loss) * (ids.shape[1] - 1)
        targets += ids.shape[1] - 1
    return math.exp(loss / targets)


def run(model: Path, output: Path, settings: TrainingSettings = SETTINGS, **options: Any) -> tuple[Any, Logs]:
    logs = Logs()
    arguments = {"texts": TEXTS, "heldout": HELDOUT, "on_log": logs, "progress": False, **options}
    return train(model, settings=settings, output_dir=output, **arguments), logs


def interrupted(
    model: Path, output: Path, at: int, settings: TrainingSettings = SETTINGS, **options: Any
) -> None:
    """A run that ends as by Ctrl-C once the loss of a step is logged."""

    def stop(metrics: dict[str, float], step: int) -> None:
        if "loss" in metrics and step == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(model, output, settings, on_log=stop, **options)


def same_end(straight: Any, expected: Logs, resumed: Any, logs: Logs) -> None:
    """What was taken up again ends as what nothing disturbed."""
    for step, loss in logs.of("loss").items():
        assert loss == pytest.approx(expected.of("loss")[step], abs=1e-5)
    assert resumed.heldout_perplexity == pytest.approx(straight.heldout_perplexity, rel=1e-5)
    assert resumed.initial_heldout_perplexity == pytest.approx(straight.initial_heldout_perplexity, rel=1e-6)
    for name in ("best_step", "steps", "tokens"):
        assert getattr(resumed, name) == getattr(straight, name)
