"""Rows in slots are continued as if each were read afresh."""

import torch

from tests.reference import assert_stock as check
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.slots import Slots

CONTEXTS = [[5, 9, 2, 14], [7, 3], [11, 4, 6, 8, 1, 2]]


def test_slots_continue_independently(language_model: LanguageModel) -> None:
    """From several batches, by one token or several, with tokens rolled back or not read, and rows that are replaced."""
    _, first = language_model.prefill(CONTEXTS[:2])
    _, second = language_model.prefill(CONTEXTS[2:])
    first.step(torch.tensor([[3], [4]]))
    slots = Slots(language_model)
    slots.put([1, 2], first, [1, 0])
    slots.put([0], second, [0])
    sequences = [CONTEXTS[2], [*CONTEXTS[1], 4], [*CONTEXTS[0], 3]]
    logits = slots.step([12, 13, 0], fed=[True, True, False])
    check(logits[:2], language_model, [*sequences[0], 12], [*sequences[1], 13])
    more = [[1, 2, 3], [6, 7]]
    check(slots.extend([2, 0], more), language_model, [*sequences[2], 1, 2, 3], [*sequences[0], 12, 6, 7])
    slots.forget(2, 2)
    slots.put([1], second, [0])
    ended = [[*sequences[0], 12, 6, 7, 9], [*CONTEXTS[2], 9], [*sequences[2], 1, 9]]
    check(slots.step([9, 9, 9], fed=[True] * 3), language_model, *ended)
    slots.keep([2, 1])
    check(slots.step([8, 8], fed=[True] * 2), language_model, [*ended[2], 8], [*ended[1], 8])
