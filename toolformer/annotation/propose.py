"""Step 1: where the model would start a call, and which calls it writes there (paper, section 2, sampling).

One forward pass of [P_a(x), x] gives every start probability; its cache then serves all k·m samples of the text,
which grow from it as branches (see `batching.Branches`). The random draws are keyed by what is sampled, so that
batch size, order and resumption do not change them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from toolformer.annotation.candidates import Candidate, ToolSettings, Window
from toolformer.batching import ROWS_PER_BATCH, Branches
from toolformer.calls import START, ApiCall, CallSyntaxError, call_end, parse
from toolformer.language_model import LanguageModel, Prefix

NO_END = "call not ended"
MALFORMED = "malformed call"
OTHER_TOOL = "other tool"
OWN_RESULT = "result written by the model"


@dataclass(frozen=True)
class Proposal:
    """What one window gave: the positions tried, and their candidates."""

    window: Window
    positions: int
    candidates: list[Candidate]


@dataclass
class _Branch:
    """A call that is being sampled."""

    row: int
    position: int
    """Token of the window that the call would stand before."""
    probability: float
    sample: int
    draws: np.ndarray
    ids: list[int]
    """What was written after the start token: the forced name, if any, and what was drawn."""
    drawn: int = 0
    text: str = ""
    end: int | None = None

    @property
    def alive(self) -> bool:
        return self.end is None and self.drawn < len(self.draws)


def propose(
    language_model: LanguageModel, settings: ToolSettings, windows: Sequence[Window], seed: int = 0
) -> list[Proposal]:
    """Candidate calls of one tool for each window, in the windows' order."""
    if not windows:
        return []
    prefix = _shared_prefix(language_model, settings)
    proposals: dict[int, Proposal] = {}
    for batch in _batches(windows):
        found = _propose_batch(language_model, settings, [windows[n] for n in batch], prefix, seed)
        proposals.update(zip(batch, found, strict=True))
    return [proposals[n] for n in range(len(windows))]


def uniforms(seed: int, document: str, tool: str, position: int, sample: int, count: int) -> np.ndarray:
    """`count` uniform draws in [0, 1) of one sample: they depend on nothing but these keys."""
    key = f"{seed}|{document}|{tool}|{position}|{sample}".encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(key).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big"))).random(count)


def draw(logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Tokens drawn from softmax(logits) by inverting the distribution function: [rows, vocabulary] -> [rows]."""
    cumulative = logits.double().softmax(-1).cumsum(-1)
    threshold = uniform.to(cumulative)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, threshold, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)


def choose_positions(probabilities: Sequence[float | None], threshold: float, most: int) -> list[int]:
    """I = {i : p_i > τ_s}, the `most` likeliest of them, in the text's order."""
    above = [
        i
        for i, probability in enumerate(probabilities)
        if probability is not None and probability > threshold
    ]
    likeliest = sorted(above, key=lambda i: (-(probabilities[i] or 0.0), i))[:most]
    return sorted(likeliest)


def read_sample(text: str, settings: ToolSettings) -> tuple[str, ApiCall | None, str | None]:
    """(text up to the call's end, call, reason to drop it) of what the model wrote after the start token."""
    end = call_end(text)
    if end is None:
        return text, None, NO_END
    text = text[:end]
    try:
        call = parse(START.strip() + text)
    except CallSyntaxError:
        return text, None, MALFORMED
    if call.tool != settings.name:
        return text, call, OTHER_TOOL
    return text, call, OWN_RESULT if call.result is not None else None


def _shared_prefix(language_model: LanguageModel, settings: ToolSettings) -> Prefix:
    # The blank after "Input:" may join the text's first word: it is left to each text.
    return language_model.prefix(
        language_model.own_prefix + language_model.encode(settings.prompt.prefix().rstrip())
    )


def _batches(windows: Sequence[Window]) -> Iterator[list[int]]:
    """Windows of similar length together, so that few rows are padding."""
    order = sorted(range(len(windows)), key=lambda n: (len(windows[n].ids), n), reverse=True)
    batch: list[int] = []
    for n in order:
        if batch and (len(batch) + 1) * (len(windows[batch[0]].ids) + 1) > ROWS_PER_BATCH:
            yield batch
            batch = []
        batch.append(n)
    if batch:
        yield batch


def _propose_batch(
    language_model: LanguageModel,
    settings: ToolSettings,
    windows: Sequence[Window],
    prefix: Prefix,
    seed: int,
) -> list[Proposal]:
    contexts: list[list[int]] = []
    shared: Prefix | None = prefix
    for window in windows:
        ids = language_model.own_prefix + language_model.encode(settings.prompt.fill(window.text))
        if ids[: len(prefix.ids)] != prefix.ids:
            shared = None
        contexts.append(ids + window.ids)
    if shared:
        contexts = [ids[len(shared.ids) :] for ids in contexts]
    lengths = [len(window.ids) for window in windows]
    logits, branches = language_model.prefill(contexts, shared, keep=max(lengths) + 1)
    start = language_model.start_id
    logits = logits.float()
    probabilities = (logits[..., start] - logits.logsumexp(-1)).exp().cpu()
    chosen: list[list[int]] = []
    rows: list[list[float | None]] = []
    for row, window in enumerate(windows):
        # The last token of the prompt speaks for x_1, x_{i-1} for x_i.
        of_text = probabilities[row, -(lengths[row] + 1) : -1].tolist()
        allowed = window.encoding.positions[window.start : window.end]
        rows.append([p if place is not None else None for p, place in zip(of_text, allowed, strict=True)])
        chosen.append(choose_positions(rows[row], settings.start_threshold, settings.max_positions))
    del logits
    sampled = _sample(language_model, settings, windows, branches, chosen, rows, seed)
    return [Proposal(window, len(chosen[row]), sampled[row]) for row, window in enumerate(windows)]


def _sample(
    language_model: LanguageModel,
    settings: ToolSettings,
    windows: Sequence[Window],
    branches: Branches,
    chosen: list[list[int]],
    probabilities: list[list[float | None]],
    seed: int,
) -> list[list[Candidate]]:
    rows = [row for row in range(len(windows)) if chosen[row]]
    if not rows:
        return [[] for _ in windows]
    branches.keep_rows(rows)
    most = max(len(chosen[row]) for row in rows)
    cached = branches.visible.shape[2]
    slots = torch.arange(cached)
    visible = torch.zeros(len(rows), most, cached, dtype=torch.bool)
    positions = torch.zeros(len(rows), most, dtype=torch.long)
    for index, row in enumerate(rows):
        length = len(windows[row].ids)
        for column in range(most):
            # A row with fewer positions repeats its last one; nothing is read from the repetition.
            i = chosen[row][min(column, len(chosen[row]) - 1)]
            visible[index, column] = branches.visible[index, 0] & (slots < cached - length + i)
            positions[index, column] = branches.positions[index, 0] - length + i
    branches.visible, branches.positions = visible, positions
    name = language_model.encode_after_start(settings.name) if settings.force_name else []
    for token in (language_model.start_id, *name):
        logits = branches.step(torch.full((len(rows), most), token))

    grown = [
        [
            _Branch(
                row,
                i,
                probabilities[row][i] or 0.0,
                sample,
                _draws(settings, windows[row], i, sample, seed),
                [*name],
            )
            for i in chosen[row]
            for sample in range(settings.samples)
        ]
        for row in rows
    ]
    columns = [[n for n, _ in enumerate(chosen[row]) for _ in range(settings.samples)] for row in rows]
    active = [list(branch) for branch in grown]
    while any(active):
        width = max(len(of_row) for of_row in active)
        picked = torch.tensor([(of_row + [0] * width)[:width] for of_row in columns])
        uniform = torch.zeros(len(rows), width, dtype=torch.double)
        for index, of_row in enumerate(active):
            for column, branch in enumerate(of_row):
                uniform[index, column] = float(branch.draws[branch.drawn])
        branches.select(picked)
        distributions = logits.gather(1, picked.to(logits.device)[..., None].expand(-1, -1, logits.shape[2]))
        tokens = draw(distributions.flatten(0, 1), uniform.flatten()).view(len(rows), width).cpu()
        columns = []
        for index, of_row in enumerate(active):
            for column, branch in enumerate(of_row):
                branch.ids.append(int(tokens[index, column]))
                branch.drawn += 1
                branch.text = language_model.decode(branch.ids)
                branch.end = call_end(branch.text)
            columns.append([column for column, branch in enumerate(of_row) if branch.alive])
            active[index] = [branch for branch in of_row if branch.alive]
        if any(active):
            logits = branches.step(tokens)
    candidates: list[list[Candidate]] = [[] for _ in windows]
    for of_row in grown:
        for branch in of_row:
            candidates[branch.row].append(_candidate(settings, windows[branch.row], branch))
    return candidates


def _draws(settings: ToolSettings, window: Window, i: int, sample: int, seed: int) -> np.ndarray:
    position = window.encoding.positions[window.start + i]
    assert position is not None  # choose_positions leaves those out
    return uniforms(seed, window.document.doc_id, settings.key, position, sample, settings.max_call_tokens)


def _candidate(settings: ToolSettings, window: Window, branch: _Branch) -> Candidate:
    text, call, reason = read_sample(branch.text, settings)
    candidate = Candidate(
        window=window,
        tool=settings.key,
        token_position=window.start + branch.position,
        start_probability=branch.probability,
        sample=branch.sample,
        text=text,
        call=call,
    )
    return candidate if reason is None else replace(candidate, status=reason)
