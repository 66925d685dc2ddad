"""Step 1: where the model would start a call, and which calls it writes there (paper, section 2, sampling).

One forward pass of [P_a(x), x] gives every start probability; its cache then serves all k·m samples of the text, which
grow from it as branches (see `rows.Rows`). The random draws are keyed by document, tool, position and sample, so
batch size, order and resumption do not change them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch

from toolformer.annotation import variants
from toolformer.annotation.candidates import SCORED, Candidate, ToolSettings
from toolformer.annotation.gumbel_sampling import draw, draw_keys
from toolformer.annotation.positions import POSITIONS
from toolformer.annotation.windows import Window
from toolformer.calls import ARROW, END, START, ApiCall, CallSyntaxError, call_end, parse
from toolformer.lm.batching import batches, cached_per_batch, rows_per_batch
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.rows import Rows
from toolformer.tools.limits import CALL_TOO_LONG
from toolformer.tools.prompt_sets import UNPROMPTED

_RESULT_REQUESTED = f") {ARROW}"
"""The end of a call whose result the model waits for."""


@dataclass(frozen=True)
class Proposal:
    """The positions tried in one window, and their candidates."""

    window: Window
    positions: int
    candidates: list[Candidate]


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
    # The blank after "Input:" may share a token with the text's first word, so it is left to each text.
    prompt = language_model.encode(settings.prompt.prefix().rstrip())
    head = language_model.bos_ids + prompt if prompt else []
    proposals: dict[int, Proposal] = {}
    for numbers in _batches(windows, settings, len(head) or 1, language_model.batch_tokens):
        if proposals:
            on_progress(len(proposals))
        batch = [windows[n] for n in numbers]
        rows = language_model.rows([head] if head else ())
        probabilities, lengths = _start_probabilities(language_model, settings, batch, rows)
        chosen = _choose(language_model, settings, batch, probabilities)
        sampled = _sample(language_model, settings, rows, lengths, chosen, seed)
        for n, positions, candidates in zip(numbers, chosen, sampled, strict=True):
            proposals[n] = Proposal(windows[n], len(positions), candidates)
    return [proposals[n] for n in range(len(windows))]


def choose_positions(
    probabilities: Sequence[float | None],
    threshold: float,
    most: int,
    rank: Sequence[float] | None = None,
) -> list[int]:
    """I = {i : p_i > τ_s}, the `most` of them that rank highest (by p_i unless given), in the text's order."""
    above = {i: p for i, p in enumerate(probabilities) if p is not None and p > threshold}
    highest = sorted(above, key=lambda i: -(rank or above)[i])[:most]  # of equals the first
    return sorted(highest)


def call_text(text: str, settings: ToolSettings) -> str | None:
    """The call that a sample has written, up to its end; None while it is open.

    Without a prompt the model has seen calls with results in training: a call ends before the arrow, as at inference.
    """
    requested = text.find(_RESULT_REQUESTED) if settings.prompt == UNPROMPTED else -1
    if requested >= 0:
        return text[: requested + 1] + END
    end = call_end(text)
    return None if end is None else text[:end]


def read_sample(text: str, settings: ToolSettings) -> tuple[str, ApiCall | None, str | None]:
    """(text up to the call's end, call, reason to drop it) of the text that the model wrote after the start token."""
    written = call_text(text, settings)
    if written is None:
        return text, None, CALL_TOO_LONG
    call = None
    for reading in variants.readings(written, settings):
        with suppress(CallSyntaxError):
            call = call or parse(START.strip() + reading)
    if call is None:
        return written, None, "malformed call"
    if call.tool != settings.name:
        return written, call, "other tool"
    return written, call, "result written by the model" if call.result is not None else None


def _batches(
    windows: Sequence[Window], settings: ToolSettings, prompt: int, tokens: int
) -> Iterator[list[int]]:
    """Windows of similar length together, so that few rows are padding, within the budgets for `tokens` per batch."""
    # If no sample ends early, the cache holds the maximum length of each.
    grown = settings.max_positions * settings.samples * (settings.max_call_tokens + 1)

    def fits(batch: list[int]) -> bool:
        size, longest = len(batch), len(windows[batch[0]].ids)
        # The text is in the prompt, and again after it.
        cached = size * (prompt + 2 * longest + grown)
        return size * (longest + 1) <= rows_per_batch(tokens) and cached <= cached_per_batch(tokens)

    return batches([len(window.ids) for window in windows], fits)


def _start_probabilities(
    language_model: LanguageModel, settings: ToolSettings, windows: Sequence[Window], rows: Rows
) -> tuple[list[list[float]], list[int]]:
    """p_i = p(<API> | P_a(x), x_1..x_{i-1}) for every i of each window; rows 0, 1, ... are [P_a(x), x], of these lengths."""
    prompts = [
        language_model.bos_ids + language_model.encode(settings.prompt.fill(window.text))
        for window in windows
    ]
    contexts = [ids + window.ids for ids, window in zip(prompts, windows, strict=True)]
    # The prompt's last token predicts x_1, x_{i-1} predicts x_i, and the text's last token is not used. Without a prompt
    # and a BOS nothing predicts x_1: no call starts there.
    ahead = 1 if prompts[0] else 0
    counts = [len(window.ids) + ahead for window in windows]
    logits = rows.read(range(len(windows)), contexts, every=counts).float()
    starts = (logits[:, language_model.start_id] - logits.logsumexp(-1)).exp().cpu()
    probabilities = [[0.0] * (1 - ahead) + row[:-1].tolist() for row in starts.split(counts)]
    return probabilities, [len(ids) for ids in contexts]


def _choose(
    language_model: LanguageModel,
    settings: ToolSettings,
    windows: Sequence[Window],
    probabilities: Sequence[Sequence[float]],
) -> list[list[Candidate]]:
    """The positions of each window that are tried, as candidates without a call."""
    ratios: Sequence[Sequence[float] | None] = [None] * len(windows)
    if settings.rank == "lift":
        ratios = variants.unprompted_ratios(language_model, windows, probabilities)
    chosen: list[list[Candidate]] = []
    for window, p, ratio in zip(windows, probabilities, ratios, strict=True):
        allowed = POSITIONS[settings.places](window)
        tried = [p_i if position is not None else None for p_i, position in zip(p, allowed, strict=True)]
        indices = choose_positions(tried, settings.start_threshold, settings.max_positions, ratio)
        chosen.append([Candidate(window, settings.key, window.start + i, p[i]) for i in indices])
    return chosen


def _sample(
    language_model: LanguageModel,
    settings: ToolSettings,
    rows: Rows,
    lengths: Sequence[int],
    chosen: Sequence[Sequence[Candidate]],
    seed: int,
) -> list[list[Candidate]]:
    """The samples at the chosen positions of each row, of so many tokens."""
    sampled: list[list[Candidate]] = [[] for _ in chosen]
    for row, positions in enumerate(chosen):
        if positions:
            rows.fork(row, [lengths[row] - (c.window.end - c.token_position) for c in positions])
        else:
            rows.free(row)
    tried = [(row, candidate) for row, positions in enumerate(chosen) for candidate in positions]
    if not tried:
        return sampled
    name = variants.forced_name(language_model, settings)
    for token in (language_model.start_id, *name):
        logits = rows.step(range(len(tried)), [token] * len(tried))
    samples = [(row, candidate, n) for row, candidate in tried for n in range(settings.samples)]
    keys = np.stack([_keys(settings, candidate, n, seed) for _, candidate, n in samples])
    # A call's name counts too.
    keys = keys[:, : max(1, settings.max_call_tokens - len(name))]
    branches = np.arange(len(tried)).repeat(settings.samples)
    tree = _Tree(rows, logits, np.array([row for row, _, _ in samples]), branches)
    written = _write(language_model, settings, tree, keys, tuple(name))
    read = functools.cache(lambda ids: read_sample(language_model.decode(ids), settings))
    for (row, candidate, n), ids in zip(samples, written, strict=True):
        text, call, reason = read(ids)
        sampled[row].append(replace(candidate, sample=n, text=text, call=call, status=reason or SCORED))
    return sampled


def _keys(settings: ToolSettings, candidate: Candidate, sample: int, seed: int) -> np.ndarray:
    """The keys of a sample's draws."""
    doc_id = candidate.window.document.doc_id
    return draw_keys(seed, doc_id, settings.key, candidate.position, sample, settings.max_call_tokens)


def _write(
    language_model: LanguageModel,
    settings: ToolSettings,
    tree: _Tree,
    keys: np.ndarray,
    name: tuple[int, ...],
) -> list[tuple[int, ...]]:
    """The tokens of each sample after the start token: the name, and those drawn by `keys` until its call ends."""
    drawn = np.zeros_like(keys)
    counts = np.zeros(len(keys), dtype=np.int64)
    growing = np.arange(len(keys))
    for step in range(keys.shape[1]):
        tokens = tree.draw(keys[growing, step], settings.temperature)
        drawn[growing, step] = tokens
        counts[growing] = step + 1
        # Only a token with one of the last characters of a call's end can end it.
        ended = np.isin(tokens, language_model.ending_ids)
        for n in ended.nonzero()[0]:
            text = language_model.decode([*name, *drawn[growing[n], : step + 1].tolist()])
            ended[n] = call_text(text, settings) is not None
        growing = growing[~ended]
        if not len(growing) or step + 1 == keys.shape[1]:
            break
        tree.feed(~ended, tokens[~ended])
    return [(*name, *ids[:count]) for ids, count in zip(drawn.tolist(), counts.tolist(), strict=True)]


@dataclass
class _Tree:
    """Samples that grow from the positions of several rows.

    Samples of one position that have drawn the same tokens so far share a branch: it is computed once.
    """

    store: Rows
    logits: torch.Tensor
    """Logits of each branch's next token [branches, vocabulary]."""
    rows: np.ndarray
    """The row of each growing sample, rising."""
    branches: np.ndarray
    """The branch of each growing sample."""

    def draw(self, keys: np.ndarray, temperature: float) -> np.ndarray:
        """A token for each growing sample; the only wait for a GPU in a step."""
        rows = torch.from_numpy(self.branches)
        return draw(self.logits, torch.from_numpy(keys), rows, temperature).cpu().numpy()

    def feed(self, growing: np.ndarray, tokens: np.ndarray) -> None:
        """Goes on with the samples of the mask `growing`, which read `tokens`, and with their rows."""
        for row in np.setdiff1d(self.rows, self.rows[growing]):
            self.store.free(int(row))
        self.rows = self.rows[growing]
        branch = self.branches[growing] * self.logits.shape[-1] + tokens
        _, first, branch = np.unique(branch, return_index=True, return_inverse=True)
        # Branches in the order of their first samples, which is also that of the rows.
        order = first.argsort()
        first, before = first[order], self.branches[growing]
        self.logits = self.store.step(before[first], tokens[first])
        self.branches = order.argsort()[branch]
