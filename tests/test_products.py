"""Few rows times a layer's weights: the same sums, by another order of the operands."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from tests.conftest import tiny_model
from toolformer import products


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "shape", [(7,), (1, 7), (5, 1, 7), (4, 3, 7), (products.FEW, 7), (3, products.FEW, 7)]
)
def test_the_product_is_the_layers(shape: tuple[int, ...], bias: bool) -> None:
    layer = nn.Linear(7, 11, bias=bias)
    rows = torch.randn(shape)
    with torch.inference_mode():
        expected = layer(rows)
        products.quicken(layer)
        found = layer(rows)
    torch.testing.assert_close(found, expected)
    assert found.shape == expected.shape and found.is_contiguous()


def test_only_few_float32_rows_are_multiplied_so(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Linear(7, 11)
    products.quicken(layer)
    taken: list[int] = []
    mm = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b: taken.append(b.shape[1]) or mm(a, b))
    with torch.inference_mode():
        for rows in (1, 2, products.FEW, products.FEW + 1):
            layer(torch.randn(rows, 7))
    assert taken == [2, products.FEW]
    layer(torch.randn(3, 7)).sum().backward()  # gradients flow as ever
    assert layer.weight.grad is not None and len(taken) == 2
    half = nn.Linear(7, 11).to(torch.bfloat16)
    products.quicken(half)
    assert type(half) is nn.Linear


def layers_of(model: nn.Module, kind: type[nn.Module]) -> int:
    return sum(type(module) is kind for module in model.modules())


def test_nothing_outlives_the_model() -> None:
    """Without the garbage collector's help: the next model is loaded when this one is let go."""
    layer = nn.Linear(7, 11)
    products.quicken(layer)
    gone = weakref.ref(layer)
    gc.disable()
    try:
        del layer
        assert gone() is None
    finally:
        gc.enable()


def test_the_stock_model_comes_back() -> None:
    model = tiny_model("llama", 50)
    products.quicken(model)
    ids = torch.arange(20).view(4, 5)
    with torch.inference_mode():
        quick = model(input_ids=ids).logits
        with products.as_it_was(model):
            assert not layers_of(model, products.FewRows) and layers_of(model, nn.Linear)
            stock = model(input_ids=ids).logits
        assert layers_of(model, products.FewRows) and not layers_of(model, nn.Linear)
    torch.testing.assert_close(quick, stock, rtol=1e-5, atol=1e-6)
