"""Step 3: how much a call and its result help the model (paper, section 2, filtering).

    w_t = max(0, 1 − 0.2·t) / Σ_s max(0, 1 − 0.2·s)           1/3, 4/15, 1/5, 2/15, 1/15
    L_i(z) = − Σ_{j=i..n} w_{j−i} · log p_M(x_j | z, x_1..x_{j−1})
    L⁺ = L_i(e(c, r)),   L⁻ = min(L_i(ε), L_i(e(c, ε))),   gain = L⁻ − L⁺

Only five tokens have weight, so a sequence is cut after them and five rows are projected. The prefix z of the text does
not depend on i: one pass over [z, x] serves every position of the same call, and one pass over the text gives L_i(ε) of
all positions.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from toolformer.annotation.candidates import SCORED, Candidate
from toolformer.annotation.windows import Window
from toolformer.calls import ApiCall, linearise
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel

HORIZON = 5
_RAW = [max(0.0, 1.0 - 0.2 * t) for t in range(HORIZON)]
WEIGHTS: tuple[float, ...] = tuple(weight / sum(_RAW) for weight in _RAW)
"""w_0..w_4; every further weight is zero and these sum to one."""
PAPER, PLAIN = "paper", "plain"
"""Baselines: L⁻ is min(L(ε), L(e(c, ε))) in the paper; or L(ε) alone."""

Prefix = tuple[str, int, tuple[int, ...]]
"""Document, start of its window, and the tokens z put before the window."""


def score(
    language_model: LanguageModel,
    candidates: Sequence[Candidate],
    floor: float | None = None,
) -> list[Candidate]:
    """The candidates with their losses in nats; those already dropped are passed through.

    log p is taken from the logits in float32. All losses are kept: thresholds and the baseline, paper or plain, are
    applied when merging.

    Since gain ≤ L(ε) − L(e(c, r)), L(e(c, ε)) is not needed where that bound is below every τ_f to be applied. Candidates
    whose bound is below `floor`, in nats, stay without it. None scores all.
    """
    bos = tuple(language_model.bos_ids)
    # The first token of a text has no context and gets the start tokens. Before other tokens they would add to
    # x_1..x_{i-1}.
    first = tuple(language_model.start_ids())

    def losses(requests: Sequence[tuple[Candidate, ApiCall | None]]) -> list[float]:
        calls = list(dict.fromkeys(call for _, call in requests if call))
        encoded = language_model.encode_all([linearise(call) for call in calls])
        heads = {call: (*bos, *ids) for call, ids in zip(calls, encoded, strict=True)}
        prefixed = []
        for candidate, call in requests:
            window, i = candidate.window, candidate.token_position
            nothing = first if i == window.start else bos
            prefixed.append((window, heads[call] if call else nothing, i))
        return _losses(language_model, prefixed)

    scored = list(candidates)
    calls = {n: c.call for n, c in enumerate(candidates) if c.status == SCORED and c.call is not None}
    both = losses([(candidates[n], call) for n, executed in calls.items() for call in (executed, None)])
    result, none = (dict(zip(calls, losses_of, strict=True)) for losses_of in (both[::2], both[1::2]))
    # "Not below", so that losses that are not numbers are scored and reported as such.
    open_calls = {n: call for n, call in calls.items() if floor is None or not none[n] - result[n] < floor}
    third = losses([(candidates[n], call.with_result("")) for n, call in open_calls.items()])
    no_result = dict(zip(open_calls, third, strict=True))
    for n in calls:
        scored[n] = replace(
            candidates[n], loss_result=result[n], loss_none=none[n], loss_no_result=no_result.get(n)
        )
    return scored


def gain(entry: Mapping[str, Any], baseline: str = PAPER) -> float | None:
    """L⁻ − L⁺ of a row in nats; its upper bound where L(e(c, ε)) was not scored; None without the losses it takes.

    L⁻ is min(L(ε), L(e(c, ε))) in the paper, and L(ε) alone with the baseline `plain`, which therefore also rewards
    the information in the call itself.
    """
    without = [entry["loss_none"]]
    if baseline == PAPER and entry["loss_no_result"] is not None:
        without.append(entry["loss_no_result"])
    losses = [entry["loss_result"], *without]
    if entry["status"] != SCORED or any(loss is None or math.isnan(loss) for loss in losses):
        return None
    return float(min(without) - entry["loss_result"])


def gains(language_model: LanguageModel, places: Sequence[tuple[Document, int, ApiCall]]) -> list[float]:
    """The gain in nats of each call with its result before the character `position` of a document, scored together.

    Documents are told apart by their `doc_id`. UserError for a position at which no token of the document begins, or that no
    token follows.
    """
    windows: dict[str, Window] = {}
    candidates = []
    for document, position, call in places:
        if document.doc_id not in windows:
            encoding = language_model.encode_text(document.text)
            windows[document.doc_id] = Window(document, encoding, 0, len(encoding.ids))
        window = windows[document.doc_id]
        starts = window.encoding.positions
        if position not in starts:
            known = sorted({start for start in starts if start is not None}, key=lambda n: abs(n - position))
            nearest = " and ".join(map(str, sorted(known[:2]))) or "none: the text is empty"
            raise UserError(
                f"position: no token of the text begins at character {position}, so no call can be before it; the nearest "
                f"positions are {nearest}"
            )
        candidates.append(Candidate(window, call.tool, starts.index(position), 1.0, call=call))
    scored = score(language_model, candidates)
    # A loss that is not a number has no gain.
    return [math.nan if (nats := gain(vars(one))) is None else nats for one in scored]


def _losses(
    language_model: LanguageModel, requests: Sequence[tuple[Window, tuple[int, ...], int]]
) -> list[float]:
    """L_i(z) of every (window, z, i): one pass over [z, x_1..x_{i+4}] up to the last i with the same z."""
    keys = [(window.document.doc_id, window.start, head) for window, head, _ in requests]
    by_prefix: dict[Prefix, tuple[Window, set[int]]] = {}
    for key, (window, _, i) in zip(keys, requests, strict=True):
        by_prefix.setdefault(key, (window, set()))[1].add(i)
    sequences: list[list[int]] = []
    targets: list[list[int]] = []
    spans: list[tuple[Prefix, list[int], int]] = []
    for prefix, (window, positions) in by_prefix.items():
        head, ids, start = list(prefix[2]), window.encoding.ids, window.start
        # A context that does not fit is cut on its left, for each position as little as necessary.
        room = language_model.context_length + 1 - len(head)
        fits = min(max(positions) + HORIZON, len(ids)) - start <= room
        for group in [sorted(positions)] if fits else [[i] for i in sorted(positions)]:
            end = min(group[-1] + HORIZON, len(ids))
            first = start if fits else max(start, min(end - room, group[0]))
            shift = len(head) - first
            sequences.append(head + ids[first:end])
            targets.append(sorted({j + shift for i in group for j in range(i, min(i + HORIZON, len(ids)))}))
            spans.append((prefix, group, shift))
    scores = language_model.score(sequences, targets)
    # Of each (z, i) the first of its terms among all log-probabilities, and their number: fewer than five at the end of
    # a text.
    term_numbers: dict[tuple[Prefix, int], int] = {}
    terms: list[tuple[int, int]] = []
    before = 0
    for (prefix, group, shift), indices in zip(spans, targets, strict=True):
        tokens = len(by_prefix[prefix][0].encoding.ids)
        for i in group:
            term_numbers[prefix, i] = len(terms)
            terms.append((before + bisect_left(indices, i + shift), min(HORIZON, tokens - i)))
        before += len(indices)
    if not terms:
        return []
    log_probs = torch.cat([score.log_probs for score in scores]).double()
    first, count = torch.tensor(terms).T[..., None]
    term = torch.arange(HORIZON)
    weighted = log_probs[(first + term).clamp(max=before - 1)] * torch.tensor(WEIGHTS, dtype=torch.double)
    losses = (-torch.where(term < count, weighted, 0.0).sum(1)).tolist()
    return [losses[term_numbers[key, i]] for key, (_, _, i) in zip(keys, requests, strict=True)]
