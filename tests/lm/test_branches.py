"""Branches of a shared cache are continued as if each were read afresh."""

import torch

from tests.reference import assert_stock as check
from toolformer.lm.language_model import LanguageModel

CONTEXTS = [[5, 9, 2, 14], [7, 3], [11, 4, 6, 8, 1, 2]]


def test_branches_see_only_their_tokens(language_model: LanguageModel) -> None:
    """Several columns a row, of which some go on and branch again."""
    _, branches = language_model.prefill(CONTEXTS)
    branches.select(torch.zeros(3, 2, dtype=torch.long))
    branches.step(torch.tensor([[1, 2], [3, 4], [5, 6]]))
    branches.step(torch.tensor([[7, 8], [9, 10], [11, 12]]))
    branches.select(torch.tensor([[1, 1, 0], [0, 1, 0], [1, 0, 1]]))
    logits = branches.step(torch.tensor([[3, 4, 5], [6, 7, 8], [9, 1, 2]]))
    tails = [
        [[2, 8, 3], [2, 8, 4], [1, 7, 5]],
        [[3, 9, 6], [4, 10, 7], [3, 9, 8]],
        [[6, 12, 9], [5, 11, 1], [6, 12, 2]],
    ]
    for row, context, of_row in zip(logits, CONTEXTS, tails, strict=True):
        check(row, language_model, *([*context, *tail] for tail in of_row))
