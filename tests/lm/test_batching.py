"""Batches stay within their budgets, and fast layers give what the stock ones give.

That caches which grow in place change nothing is held to the textbook by what uses them, in `annotation` and `decoding`.
"""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.conftest import tiny_model
from toolformer.lm import fast_linear
from toolformer.lm.batching import by_length, rows_per_batch


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 1500)), min_size=1, max_size=60),
    st.sampled_from([256, 2048, 16384]),
)
def test_batches_hold_every_sequence_once_within_the_budgets(
    sizes: list[tuple[int, int]], tokens: int
) -> None:
    lengths, rows = [length for length, _ in sizes], [count for _, count in sizes]
    batches = list(by_length(lengths, rows, tokens))
    assert sorted(n for batch in batches for n in batch) == list(range(len(sizes)))
    for batch in batches:
        if len(batch) > 1:
            assert len(batch) * max(lengths[n] for n in batch) <= tokens
            assert sum(rows[n] for n in batch) <= rows_per_batch(tokens)


def test_few_rows_times_a_layers_weights_are_the_layers() -> None:
    """By another order of the operands; gradients flow, and other number formats are left alone."""
    few = fast_linear.FEW
    for shape in ((7,), (1, 7), (5, 1, 7), (4, 3, 7), (few, 7), (3, few, 7)):
        for bias in (True, False):
            layer, rows = nn.Linear(7, 11, bias=bias), torch.randn(shape)
            with torch.inference_mode():
                expected = layer(rows)
                fast_linear.quicken(layer)
                found = layer(rows)
            torch.testing.assert_close(found, expected)
            assert found.shape == expected.shape and found.is_contiguous()
    layer(torch.randn(3, 7)).sum().backward()
    assert layer.weight.grad is not None
    half = nn.Linear(7, 11).to(torch.bfloat16)
    fast_linear.quicken(half)
    assert type(half) is nn.Linear
    model, ids = tiny_model("llama", 50), torch.arange(20).view(4, 5)
    with torch.inference_mode():
        stock = model(input_ids=ids).logits
        fast_linear.quicken(model)
        quick = model(input_ids=ids).logits
    assert any(isinstance(module, fast_linear.FewRows) for module in model.modules())
    torch.testing.assert_close(quick, stock, rtol=1e-5, atol=1e-6)
