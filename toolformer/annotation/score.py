"""Step 3: what a call and its result are worth to the model (paper, section 2, filtering).

    w_t = max(0, 1 − 0.2·t) / Σ_s max(0, 1 − 0.2·s)           1/3, 4/15, 1/5, 2/15, 1/15
    L_i(z) = − Σ_{j=i..n} w_{j−i} · log p_M(x_j | z, x_1..x_{j−1})
    L⁺ = L_i(e(c, r)),   L⁻ = min(L_i(ε), L_i(e(c, ε))),   gain = L⁻ − L⁺

Only five tokens carry weight, so a sequence is cut after them and five rows are projected. What stands before the text
does not depend on i: one pass over [z, x] serves every position that the same call was proposed at, and one pass over
the text L_i(ε) of all positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from toolformer.annotation.candidates import SCORED, Candidate, Window
from toolformer.calls import ApiCall, linearise
from toolformer.language_model import LanguageModel

HORIZON = 5
_RAW = [max(0.0, 1.0 - 0.2 * t) for t in range(HORIZON)]
WEIGHTS: tuple[float, ...] = tuple(weight / sum(_RAW) for weight in _RAW)
"""w_0..w_4; every further weight is zero and these sum to one."""

_Given = tuple[str, int, tuple[int, ...]]
"""Document, start of its window, and the tokens z that stand before the window."""


def score(
    language_model: LanguageModel, candidates: Sequence[Candidate], dtype: str = "auto"
) -> list[Candidate]:
    """The candidates with their three losses in nats; those already dropped are passed through.

    log p is taken from the logits in `dtype`: auto (float32), float32 or bfloat16. All three losses are kept, so that
    the baseline, paper or plain, is a choice made when merging.
    """
    precision = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    windows: dict[_Given, Window] = {}
    places: dict[_Given, set[int]] = {}
    heads: list[tuple[_Given, _Given, _Given] | None] = []
    encoded: dict[ApiCall, tuple[int, ...]] = {}
    for candidate in candidates:
        if candidate.status != SCORED or candidate.call is None:
            heads.append(None)
            continue
        call, window, i = candidate.call, candidate.window, candidate.token_position
        for one in (call, call.with_result("")):
            if one not in encoded:
                encoded[one] = (*language_model.own_prefix, *language_model.encode(linearise(one)))
        # The first token of a text has no context: the document start stands in for it. Before other tokens it would
        # be more than x_1..x_{i-1}.
        nothing = language_model.document_start() if i == window.start else language_model.own_prefix
        given = [
            (window.document.doc_id, window.start, head)
            for head in (encoded[call], encoded[call.with_result("")], tuple(nothing))
        ]
        for one_given in given:
            windows[one_given] = window
            places.setdefault(one_given, set()).add(i)
        heads.append((given[0], given[1], given[2]))
    losses = _losses(language_model, windows, places, precision)
    scored: list[Candidate] = []
    for candidate, given_of in zip(candidates, heads, strict=True):
        if given_of:
            result, no_result, none = (losses[given, candidate.token_position] for given in given_of)
            candidate = replace(candidate, loss_result=result, loss_no_result=no_result, loss_none=none)
        scored.append(candidate)
    return scored


def weighted_loss(log_probs: torch.Tensor) -> float:
    """− Σ w_t · log p of the tokens from position i on; shape [at most 5], fewer at the end of a text."""
    return float(-(log_probs.double() * torch.tensor(WEIGHTS[: len(log_probs)], dtype=torch.double)).sum())


def _losses(
    language_model: LanguageModel,
    windows: dict[_Given, Window],
    places: dict[_Given, set[int]],
    dtype: torch.dtype,
) -> dict[tuple[_Given, int], float]:
    """L_i(z) of every place: one pass over [z, x_1..x_{i+4}] up to the last i that the same z stands for."""
    sequences: list[list[int]] = []
    wanted: list[list[int]] = []
    owners: list[tuple[_Given, list[int], int]] = []
    for given, of_given in places.items():
        window = windows[given]
        head, ids, start = list(given[2]), window.encoding.ids, window.start
        # A context that does not fit is cut on its left, for each place as little as it needs.
        room = language_model.context_length + 1 - len(head)
        fits = min(max(of_given) + HORIZON, len(ids)) - start <= room
        for group in [sorted(of_given)] if fits else [[i] for i in sorted(of_given)]:
            end = min(group[-1] + HORIZON, len(ids))
            first = start if fits else max(start, min(end - room, group[0]))
            shift = len(head) - first
            sequences.append(head + ids[first:end])
            wanted.append(sorted({j + shift for i in group for j in range(i, min(i + HORIZON, len(ids)))}))
            owners.append((given, group, shift))
    losses: dict[tuple[_Given, int], float] = {}
    scores = language_model.score(sequences, wanted, dtype)
    for (given, group, shift), indices, of_sequence in zip(owners, wanted, scores, strict=True):
        row = {index: n for n, index in enumerate(indices)}
        tokens = len(windows[given].encoding.ids)
        for i in group:
            rows = [row[j + shift] for j in range(i, min(i + HORIZON, tokens))]
            losses[given, i] = weighted_loss(of_sequence.log_probs[rows])
    return losses
