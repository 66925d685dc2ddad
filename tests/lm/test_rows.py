"""Rows: what is read in any order, by any verbs, has the logits of a stock forward pass."""

import random
from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lm.families import BOUNDED, FAST, SLOW, tiny
from tests.reference import logits
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.plain import PlainRows
from toolformer.lm.rows import Rows, TreeRows

HEAD = [5, 9, 2, 14, 7, 3, 11, 4]
VERBS = ("read", "read", "every", "one", "one", "fork", "fork", "step", "step", "step", "rewind", "free")
LONGEST = 30
"""Tokens of a row or a branch."""


def replay(rows: Rows, verbs: Sequence[str], seed: int) -> Iterator[tuple[torch.Tensor, list[list[int]]]]:
    """Performs verbs on a few rows, chosen by the seed; yields logits, and the sequences that they are to follow."""
    chance = random.Random(seed)
    held: dict[int, list[int]] = {}
    branches: list[tuple[int, list[int]] | None] = []

    def some(count: int) -> list[int]:
        return [chance.randrange(1, 400) for _ in range(count)]

    def end_branches(ended: Sequence[int]) -> None:
        branches[:] = [None if one is None or one[0] in ended else one for one in branches]
        if not any(branches):
            branches.clear()

    for verb in verbs:
        live = [n for n, one in enumerate(branches) if one and len(one[1]) < LONGEST]
        if verb in ("read", "every"):
            chosen = chance.sample(range(5), chance.randint(1, 4))
            tokens = [some(min(chance.choice((1, 2, 5, 12)), LONGEST - len(held.get(n, ())))) for n in chosen]
            tokens = [HEAD + ids[: LONGEST - 8] if n not in held and ids[0] % 2 else ids for n, ids in zip(chosen, tokens)]
            chosen = [n for n, ids in zip(chosen, tokens) if ids]
            tokens = [ids for ids in tokens if ids]
            if not chosen:
                continue
            end_branches(chosen)
            for n, ids in zip(chosen, tokens):
                held[n] = held.get(n, []) + ids
            counts = [chance.randint(1, len(ids) - 8 if ids[:8] == HEAD and len(ids) > 8 else len(ids)) for ids in tokens]
            if verb == "every":
                ends = [held[n][: len(held[n]) - i] for n, c in zip(chosen, counts) for i in reversed(range(c))]
                yield rows.read(chosen, tokens, every=counts), ends
            else:
                yield rows.read(chosen, tokens), [held[n] for n in chosen]
        elif verb == "one" and (there := [n for n in held if len(held[n]) < LONGEST]):
            chosen = chance.sample(there, chance.randint(1, len(there)))
            fed = [chance.random() < 0.8 for _ in chosen]
            tokens = [some(1) if is_fed else [] for is_fed in fed]
            end_branches(chosen)
            for n, ids in zip(chosen, tokens):
                held[n] = held[n] + ids
            found = rows.read(chosen, torch.tensor(tokens)[:, 0] if all(fed) and seed % 2 else tokens)
            index = [n for n, is_fed in enumerate(fed) if is_fed]
            yield found[index], [held[chosen[n]] for n in index]
        elif verb == "fork" and held:
            row = chance.choice(list(held))
            ends = [chance.randint(1, len(held[row])) for _ in range(chance.randint(1, 3))]
            assert list(rows.fork(row, ends)) == list(range(len(branches), len(branches) + len(ends)))
            branches += [(row, held[row][:end]) for end in ends]
        elif verb == "step" and live:
            named = chance.choices(live, k=chance.randint(1, 6))
            if chance.random() < 0.7:
                named.sort(key=lambda n: branches[n][0])
            tokens = some(len(named))
            branches[:] = [(branches[n][0], [*branches[n][1], token]) for n, token in zip(named, tokens)]
            yield rows.step(named, tokens), [ids for _, ids in branches]
        elif verb == "rewind" and held:
            row = chance.choice(list(held))
            held[row] = held[row][: chance.randint(1, len(held[row]))]
            end_branches([row])
            rows.rewind(row, len(held[row]))
        elif verb == "free" and held:
            row = chance.choice(list(held))
            del held[row]
            end_branches([row])
            rows.free(row)


def check(model: LanguageModel, rows: Rows, verbs: Sequence[str], seed: int) -> None:
    for found, sequences in replay(rows, verbs, seed):
        assert len(found) == len(sequences)
        for row, ids in zip(found, sequences, strict=True):
            torch.testing.assert_close(row, logits(model, ids)[-1], atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", [*FAST, *BOUNDED])
@settings(max_examples=12, deadline=None)
@given(verbs=st.lists(st.sampled_from(VERBS), min_size=6, max_size=16), seed=st.integers(0, 2**32))
def test_rows_in_a_store_are_stock_passes(name: str, verbs: list[str], seed: int) -> None:
    model = tiny(name)
    model.batch_tokens = random.Random(seed).choice((8, 2048))
    rows = model.rows([HEAD])
    assert isinstance(rows, TreeRows)
    check(model, rows, ["read", *verbs], seed)


@pytest.mark.parametrize("name", SLOW)
def test_plain_rows_are_stock_passes(name: str) -> None:
    model = tiny(name)
    rows = model.rows([HEAD])
    assert isinstance(rows, PlainRows)
    check(model, rows, ["read", "every", "one", "fork", "step", "step", "rewind", "one", "free", "fork", "step"], 3)
