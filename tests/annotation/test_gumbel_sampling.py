"""Draws that their key alone decides."""

import numpy as np
import torch
from scipy import stats

from tests import reference
from toolformer.annotation.gumbel_sampling import draw, draw_keys, exponentials


def keys(count: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(draw_keys(seed, "d", "qa", 3, 1, count))


def test_keys_depend_only_on_the_sampled_draw() -> None:
    one = draw_keys(0, "d", "qa", 3, 1, 1000)
    assert (one == draw_keys(0, "d", "qa", 3, 1, 1000)).all()
    assert (one[:10] == draw_keys(0, "d", "qa", 3, 1, 10)).all()
    others = [
        (1, "d", "qa", 3, 1), (0, "e", "qa", 3, 1), (0, "d", "mt", 3, 1), (0, "d", "qa", 4, 1), (0, "d", "qa", 3, 2),
    ]  # fmt: skip
    assert all((one != draw_keys(*key, 1000)).all() for key in others)
    assert draw_keys(0, "\ud800", "qa", 3, 1, 1).shape == (1,)  # a broken text has a name, too


def test_numbers_are_exponential_and_independent() -> None:
    numbers = exponentials(keys(400), 500)
    assert stats.kstest(numbers.flatten().numpy(), "expon").pvalue > 1e-3
    # Each entry over many keys, and neighbours of either kind.
    assert min(stats.kstest(numbers[:, i].numpy(), "expon").pvalue for i in range(50)) > 1e-4
    for a, b in ((numbers[:, 1:], numbers[:, :-1]), (numbers[1:], numbers[:-1])):
        assert abs(np.corrcoef(a.flatten().numpy(), b.flatten().numpy())[0, 1]) < 0.01
    consecutive = exponentials(torch.arange(400), 50)
    assert stats.kstest(consecutive.flatten().numpy(), "expon").pvalue > 1e-3


def test_tokens_have_the_distribution_of_the_softmax() -> None:
    logits = torch.tensor([2.0, 0.0, -1.0, 1.0, -30.0, 0.5])
    drawn = draw(logits[None], keys(20_000), torch.zeros(20_000, dtype=torch.long))
    counts = torch.bincount(drawn, minlength=6)
    assert counts[4] == 0
    likely = [0, 1, 2, 3, 5]
    expected = logits.double().softmax(-1)[likely] * 20_000
    expected *= counts[likely].sum() / expected.sum()
    assert stats.chisquare(counts[likely].numpy(), expected.numpy()).pvalue > 1e-3


def test_draws_do_not_depend_on_the_batch() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 1000)
    rows = torch.tensor([2, 0, 0, 1] * 20)
    together = draw(logits, keys(80), rows)
    alone = [int(draw(logits, key[None], row[None])) for row, key in zip(rows, keys(80), strict=True)]
    assert together.tolist() == alone
    assert alone == [reference.drawn(logits[row], int(key)) for row, key in zip(rows, keys(80), strict=True)]
    # Rounding moves hardly a draw: inverting the distribution function, some hundred of these would change.
    logits = 3 * torch.randn(50, 20_000)
    noisy = logits + 1e-5 * torch.randn_like(logits)
    rows = torch.arange(50).repeat(20)
    changed = draw(logits, keys(1000), rows) != draw(noisy, keys(1000), rows)
    assert changed.sum() <= 2
