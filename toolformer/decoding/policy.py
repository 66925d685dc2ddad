"""What the policies go by: rank, margin and probability of the start token among all that may come next."""

from __future__ import annotations

import torch


def rank(logits: torch.Tensor, start: int) -> torch.Tensor:
    """The start token's rank from 1 on, [rows]; equally likely tokens do not push it down. Logits [rows, vocabulary]."""
    return (logits > logits[:, start : start + 1]).sum(-1) + 1


def margin(logits: torch.Tensor, start: int) -> torch.Tensor:
    """Logit of the best other token minus that of the start token, [rows]: the bias that makes the start token the best."""
    others = logits.clone()
    others[:, start] = float("-inf")
    return others.amax(-1) - logits[:, start]


def probability(logits: torch.Tensor, start: int) -> torch.Tensor:
    """The start token's probability, [rows]."""
    return logits.softmax(-1)[:, start]


MEASURES = {"topk": rank, "bias": margin, "threshold": probability}
"""By policy, what it goes by."""


def fires(policy: str, measured: float, limit: float) -> bool:
    """Whether a policy starts a call at a place: at most rank k, at most the margin `bias`, at least `threshold`."""
    return measured >= limit if policy == "threshold" else measured <= limit
