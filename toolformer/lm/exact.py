"""The slow, exact path: stock forward passes without cache, mask or padding; and the probe that finds models that need it.

The fast path feeds a cache, a mask and position ids. A model may ignore any of them, count keys instead of tokens
(ALiBi), keep a state instead of keys (Mamba), or treat long sequences differently. The slow path caches only the tokens,
in place of keys and values, and reads each sequence from its beginning for every requested token.
"""

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from transformers.cache_utils import Cache

from toolformer.errors import UserError, one_line
from toolformer.lm import batching
from toolformer.lm.branches import Branches, Prefix
from toolformer.lm.kv_cache import GrowingLayer

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


class Model(Protocol):
    """The part of `LanguageModel` that is used here."""

    name: str
    model: Any
    device: torch.device
    dtype: torch.dtype
    batch_tokens: int
    fast_length: float

    def encode(self, text: str) -> list[int]: ...

    def logits_after(
        self, sequences: Sequence[Sequence[int]], indices: Sequence[Sequence[int]]
    ) -> Iterator[tuple[list[int], torch.Tensor]]: ...

    def prefill(
        self,
        contexts: Sequence[Sequence[int]],
        prefix: Prefix | None = None,
        keep: Sequence[int] | None = None,
    ) -> tuple[torch.Tensor, Branches]: ...


def is_needed(cache: Cache, keys: int, fast_length: float) -> bool:
    """Whether a batch of so many keys takes the slow path; once taken, a batch stays on it."""
    return keys > fast_length or (fast_length < math.inf and len(cache.layers) == 1)


def remember(cache: Cache, ids: torch.Tensor) -> torch.Tensor:
    """Adds tokens [rows, length] to a cache's last layer, as its keys; returns all tokens fed so far, [rows, tokens]."""
    keys = ids[:, None, :, None]
    layer = cache.layers[-1] if cache.layers else None
    holds_tokens = isinstance(layer, GrowingLayer) and layer.keys.dtype == keys.dtype
    tokens, _ = cache.update(keys, keys, len(cache.layers) - holds_tokens)
    return tokens[:, 0, :, 0]


def forward(
    model: Model, ids: torch.Tensor, visible: torch.Tensor, cache: Cache, keep: int | torch.Tensor
) -> torch.Tensor:
    """As `LanguageModel.forward`; afterwards the cache holds only tokens."""
    del cache.layers[:-1]
    tokens = remember(cache, ids.to(model.device)).cpu()
    rows, length = ids.shape
    mask = keep if isinstance(keep, torch.Tensor) else batching.last_tokens([keep or length] * rows, length)
    sequences = [tuple(tokens[row][visible[row, n]].tolist()) for row, n in mask.nonzero().tolist()]
    stacked = torch.stack(_last_logits(model, sequences))
    return stacked if isinstance(keep, torch.Tensor) else stacked.view(rows, -1, stacked.shape[-1])


def _last_logits(model: Model, sequences: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    """Logits [vocabulary] after each sequence; one pass serves all sequences that are its beginning."""
    passes: list[tuple[int, ...]] = []
    pass_of: dict[tuple[int, ...], int] = {}
    for sequence in sorted(set(sequences), key=len, reverse=True):
        longer = (n for n, other in enumerate(passes) if other[: len(sequence)] == sequence)
        pass_of[sequence] = next(longer, len(passes))
        if pass_of[sequence] == len(passes):
            passes.append(sequence)
    ends: list[list[int]] = [[] for _ in passes]
    for sequence, n in pass_of.items():
        ends[n].append(len(sequence) - 1)
    logits = read(model, passes, ends)
    return [logits[pass_of[ids]][ends[pass_of[ids]].index(len(ids) - 1)] for ids in sequences]


def read(
    model: Model, sequences: Sequence[Sequence[int]], indices: Sequence[Sequence[int]]
) -> list[torch.Tensor]:
    """Logits [indices, vocabulary] after these tokens of each sequence; only sequences of equal length share a pass."""
    lengths = [len(ids) for ids in sequences]
    logits = [torch.empty(0)] * len(sequences)

    def fits(batch: list[int]) -> bool:
        size = lengths[batch[0]]
        return size == lengths[batch[-1]] and size * len(batch) <= batching.rows_per_batch(model.batch_tokens)

    for batch in batching.batches(lengths, fits):
        ids = torch.tensor([list(sequences[n]) for n in batch], device=model.device)
        with torch.inference_mode():
            rows = model.model(input_ids=ids, use_cache=False).logits
        for n, row in zip(batch, rows, strict=True):
            logits[n] = row[list(indices[n])]
    return logits


def probe(model: Model) -> None:
    """Puts a model whose fast path differs from the stock one on the slow path. UserError if it is not causal or fails."""
    tokens = iter(model.encode(TEXT) * 40)
    head, *contexts = (list(itertools.islice(tokens, count)) for count in (HEAD, *CONTEXTS))
    fed = torch.tensor(list(itertools.islice(tokens, 4 * TAIL))).view(2, 2, TAIL)  # [context, branch, token]
    leaves = [
        head + context[: len(context) - hidden] + tail
        for context, hidden_of, tails in zip(contexts, HIDDEN, fed.tolist(), strict=True)
        for hidden, tail in zip(hidden_of, tails, strict=True)
    ]
    with _narrow(model.model.config.get_text_config()):
        try:
            stock = read(model, leaves, [range(len(leaf)) for leaf in leaves])
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
    if distance > max(TOLERANCE.get(model.dtype, OF_FLOAT32), 3 * rounding):
        model.fast_length = 0
    if not model.fast_length:
        log.warning(SLOW, model.name, model.model.config.model_type, reason)


def _check_causal(model: Model, rounding: float) -> None:
    """UserError if two passes over a common beginning are too far apart there."""
    if math.isinf(rounding):
        raise UserError(f"model: {model.name} gives no finite numbers in {model.dtype}; set lm.dtype=float32")
    if rounding > (NOT_CAUSAL if model.dtype in TOLERANCE else OF_FLOAT32):
        raise UserError(
            f"model: {model.name} is not causal (its prediction of a token depends on later ones); choose another model"
        )


def _distances(
    model: Model,
    head: list[int],
    contexts: list[list[int]],
    fed: torch.Tensor,
    leaves: list[list[int]],
    stock: list[torch.Tensor],
) -> Iterator[float]:
    """Distances from the stock logits: of scored sequences, of contexts after a prefix, and of their branches."""
    scored = leaves[::2]
    for batch, logits in model.logits_after(scored, [range(len(ids)) for ids in scored]):
        for n, part in zip(batch, logits.split([len(scored[n]) for n in batch]), strict=True):
            yield _distance(part, stock[2 * n])
    prefix = Prefix(head, model.prefill([head])[1].cache)
    logits, branches = model.prefill(contexts, prefix, CONTEXTS)
    for row, part in enumerate(logits.split(CONTEXTS)):
        yield _distance(part, stock[2 * row][HEAD:-TAIL])
    branches.hide_last(torch.tensor(HIDDEN))
    steps = torch.stack([branches.step(fed[:, :, n]) for n in range(TAIL)], dim=2).flatten(0, 1)
    for part, expected in zip(steps, stock, strict=True):
        yield _distance(part, expected[-TAIL:])


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
