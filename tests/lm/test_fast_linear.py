"""Linear layers and attention of a CPU give what the stock ones give."""

import pytest
import torch
from torch import nn
from transformers.integrations import sdpa_attention

from tests.build import tiny_model
from toolformer.lm import fast_linear
from toolformer.lm.language_model import LanguageModel


def test_a_small_batch_linear_layer_is_the_stock_one() -> None:
    """By another order of the operands; gradients flow, and other number formats are left alone."""
    few = fast_linear.MAX_ROWS
    for shape in ((7,), (1, 7), (5, 1, 7), (4, 3, 7), (few, 7), (3, few, 7)):
        for bias in (True, False):
            layer, rows = nn.Linear(7, 11, bias=bias), torch.randn(shape)
            with torch.inference_mode():
                expected = layer(rows)
                fast_linear.use_fast_linear(layer)
                found = layer(rows)
            torch.testing.assert_close(found, expected)
            assert found.shape == expected.shape and found.is_contiguous()
    layer(torch.randn(3, 7)).sum().backward()
    assert layer.weight.grad is not None
    half = nn.Linear(7, 11).to(torch.bfloat16)
    fast_linear.use_fast_linear(half)
    assert type(half) is nn.Linear
    model, ids = tiny_model("llama", 50), torch.arange(20).view(4, 5)
    with torch.inference_mode():
        stock = model(input_ids=ids).logits
        fast_linear.use_fast_linear(model)
        quick = model(input_ids=ids).logits
    assert any(isinstance(module, fast_linear.SmallBatchLinear) for module in model.modules())
    torch.testing.assert_close(quick, stock, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("device", "shared"), [("cpu", True), ("meta", False)])
def test_only_a_cpu_reads_shared_keys_without_a_copy(
    tiny_gpt2: LanguageModel, device: str, shared: bool
) -> None:
    """On CUDA a mask then takes a slow kernel: a model on a CPU decides nothing for one there."""
    assert tiny_gpt2.device.type == "cpu"
    mask, keys = torch.zeros(1, 1, 3, 3, device=device), torch.zeros(1, 2, 3, 8, device=device)
    assert sdpa_attention.use_gqa_in_sdpa(mask, keys, keys) == shared
