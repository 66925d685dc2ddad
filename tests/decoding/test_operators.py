"""What a decoding step costs a GPU's host, counted on a CPU: operators dispatched, and waits for the device."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from tests.build import PROMPTS, tiny_tokenizer, tools
from toolformer.decoding.decoder import Decoder
from toolformer.lm.language_model import LanguageModel

ROWS, LAYERS = 16, 6
WAITS = ("item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "nonzero")
"""Functions of tensors for which the host waits for the device."""
COPIES = ("tensor", "as_tensor", "from_numpy")
"""Functions that copy from the host to the device."""


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[getattr(func, "__name__", "")] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.3, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    made = LanguageModel(LlamaForCausalLM(config), tokenizer)
    with torch.no_grad():
        made.model.lm_head.weight[made.start_id] = 0  # no call starts
    return made


def per_step(write: Callable[[int], object]) -> tuple[float, float, float]:
    """Operators, waits and copies of a step: of ten further tokens, shared among them."""
    found = []
    for tokens in (10, 20):
        with Operators() as operators:
            write(tokens)
        with Functions() as functions:
            write(tokens)
        waits, copies = (sum(functions.counts[name] for name in names) for names in (WAITS, COPIES))
        waits += sum(
            operators.counts[name] for name in ("aten.nonzero.default", "aten.masked_select.default")
        )
        found.append((sum(operators.counts.values()), waits, copies))
    return tuple((after - before) / 10 for before, after in zip(*found, strict=True))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def stock(model: LanguageModel) -> tuple[float, float, float]:
    tokenizer = model.tokenizer
    tokenizer.padding_side = "left"
    batch = tokenizer((PROMPTS * 4)[:ROWS], return_tensors="pt", padding=True)
    return per_step(
        lambda tokens: model.model.generate(
            **batch, do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens, pad_token_id=0
        )
    )


@pytest.mark.parametrize("settings", [{"mode": "plain"}, {"k": 1}])
def test_a_step_costs_the_host_no_more_than_stock_generate(
    model: LanguageModel, stock: tuple[float, float, float], settings: dict[str, Any]
) -> None:
    def write(tokens: int) -> None:
        decoder = Decoder(model, tools(), batch_size=ROWS, min_new_tokens=tokens, **settings)
        found = decoder.complete((PROMPTS * 4)[:ROWS], max_new_tokens=tokens)
        assert {one.tokens for one in found} == {tokens} and not any(one.failed for one in found)

    operators, waits, copies = per_step(write)
    assert operators <= stock[0]
    assert waits <= stock[1]
    assert copies == 0


def test_a_last_prompt_joins_a_full_batch(model: LanguageModel) -> None:
    """Alone it would take as many steps as the whole batch before it."""
    counts = []
    for prompts in (16, 17):
        with Functions() as functions:
            decoder = Decoder(model, {}, batch_size=16, min_new_tokens=10, k=0)
            decoder.complete((PROMPTS * 17)[:prompts], max_new_tokens=10)
        counts.append(functions.counts["scaled_dot_product_attention"])
    assert counts[1] < 1.5 * counts[0]
