"""Caches that grow in place and fast layers give what a fresh reading of the same tokens by the stock model gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests import textbook
from tests.conftest import tiny_model
from toolformer.lm import fast_linear
from toolformer.lm.batching import Branches, by_length, rows_per_batch
from toolformer.lm.language_model import LanguageModel

CONTEXTS = [[5, 9, 2, 14], [7, 3], [11, 4, 6, 8, 1, 2]]


def check(logits: torch.Tensor, language_model: LanguageModel, *sequences: list[int]) -> None:
    """Each row of logits is that of a fresh reading of its tokens."""
    for row, ids in zip(logits, sequences, strict=True):
        with torch.inference_mode():
            expected = language_model.model(torch.tensor([ids])).logits[0, -1]
        torch.testing.assert_close(row, expected, atol=1e-4, rtol=0)


def test_rows_go_on_side_by_side_with_what_each_was_fed(language_model: LanguageModel) -> None:
    """Of several batches; with as many tokens as each has; without what was taken back or fed to an idle row."""
    _, first = language_model.prefill(CONTEXTS[:2])
    _, second = language_model.prefill(CONTEXTS[2:])
    first.step(torch.tensor([[3], [4]]))
    joined = Branches.join([(second, [0]), (first, [1])])
    logits = joined.step(torch.tensor([[12], [13]]))[:, 0]
    check(logits, language_model, [*CONTEXTS[2], 12], [*CONTEXTS[1], 4, 13])
    _, branches = language_model.prefill(CONTEXTS)
    more = [[1, 2, 3], [4], [6, 7]]
    sequences = [context + tail for context, tail in zip(CONTEXTS, more, strict=True)]
    check(branches.extend(more), language_model, *sequences)
    for token in (1, 2, 3):
        branches.step(torch.tensor([[token]] * 3), idle=[2])
    branches.forget(0, 2)
    logits = branches.step(torch.tensor([[10], [10], [10]]))[:, 0]
    first, second, third = sequences
    check(logits, language_model, [*first, 1, 10], [*second, 1, 2, 3, 10], [*third, 10])


def test_a_prefix_is_shared_and_not_changed_by_those_who_go_on_from_it(language_model: LanguageModel) -> None:
    prefix = language_model.prefix([5, 9, 2, 14, 3, 7])
    for _ in range(2):
        logits, branches = language_model.prefill([[8], [1, 6]], prefix)
        branches.step(torch.tensor([[2], [2]]))
        check(logits, language_model, [*prefix.ids, 8], [*prefix.ids, 1, 6])


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


def test_only_the_asked_tokens_are_scored(language_model: LanguageModel) -> None:
    sequences = [[5, 9, 2, 14, 3], [7, 3, 8]]
    found = language_model.score(sequences, [[2, 4], [1]])
    for ids, indices, scores in zip(sequences, [[2, 4], [1]], found, strict=True):
        for index, log_prob in zip(indices, scores.log_probs.tolist(), strict=True):
            expected = textbook.logits(language_model, ids[:index])[-1].log_softmax(-1)[ids[index]]
            assert log_prob == pytest.approx(float(expected), abs=1e-4)


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
