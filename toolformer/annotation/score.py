"""Step 3: what a call and its result are worth to the model (paper, section 2, filtering).

    w_t = max(0, 1 − 0.2·t) / Σ_s max(0, 1 − 0.2·s)           1/3, 4/15, 1/5, 2/15, 1/15
    L_i(z) = − Σ_{j=i..n} w_{j−i} · log p_M(x_j | z, x_1..x_{j−1})
    L⁺ = L_i(e(c, r)),   L⁻ = min(L_i(ε), L_i(e(c, ε))),   gain = L⁻ − L⁺

Only five tokens carry weight, so a sequence is cut after them and five rows are projected. Each distinct call is
scored once, and L_i(ε) comes from one pass over the text for all its positions.
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

_Place = tuple[str, int, int]


def score(
    language_model: LanguageModel, candidates: Sequence[Candidate], dtype: str = "auto"
) -> list[Candidate]:
    """The candidates with their three losses in nats; those already dropped are passed through.

    log p is taken from the logits in `dtype`: auto (float32), float32 or bfloat16. All three losses are kept, so that
    the baseline, paper or plain, is a choice made when merging.
    """
    precision = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    calls: dict[tuple[_Place, ApiCall], Candidate] = {}
    for candidate in candidates:
        if candidate.status == SCORED and candidate.call is not None:
            calls.setdefault((_place(candidate), candidate.call), candidate)
    with_call = _losses_with_calls(language_model, list(calls.values()), precision)
    losses = dict(zip(calls, with_call, strict=True))
    plain = _losses_without_calls(language_model, list(calls.values()), precision)
    scored: list[Candidate] = []
    for candidate in candidates:
        if candidate.status == SCORED and candidate.call is not None:
            place = _place(candidate)
            result, no_result = losses[place, candidate.call]
            candidate = replace(
                candidate, loss_result=result, loss_no_result=no_result, loss_none=plain[place]
            )
        scored.append(candidate)
    return scored


def weighted_loss(log_probs: torch.Tensor) -> float:
    """− Σ w_t · log p of the tokens from position i on; shape [at most 5], fewer at the end of a text."""
    return float(-(log_probs.double() * torch.tensor(WEIGHTS[: len(log_probs)], dtype=torch.double)).sum())


def _place(candidate: Candidate) -> _Place:
    window = candidate.window
    return (window.document.doc_id, window.start, candidate.token_position)


def _targets(candidate: Candidate) -> tuple[list[int], list[int]]:
    """(x_1..x_{i−1}, x_i..x_{i+4}); the targets may run past the window, not past the text."""
    ids = candidate.window.encoding.ids
    i = candidate.token_position
    return ids[candidate.window.start : i], ids[i : i + HORIZON]


def _losses_with_calls(
    language_model: LanguageModel, candidates: Sequence[Candidate], dtype: torch.dtype
) -> list[tuple[float, float]]:
    """(L(e(c, r)), L(e(c, ε))) of each candidate: the call stands before the whole text."""
    sequences: list[list[int]] = []
    keep: list[int] = []
    for candidate in candidates:
        assert candidate.call is not None
        context, targets = _targets(candidate)
        for call in (candidate.call, candidate.call.with_result("")):
            call_ids = language_model.own_prefix + language_model.encode(linearise(call))
            sequences.append(_fitted(language_model, call_ids, context, targets))
            keep.append(len(targets))
    losses = [weighted_loss(scores.log_probs) for scores in language_model.score(sequences, keep, dtype)]
    return list(zip(losses[::2], losses[1::2], strict=True))


def _losses_without_calls(
    language_model: LanguageModel, candidates: Sequence[Candidate], dtype: torch.dtype
) -> dict[_Place, float]:
    """L_i(ε) of every place, one pass for each window.

    The first token of a text has no context: the document start stands in for it, in a pass of its own, since with it
    the other positions would be conditioned on more than x_1..x_{i−1}.
    """
    groups: dict[tuple[str, int, bool], tuple[Window, set[int]]] = {}
    for candidate in candidates:
        doc_id, start, i = _place(candidate)
        alone = i == start and not language_model.own_prefix
        groups.setdefault((doc_id, start, alone), (candidate.window, set()))[1].add(i)
    sequences: list[list[int]] = []
    keep: list[int] = []
    for (_, _, alone), (window, places) in groups.items():
        ids = window.encoding.ids
        end = min(max(places) + HORIZON, len(ids))
        first = min(places)
        head = language_model.document_start() if alone else language_model.own_prefix
        sequences.append(_fitted(language_model, head, ids[window.start : first], ids[first:end]))
        keep.append(end - first)
    losses: dict[_Place, float] = {}
    for (window, places), scores in zip(
        groups.values(), language_model.score(sequences, keep, dtype), strict=True
    ):
        first = min(places)
        for i in places:
            log_probs = scores.log_probs[i - first : i - first + HORIZON]
            losses[window.document.doc_id, window.start, i] = weighted_loss(log_probs)
    return losses


def _fitted(
    language_model: LanguageModel, head: list[int], context: list[int], targets: list[int]
) -> list[int]:
    """[head, context, targets], the context cut on its left if the model's context is shorter."""
    room = language_model.context_length + 1 - len(head) - len(targets)
    return head + (context[-room:] if 0 < room < len(context) else context) + targets
