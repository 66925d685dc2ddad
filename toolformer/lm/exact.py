"""The slow, exact path: stock forward passes without cache, mask or padding; and the probe that says which models need it.

The fast path feeds a cache, a mask and position ids. A model may heed none of them, count keys where it should count tokens
(ALiBi), keep a state instead of keys (Mamba), or read long sequences otherwise. The slow path keeps the tokens alone, in
place of keys and values, and reads each sequence from its beginning for every token that is asked for.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import Cache

from toolformer.errors import UserError, one_line
from toolformer.lm import batching
from toolformer.lm.batching import Prefix
from toolformer.lm.kv_cache import GrowingLayer

if TYPE_CHECKING:
    from toolformer.lm.language_model import LanguageModel

log = logging.getLogger(__name__)

TOLERANCE = {torch.float16: 0.03, torch.bfloat16: 0.1}
"""How far the fast path's log-probabilities may be from the stock ones, as a share of their spread, or thrice as far as the
stock ones of two sequences are where these begin alike. Rounding makes 0.05 in bfloat16 (Gemma 3), a misread ALiBi 0.4 (MPT)."""
OF_FLOAT32 = 2e-3
NOT_CAUSAL = 0.5
"""How far those two are apart in no causal model, whatever is rounded to 16 bits."""
TEXT = """The number in the next term is 18 + 12 x 3 = 54. Joe Biden was born in Scranton, Pennsylvania, and red is for the \
blood of the martyrs who died in the country's struggle for independence."""
HEAD, CONTEXTS, TAIL = 4, (20, 4), 2
"""Tokens of the probe: of the shared prefix, of two contexts behind it, and of the two branches of each."""
HIDDEN = ((0, 16), (0, 0))
"""How many of its context's last tokens a branch does not see: a call is written between them."""
SLOW = (
    "model: %s (%s) computes something else with a cache or a mask than without%s; it is run with one full forward pass for "
    "each token, which is slow"
)
WINDOW = 6
"""A model's sliding window while it is probed: shorter than what is read."""


def is_needed(cache: Cache, keys: int, fast_length: float) -> bool:
    """Whether a batch of so many keys takes the slow path; one that has taken it goes on with it."""
    return keys > fast_length or (fast_length < math.inf and len(cache.layers) == 1)


def remember(cache: Cache, ids: torch.Tensor) -> torch.Tensor:
    """Adds tokens [rows, length] to a cache's last layer, as its keys; returns all that it has been fed, [rows, tokens]."""
    keys = ids[:, None, :, None]
    layer = cache.layers[-1] if cache.layers else None
    begun = isinstance(layer, GrowingLayer) and layer.keys.dtype == keys.dtype
    held, _ = cache.update(keys, keys, len(cache.layers) - begun)
    return held[:, 0, :, 0]


def forward(
    model: LanguageModel, ids: torch.Tensor, visible: torch.Tensor, cache: Cache, keep: int | torch.Tensor
) -> torch.Tensor:
    """As `LanguageModel.forward`; from here on the cache holds tokens only."""
    del cache.layers[:-1]
    tokens = remember(cache, ids.to(model.device)).cpu()
    rows, length = ids.shape
    asked = keep if isinstance(keep, torch.Tensor) else batching.last_tokens([keep or length] * rows, length)
    sequences = [tuple(tokens[row][visible[row, n]].tolist()) for row, n in asked.nonzero().tolist()]
    # One pass serves every sequence that another one begins with.
    passes: list[tuple[int, ...]] = []
    places: dict[tuple[int, ...], int] = {}
    for sequence in sorted(set(sequences), key=len, reverse=True):
        begins = (n for n, longer in enumerate(passes) if longer[: len(sequence)] == sequence)
        places[sequence] = next(begins, len(passes))
        if places[sequence] == len(passes):
            passes.append(sequence)
    ends: list[list[int]] = [[] for _ in passes]
    for sequence, place in places.items():
        ends[place].append(len(sequence) - 1)
    logits = read(model, passes, ends)
    found = {
        sequence: logits[place][ends[place].index(len(sequence) - 1)] for sequence, place in places.items()
    }
    stacked = torch.stack([found[sequence] for sequence in sequences])
    return stacked if isinstance(keep, torch.Tensor) else stacked.view(rows, -1, stacked.shape[-1])


def read(
    model: LanguageModel, sequences: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]
) -> list[torch.Tensor]:
    """Logits [wanted, vocabulary] behind the wanted tokens of each sequence; only equally long ones share a pass."""
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
            logits[n] = row[list(wanted[n])]
    return logits


def probe(model: LanguageModel) -> None:
    """Puts a model whose fast path is not the stock one on the slow path. UserError if it is not causal, or does not run."""
    tokens = iter(model.encode(TEXT) * 40)
    head, *contexts = (list(itertools.islice(tokens, count)) for count in (HEAD, *CONTEXTS))
    fed = torch.tensor(list(itertools.islice(tokens, 4 * TAIL))).view(2, 2, TAIL)  # [context, branch, token]
    leaves = [
        head + context[: len(context) - hidden] + tail
        for context, of_context, tails in zip(contexts, HIDDEN, fed.tolist(), strict=True)
        for hidden, tail in zip(of_context, tails, strict=True)
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
        if math.isinf(rounding):
            raise UserError(
                f"model: {model.name} gives no finite numbers in {model.dtype}; set lm.dtype=float32"
            )
        if rounding > (NOT_CAUSAL if model.dtype in TOLERANCE else OF_FLOAT32):
            raise UserError(
                f"model: {model.name} is not causal (what it says of a token depends on those after it); choose another model"
            )
        try:
            distance, reason = max(_distances(model, head, contexts, fed, leaves, stock)), ""
        except Exception as error:  # of the model's own code, which may not know what it is fed
            distance, reason = math.inf, f" ({one_line(error, 100)})"
    if distance > max(TOLERANCE.get(model.dtype, OF_FLOAT32), 3 * rounding):
        model.fast_length = 0
    if not model.fast_length:
        log.warning(SLOW, model.name, model.model.config.model_type, reason)


def _distances(
    model: LanguageModel,
    head: list[int],
    contexts: list[list[int]],
    fed: torch.Tensor,
    leaves: list[list[int]],
    stock: list[torch.Tensor],
) -> Iterator[float]:
    """How far scored sequences, contexts behind a prefix and their branches are from the stock logits."""
    scored = leaves[::2]
    for batch, logits in model._logits_behind(scored, [range(len(ids)) for ids in scored], torch.float32):
        for n, part in zip(batch, logits.split([len(scored[n]) for n in batch]), strict=True):
            yield _distance(part, stock[2 * n])
    prefix = Prefix(head, model.prefill([head])[1].cache)
    logits, branches = model.prefill(contexts, prefix, CONTEXTS)
    for row, part in enumerate(logits.split(CONTEXTS)):
        yield _distance(part, stock[2 * row][HEAD:-TAIL])
    hidden = torch.tensor(HIDDEN)
    cached = branches.visible.shape[2]
    branches.visible = branches.visible & (torch.arange(cached) < cached - hidden[:, :, None])
    branches.positions = branches.positions - hidden
    steps = torch.stack([branches.step(fed[:, :, n]) for n in range(TAIL)], dim=2).flatten(0, 1)
    for part, of_leaf in zip(steps, stock, strict=True):
        yield _distance(part, of_leaf[-TAIL:])


def _distance(found: torch.Tensor, stock: torch.Tensor) -> float:
    """How far log-probabilities [tokens, vocabulary] are apart, as a share of their spread: the median of the tokens.

    In bfloat16 an expert of a mixture may be another for a token or two; what a model reads wrongly, most tokens show.
    """
    found, stock = (rows.float().log_softmax(-1).clamp(min=-50) for rows in (found, stock))
    spread = (stock - stock.mean(-1, keepdim=True)).norm(dim=-1).clamp(min=1e-3)
    distance = float(((found - stock).norm(dim=-1) / spread).median())
    return math.inf if math.isnan(distance) else distance


@contextmanager
def _narrow(config: Any) -> Iterator[None]:
    """A sliding window that the probe's few tokens go beyond."""
    window = getattr(config, "sliding_window", None)
    if window:
        config.sliding_window = min(window, WINDOW)
    try:
        yield
    finally:
        if window:
            config.sliding_window = window
