"""Rows: what is read in any order, by any verbs, has the logits of a stock forward pass."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lm.families import BOUNDED, FAST, SLOW, tiny
from tests.lm.replay import Replay
from tests.reference import logits
from toolformer.lm.plain import PlainRows
from toolformer.lm.rows import TreeRows

VERBS = (
    "read",
    "read",
    "read_every",
    "read_one",
    "read_one",
    "fork",
    "fork",
    "step",
    "step",
    "step",
    "rewind",
    "free",
)


@pytest.mark.parametrize("name", [*FAST, *BOUNDED])
@settings(max_examples=12, deadline=None)
@given(verbs=st.lists(st.sampled_from(VERBS), min_size=6, max_size=16), seed=st.integers(0, 2**32))
def test_rows_in_a_store_are_stock_passes(name: str, verbs: list[str], seed: int) -> None:
    """Of some tokens at a time, or all at once."""
    model = tiny(name)
    model.batch_tokens = random.Random(seed).choice((8, 2048))
    replay = Replay(model, seed)
    assert isinstance(replay.rows, TreeRows)
    replay.perform(["read", *verbs])


@pytest.mark.parametrize("name", SLOW)
def test_plain_rows_are_stock_passes(name: str) -> None:
    replay = Replay(tiny(name), seed=3)
    assert isinstance(replay.rows, PlainRows)
    replay.perform(
        [
            "read",
            "read_every",
            "read_one",
            "fork",
            "step",
            "step",
            "rewind",
            "read_one",
            "free",
            "fork",
            "step",
        ]
    )


def test_a_branch_goes_on_when_the_longest_one_has_ended() -> None:
    model = tiny("llama")
    rows = model.rows()
    rows.read([0, 1], [[5, 9, 2, 14, 7, 3], [7]])
    rows.fork(0, [6])
    rows.fork(1, [1])
    rows.step([0, 1], [3, 4])
    torch.testing.assert_close(rows.step([1], [8])[0], logits(model, [7, 4, 8])[-1], atol=1e-3, rtol=0)


def test_the_store_does_not_grow_with_the_rows_read() -> None:
    rows = TreeRows(tiny("llama"))
    for wave in range(0, 80, 8):
        numbers = list(range(wave, wave + 8))
        rows.read(numbers, [[5, 9, 2]] * 8)
        for _ in range(3):
            rows.read(numbers, [[7]] * 8)
        for row in numbers[:4]:  # the others are read beside the next ones
            rows.free(row)
        for row in range(wave - 4, wave):
            rows.free(row)
    assert rows._store.places <= 24
