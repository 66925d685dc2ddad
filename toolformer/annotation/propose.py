"""Step 1: where the model would start a call, and which calls it writes there (paper, section 2, sampling).

One forward pass of [P_a(x), x] gives every start probability; its cache then serves all k·m samples of the text,
which grow from it as branches (see `batching.Branches`). The random draws are keyed by what is sampled, so that
batch size, order and resumption do not change them.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from toolformer.annotation.candidates import Candidate, ToolSettings, Window
from toolformer.annotation.gumbel_sampling import draw, draw_keys
from toolformer.calls import START, ApiCall, CallSyntaxError, call_end, parse
from toolformer.data.numbers import SIGN, UNSIGNED
from toolformer.lm.batching import Branches, cached_per_batch, rows_per_batch
from toolformer.lm.language_model import LanguageModel, Prefix

NO_END = "call not ended"
MALFORMED = "malformed call"
OTHER_TOOL = "other tool"
OWN_RESULT = "result written by the model"
LIFT = "lift"
NUMBER_AHEAD = 3
"""Tokens within which a number is right ahead: a blank and a currency may be tokens of their own."""
_EQUALS = re.compile(rf"=\s*(?:[$€£]\s*)?(?={SIGN}[$€£]?{UNSIGNED})")


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
    lift: float | None
    sample: int
    draws: np.ndarray
    """A key for each of its draws."""
    ids: list[int]
    """What was written after the start token: the forced name, if any, and what was drawn."""
    column: int = 0
    """Where the model's word on its next token stands; samples that are still the same share a column."""
    drawn: int = 0
    text: str = ""
    end: int | None = None

    @property
    def alive(self) -> bool:
        return self.end is None and self.drawn < len(self.draws)


def propose(
    language_model: LanguageModel,
    settings: ToolSettings,
    windows: Sequence[Window],
    seed: int = 0,
    on_progress: Callable[[int], object] = lambda done: None,
) -> list[Proposal]:
    """Candidate calls of one tool for each window, in the windows' order.

    Args:
        on_progress: receives the number of windows that are done, before each batch but the first.
    """
    if not windows:
        return []
    prefix = _shared_prefix(language_model, settings)
    proposals: dict[int, Proposal] = {}
    for batch in _batches(windows, settings, len(prefix.ids), language_model.batch_tokens):
        if proposals:
            on_progress(len(proposals))
        of_batch = _propose_batch(language_model, settings, [windows[n] for n in batch], prefix, seed)
        proposals.update(zip(batch, of_batch, strict=True))
    return [proposals[n] for n in range(len(windows))]


def choose_positions(
    probabilities: Sequence[float | None],
    threshold: float,
    most: int,
    rank: Sequence[float] | None = None,
) -> list[int]:
    """I = {i : p_i > τ_s}, the `most` of them that rank highest (by p_i unless given), in the text's order."""
    above = [
        i
        for i, probability in enumerate(probabilities)
        if probability is not None and probability > threshold
    ]
    highest = sorted(above, key=lambda i: (-(rank[i] if rank else probabilities[i] or 0.0), i))[:most]
    return sorted(highest)


def before_numbers(window: Window) -> list[int | None]:
    """The window's positions, None where no number begins within the next `NUMBER_AHEAD` tokens."""
    starts = [match.start() for match in re.finditer(UNSIGNED, window.document.text)]
    # Where each token of the document begins at the latest, from its end on.
    begins = [len(window.document.text)]
    for position in reversed(window.encoding.positions):
        begins.append(begins[-1] if position is None else position)
    begins = begins[:0:-1] + begins[:1] * NUMBER_AHEAD
    return [
        position
        if position is not None
        and bisect_left(starts, position) < bisect_left(starts, begins[i + NUMBER_AHEAD])
        else None
        for i, position in enumerate(window.positions, window.start)
    ]


def after_equals(window: Window) -> list[int | None]:
    """The window's positions, None but for the first one behind each equals sign that a number follows.

    One a sign: a call before the blank and another before the number would stand side by side.
    """
    places: set[int] = set()
    for match in _EQUALS.finditer(window.document.text):
        between = (p for p in window.positions if p is not None and match.start() < p <= match.end())
        places.update(itertools.islice(between, 1))
    return [position if position in places else None for position in window.positions]


_PLACES: dict[str, Callable[[Window], Sequence[int | None]]] = {
    "any": lambda window: window.positions,
    "number": before_numbers,
    "equals": after_equals,
}


def start_lifts(
    language_model: LanguageModel, windows: Sequence[Window], probabilities: Sequence[Sequence[float]]
) -> list[list[float]]:
    """p(<API> | P_a(x), x_<i) / p(<API> | x_<i) for every i of each window."""
    own = language_model.own_prefix
    # Without a BOS nothing stands before x_1: the document start stands in for it, as it does for losses.
    alone = [] if own else [language_model.document_start()]
    behind = language_model.start_log_probs([*alone, *([*own, *window.ids[:-1]] for window in windows)])
    first = behind[0][-1:] if alone else None
    lifts: list[list[float]] = []
    for p, log_probs in zip(probabilities, behind[len(alone) :], strict=True):
        plain = torch.cat([first, log_probs]) if first is not None else log_probs[len(own) - 1 :]
        lifts.append((torch.tensor(list(p)).clamp(min=1e-30).log() - plain).exp().tolist())
    return lifts


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


def _batches(
    windows: Sequence[Window], settings: ToolSettings, prompt: int, tokens: int
) -> Iterator[list[int]]:
    """Windows of similar length together, so that few rows are padding, within the budgets of `tokens` a batch."""
    order = sorted(range(len(windows)), key=lambda n: (len(windows[n].ids), n), reverse=True)
    # No sample may end before its limit: the cache holds all that each could write.
    grown = settings.max_positions * settings.samples * (settings.max_call_tokens + 1)
    batch: list[int] = []
    for n in order:
        size, longest = len(batch) + 1, len(windows[batch[0] if batch else n].ids)
        # The text stands in the prompt, and behind it once more.
        cached = size * (prompt + 2 * longest + grown)
        if batch and (size * (longest + 1) > rows_per_batch(tokens) or cached > cached_per_batch(tokens)):
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
    # The last token of the prompt speaks for x_1, x_{i-1} for x_i, the last token of the text for none.
    logits, branches = language_model.prefill(contexts, shared, [length + 1 for length in lengths])
    logits = logits.float()
    probabilities = (logits[:, language_model.start_id] - logits.logsumexp(-1)).exp().cpu()
    chosen: list[list[int]] = []
    rows: list[list[float | None]] = []
    of_texts = [row[:-1].tolist() for row in probabilities.split([n + 1 for n in lengths])]
    del logits
    lifts = start_lifts(language_model, windows, of_texts) if settings.rank == LIFT else None
    for row, (window, of_text) in enumerate(zip(windows, of_texts, strict=True)):
        allowed = _PLACES[settings.places](window)
        rows.append([p if place is not None else None for p, place in zip(of_text, allowed, strict=True)])
        by = lifts[row] if lifts else None
        chosen.append(choose_positions(rows[-1], settings.start_threshold, settings.max_positions, by))
    sampled = _sample(language_model, settings, windows, branches, chosen, rows, lifts, seed)
    return [Proposal(window, len(chosen[row]), sampled[row]) for row, window in enumerate(windows)]


def _sample(
    language_model: LanguageModel,
    settings: ToolSettings,
    windows: Sequence[Window],
    branches: Branches,
    chosen: list[list[int]],
    probabilities: list[list[float | None]],
    lifts: list[list[float]] | None,
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
                lifts[row][i] if lifts else None,
                sample,
                _draws(settings, windows[row], i, sample, seed),
                [*name],
                column=column,
            )
            for column, i in enumerate(chosen[row])
            for sample in range(settings.samples)
        ]
        for row in rows
    ]
    _grow(language_model, branches, logits, grown)
    candidates: list[list[Candidate]] = [[] for _ in windows]
    for of_row in grown:
        for branch in of_row:
            candidates[branch.row].append(_candidate(settings, windows[branch.row], branch))
    return candidates


def _grow(
    language_model: LanguageModel, branches: Branches, logits: torch.Tensor, grown: list[list[_Branch]]
) -> None:
    """Draws tokens until every sample has ended.

    `logits` are [rows, columns, vocabulary]. Samples of one position that have drawn the same tokens so far share a
    column: what the model says of them is computed once.
    """
    active = grown
    while any(active):
        tokens = _drawn(logits, active)
        columns: list[dict[tuple[int, int], int]] = [{} for _ in active]
        alive: list[list[_Branch]] = [[] for _ in active]
        for index, (of_row, drawn) in enumerate(zip(active, tokens, strict=True)):
            for branch, token in zip(of_row, drawn, strict=True):
                branch.ids.append(token)
                branch.drawn += 1
                branch.text = language_model.decode(branch.ids)
                branch.end = call_end(branch.text)
                if branch.alive:
                    key = (branch.column, token)
                    branch.column = columns[index].setdefault(key, len(columns[index]))
                    alive[index].append(branch)
        active = alive
        # A context whose samples have all ended is read no further.
        going = [index for index, of_row in enumerate(active) if of_row]
        if not going:
            return
        if len(going) < len(active):
            branches.keep_rows(going)
            active, columns = [active[n] for n in going], [columns[n] for n in going]
        width = max(len(of_row) for of_row in columns)
        # A row with fewer columns repeats its first one; nothing is read from the repetition.
        keys = [(list(of_row) + [next(iter(of_row))] * width)[:width] for of_row in columns]
        branches.select(torch.tensor([[parent for parent, _ in of_row] for of_row in keys]))
        logits = branches.step(torch.tensor([[token for _, token in of_row] for of_row in keys]))


def _drawn(logits: torch.Tensor, active: list[list[_Branch]]) -> list[list[int]]:
    """The next token of each branch, drawn with its own key from its column's distribution."""
    tokens: list[list[int]] = []
    for of_row, of_logits in zip(active, logits, strict=True):
        used = sorted({branch.column for branch in of_row})
        slot = {column: n for n, column in enumerate(used)}
        keys = torch.tensor([int(branch.draws[branch.drawn]) for branch in of_row])
        columns = torch.tensor([slot[branch.column] for branch in of_row])
        tokens.append(draw(of_logits[used], keys, columns).tolist())
    return tokens


def _draws(settings: ToolSettings, window: Window, i: int, sample: int, seed: int) -> np.ndarray:
    position = window.encoding.positions[window.start + i]
    assert position is not None  # choose_positions leaves those out
    return draw_keys(seed, window.document.doc_id, settings.key, position, sample, settings.max_call_tokens)


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
        start_lift=branch.lift,
    )
    return candidate if reason is None else replace(candidate, status=reason)
