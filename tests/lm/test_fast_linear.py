"""Few rows times a layer's weights: the same sums, by another order of the operands."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.conftest import tiny_model
from toolformer.lm import fast_linear


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "shape", [(7,), (1, 7), (5, 1, 7), (4, 3, 7), (fast_linear.FEW, 7), (3, fast_linear.FEW, 7)]
)
def test_the_product_is_the_layers(shape: tuple[int, ...], bias: bool) -> None:
    layer = nn.Linear(7, 11, bias=bias)
    rows = torch.randn(shape)
    with torch.inference_mode():
        expected = layer(rows)
        fast_linear.quicken(layer)
        found = layer(rows)
    torch.testing.assert_close(found, expected)
    assert found.shape == expected.shape and found.is_contiguous()


def test_gradients_flow_and_other_number_formats_are_left_alone() -> None:
    layer = nn.Linear(7, 11)
    fast_linear.quicken(layer)
    layer(torch.randn(3, 7)).sum().backward()
    assert layer.weight.grad is not None
    half = nn.Linear(7, 11).to(torch.bfloat16)
    fast_linear.quicken(half)
    assert type(half) is nn.Linear


def test_the_stock_model_comes_back() -> None:
    model = tiny_model("llama", 50)
    fast_linear.quicken(model)
    ids = torch.arange(20).view(4, 5)

    def kinds() -> set[type]:
        return {type(module) for module in model.modules() if isinstance(module, nn.Linear)}

    with torch.inference_mode():
        quick = model(input_ids=ids).logits
        with fast_linear.as_it_was(model):
            assert kinds() == {nn.Linear}
            stock = model(input_ids=ids).logits
        assert kinds() == {fast_linear.FewRows}
    torch.testing.assert_close(quick, stock, rtol=1e-5, atol=1e-6)
