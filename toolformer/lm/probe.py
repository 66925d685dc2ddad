"""The probe that finds, when a model is loaded, whether `TreeRows` and padded passes give what stock forward passes give."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from toolformer.errors import UserError, one_line
from toolformer.lm import plain
from toolformer.lm.network import Network
from toolformer.lm.rows import TreeRows

log = logging.getLogger(__name__)

TOLERANCE = {torch.float16: 0.03, torch.bfloat16: 0.1}
"""Largest distance of the fast path's log-probabilities from the stock ones, as a share of their spread; three times the
distance of two stock passes over a common beginning is also accepted. Rounding makes 0.05 in bfloat16 (Gemma 3), a misread
ALiBi 0.4 (MPT)."""
OF_FLOAT32 = 2e-3
NOT_CAUSAL = 0.5
"""Distance of those two passes that no causal model reaches by rounding to 16 bits."""
TEXT = """The number in the next term is 18 + 12 x 3 = 54. Joe Biden was born in Scranton, Pennsylvania, and red is for the \
blood of the martyrs who died in the country's struggle for independence."""
HEAD, CONTEXTS, TAIL = 4, (20, 4), 2
"""Tokens of the probe: the shared prefix, two contexts after it, and the two branches of each."""
HIDDEN = ((0, 16), (0, 0))
"""How many of its context's last tokens are hidden from each branch: a call goes between them."""
SLOW = (
    "model: %s (%s) gives other results with a cache or a mask than without%s; it is run with one full forward pass per "
    "token, which is slow"
)
WINDOW = 6
"""A model's sliding window while it is probed: shorter than the probe's sequences."""


def needs_stock_passes(model: Network) -> bool:
    """Whether a model has to be read with stock passes alone. UserError if it is not causal, or fails."""
    tokens = iter(model.encode(TEXT) * 40)
    head, *contexts = (list(itertools.islice(tokens, count)) for count in (HEAD, *CONTEXTS))
    fed = torch.tensor(list(itertools.islice(tokens, 4 * TAIL))).view(2, 2, TAIL).tolist()  # of each branch
    leaves = [
        head + context[: len(context) - hidden] + tail
        for context, hidden_of, tails in zip(contexts, HIDDEN, fed, strict=True)
        for hidden, tail in zip(hidden_of, tails, strict=True)
    ]
    with _narrow(model.model.config.get_text_config()):
        try:
            stock = plain.read(model, leaves, [range(len(leaf)) for leaf in leaves])
        except Exception as error:
            raise UserError(
                f"model: {model.name} does not run: {one_line(error)}; choose another model"
            ) from error
        shared = len(leaves[1]) - TAIL
        rounding = _distance(stock[0][:shared], stock[1][:shared])
        _check_causal(model, rounding)
        try:
            distance, reason = max(_distances(model, head, contexts, fed, leaves, stock)), ""
        except Exception as error:  # raised by the model's code, which may not accept a cache or mask
            distance, reason = math.inf, f" ({one_line(error, 100)})"
    if distance <= max(TOLERANCE.get(model.dtype, OF_FLOAT32), 3 * rounding):
        return False
    log.warning(SLOW, model.name, model.model.config.model_type, reason)
    return True


def _check_causal(model: Network, rounding: float) -> None:
    """UserError if two passes over a common beginning are too far apart there."""
    if math.isinf(rounding):
        raise UserError(f"model: {model.name} gives no finite numbers in {model.dtype}; set lm.dtype=float32")
    if rounding > (NOT_CAUSAL if model.dtype in TOLERANCE else OF_FLOAT32):
        raise UserError(
            f"model: {model.name} is not causal (its prediction of a token depends on later ones); choose another model"
        )


def _distances(
    model: Network,
    head: list[int],
    contexts: list[list[int]],
    fed: list[list[list[int]]],
    leaves: list[list[int]],
    stock: list[torch.Tensor],
) -> Iterator[float]:
    """Distances from the stock logits: of scored sequences, of rows after a head, of their branches, and of further tokens."""
    scored = leaves[::2]
    for batch, logits in model.logits_after(scored, [range(len(ids)) for ids in scored]):
        for n, part in zip(batch, logits.split([len(scored[n]) for n in batch]), strict=True):
            yield _distance(part, stock[2 * n])
    rows = TreeRows(model, [head])
    read = rows.read([0, 1], [head + context for context in contexts], every=CONTEXTS)
    for row, part in enumerate(read.split(CONTEXTS)):
        yield _distance(part, stock[2 * row][HEAD:-TAIL])
    for row, (context, hidden) in enumerate(zip(contexts, HIDDEN, strict=True)):
        rows.fork(row, [HEAD + len(context) - count for count in hidden])
    tails = [tail for tails in fed for tail in tails]
    steps = torch.stack([rows.step(range(4), [tail[n] for tail in tails]) for n in range(TAIL)], dim=1)
    for part, expected in zip(steps, stock, strict=True):
        yield _distance(part, expected[-TAIL:])
    one_by_one = [rows.read([0, 1], [tails[0][n : n + 1], tails[2][n : n + 1]]) for n in range(TAIL)]
    for row, part in enumerate(torch.stack(one_by_one, dim=1)):
        yield _distance(part, stock[2 * row][-TAIL:])


def _distance(logits: torch.Tensor, stock: torch.Tensor) -> float:
    """Distance of log-probabilities [tokens, vocabulary] as a share of their spread: the median over the tokens.

    In bfloat16 a mixture may choose another expert for a token or two; what a model misreads shows in most tokens.
    """
    ours, stock = (rows.float().log_softmax(-1).clamp(min=-50) for rows in (logits, stock))
    spread = (stock - stock.mean(-1, keepdim=True)).norm(dim=-1).clamp(min=1e-3)
    distance = float(((ours - stock).norm(dim=-1) / spread).median())
    return math.inf if math.isnan(distance) else distance


@contextmanager
def _narrow(config: Any) -> Iterator[None]:
    """Shortens the sliding window, so that the probe's few tokens exceed it."""
    window = getattr(config, "sliding_window", None)
    if window:
        config.sliding_window = min(window, WINDOW)
    try:
        yield
    finally:
        if window:
            config.sliding_window = window
