"""Step 1: where the model would start a call, and which calls it writes there (paper, section 2, sampling).

One forward pass of [P_a(x), x] gives every start probability; its cache then serves all k·m samples of the text,
which grow from it as branches (see `branches.Branches`). The random draws are keyed by what is sampled, so that
batch size, order and resumption do not change them.
"""

import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from toolformer.annotation.candidates import SCORED, Candidate, ToolSettings, Window
from toolformer.annotation.gumbel_sampling import draw, draw_keys
from toolformer.calls import ARROW, END, START, ApiCall, CallSyntaxError, call_end, parse
from toolformer.data.numbers import CURRENCY, SIGN, UNSIGNED
from toolformer.lm.batching import batches, cached_per_batch, rows_per_batch
from toolformer.lm.branches import Branches, Prefix
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.prompt_sets import UNPROMPTED

NUMBER_AHEAD = 3
"""Tokens within which a number is right ahead: a blank and a currency may be tokens of their own."""
_ASKED = f") {ARROW}"
"""A call behind which the model waits for the result."""
_EQUALS = re.compile(rf"=\s*(?:[{CURRENCY}]\s*)?(?={SIGN}[{CURRENCY}]?{UNSIGNED})")
_CAPITALISED = r"[A-ZÀ-ÖØ-Þ]\w*"
_NAME = re.compile(rf"(?<!\w){_CAPITALISED}(?:[ -]{_CAPITALISED})*|(?<![\w.,]){UNSIGNED}")


@dataclass(frozen=True)
class Proposal:
    """What one window gave: the positions tried, and their candidates."""

    window: Window
    positions: int
    candidates: list[Candidate]


@dataclass
class _Branch:
    """A call that is being sampled."""

    candidate: Candidate
    """What is known of it before its text."""
    keys: list[int]
    """Of the draws that are left."""
    ids: list[int]
    """What was written after the start token: the forced name, if any, and what was drawn."""
    column: int
    """Where the model's word on its next token stands; samples that are still the same share a column."""
    text: str = ""


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
    # The blank after "Input:" may join the text's first word: it is left to each text.
    prompt = language_model.encode(settings.prompt.prefix().rstrip())
    prefix = language_model.prefix(language_model.bos_ids + prompt) if prompt else None
    proposals: dict[int, Proposal] = {}
    for batch in _batches(windows, settings, len(prefix.ids) if prefix else 1, language_model.batch_tokens):
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
    above = {i: p for i, p in enumerate(probabilities) if p is not None and p > threshold}
    highest = sorted(above, key=lambda i: -(rank or above)[i])[:most]  # of equals the first
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
    """The window's positions, None but for the first one behind each equals sign that a number follows."""
    found = _EQUALS.finditer(window.document.text)
    return _first_of_each(window, ((match.start() + 1, match.end()) for match in found))


def before_names(window: Window) -> list[int | None]:
    """The window's positions, None but for the first one before each number and each run of capitalised words."""
    found = _NAME.finditer(window.document.text)
    return _first_of_each(window, ((max(0, match.start() - 1), match.start()) for match in found))


def _first_of_each(window: Window, spans: Iterable[tuple[int, int]]) -> list[int | None]:
    """The window's positions, None but for the first one in each span, ends included.

    One a span: a call before the blank and another before the word would stand side by side.
    """
    places: set[int] = set()
    for start, end in spans:
        within = (p for p in window.positions if p is not None and start <= p <= end)
        places.update(itertools.islice(within, 1))
    return [position if position in places else None for position in window.positions]


_PLACES: dict[str, Callable[[Window], Sequence[int | None]]] = {
    "any": lambda window: window.positions,
    "number": before_numbers,
    "equals": after_equals,
    "name": before_names,
}


def start_lifts(
    language_model: LanguageModel, windows: Sequence[Window], probabilities: Sequence[Sequence[float]]
) -> list[list[float]]:
    """p(<API> | P_a(x), x_<i) / p(<API> | x_<i) for every i of each window."""
    own = language_model.bos_ids
    # Without a BOS nothing stands before x_1: the document start stands in for it, as it does for losses.
    alone = [] if own else [language_model.start_ids()]
    behind = language_model.start_log_probs([*alone, *([*own, *window.ids[:-1]] for window in windows)])
    first = behind[0][-1:] if alone else None
    lifts: list[list[float]] = []
    for p, log_probs in zip(probabilities, behind[len(alone) :], strict=True):
        plain = torch.cat([first, log_probs]) if first is not None else log_probs[len(own) - 1 :]
        lifts.append((torch.tensor(list(p)).clamp(min=1e-30).log() - plain).exp().tolist())
    return lifts


def ended(text: str, settings: ToolSettings) -> str | None:
    """The call that a sample has written, up to its end; None while it is open.

    A model that annotates unprompted was trained on calls with results: its call ends before the arrow, as at inference.
    """
    asked = text.find(_ASKED) if settings.prompt == UNPROMPTED else -1
    if asked >= 0:
        return text[: asked + 1] + END
    end = call_end(text)
    return None if end is None else text[:end]


def read_sample(text: str, settings: ToolSettings) -> tuple[str, ApiCall | None, str | None]:
    """(text up to the call's end, call, reason to drop it) of what the model wrote after the start token."""
    of_call = ended(text, settings)
    if of_call is None:
        return text, None, "call not ended"
    text = of_call
    call = None
    # Where the parenthesis alone is missing: [QA("Who?"] or [Calculator(2 + 3].
    for written in (text, *([f"{text.removesuffix(END).rstrip()}){END}"] if settings.close else [])):
        with suppress(CallSyntaxError):
            call = call or parse(START.strip() + written)
    if call is None:
        return text, None, "malformed call"
    if call.tool != settings.name:
        return text, call, "other tool"
    return text, call, "result written by the model" if call.result is not None else None


def _batches(
    windows: Sequence[Window], settings: ToolSettings, prompt: int, tokens: int
) -> Iterator[list[int]]:
    """Windows of similar length together, so that few rows are padding, within the budgets of `tokens` a batch."""
    # No sample may end before its limit: the cache holds all that each could write.
    grown = settings.max_positions * settings.samples * (settings.max_call_tokens + 1)

    def fits(batch: list[int]) -> bool:
        size, longest = len(batch), len(windows[batch[0]].ids)
        # The text stands in the prompt, and behind it once more.
        cached = size * (prompt + 2 * longest + grown)
        return size * (longest + 1) <= rows_per_batch(tokens) and cached <= cached_per_batch(tokens)

    return batches([len(window.ids) for window in windows], fits)


def _propose_batch(
    language_model: LanguageModel,
    settings: ToolSettings,
    windows: Sequence[Window],
    prefix: Prefix | None,
    seed: int,
) -> list[Proposal]:
    own = language_model.bos_ids
    filled = [own + language_model.encode(settings.prompt.fill(window.text)) for window in windows]
    shared = prefix if prefix and all(ids[: len(prefix.ids)] == prefix.ids for ids in filled) else None
    head = len(shared.ids) if shared else 0
    contexts = [ids[head:] + window.ids for ids, window in zip(filled, windows, strict=True)]
    lengths = [len(window.ids) for window in windows]
    # The last token of the prompt speaks for x_1, x_{i-1} for x_i, the last token of the text for none. Without a prompt and
    # a BOS nothing speaks for x_1: no call starts there.
    ahead = 1 if filled[0] else 0
    logits, branches = language_model.prefill(contexts, shared, [length + ahead for length in lengths])
    logits = logits.float()
    probabilities = (logits[:, language_model.start_id] - logits.logsumexp(-1)).exp().cpu()
    chosen: list[list[Candidate]] = []
    rows_of = probabilities.split([length + ahead for length in lengths])
    of_texts = [[0.0] * (1 - ahead) + row[:-1].tolist() for row in rows_of]
    del logits
    lifts = start_lifts(language_model, windows, of_texts) if settings.rank == "lift" else None
    for row, (window, of_text) in enumerate(zip(windows, of_texts, strict=True)):
        allowed = _PLACES[settings.places](window)
        tried = [p if place is not None else None for p, place in zip(of_text, allowed, strict=True)]
        by = lifts[row] if lifts else None
        chosen.append(
            [
                Candidate(
                    window, settings.key, window.start + i, of_text[i], start_lift=by[i] if by else None
                )
                for i in choose_positions(tried, settings.start_threshold, settings.max_positions, by)
            ]
        )
    sampled = _sample(language_model, settings, branches, chosen, seed)
    return [Proposal(window, len(chosen[row]), sampled[row]) for row, window in enumerate(windows)]


def _sample(
    language_model: LanguageModel,
    settings: ToolSettings,
    branches: Branches,
    chosen: list[list[Candidate]],
    seed: int,
) -> list[list[Candidate]]:
    """The samples of each window at its chosen positions, for each of which a candidate without text stands."""
    rows = [row for row, positions in enumerate(chosen) if positions]
    if not rows:
        return [[] for _ in chosen]
    branches.keep_rows(rows)
    most = max(len(chosen[row]) for row in rows)
    cached = branches.visible.shape[2]
    # A row with fewer positions repeats its last one; nothing is read from the repetition.
    columns = [(chosen[row] + chosen[row][-1:] * most)[:most] for row in rows]
    # How many of the text's last tokens a column does not see, [rows, columns].
    hidden = torch.tensor([[c.window.end - c.token_position for c in of_row] for of_row in columns])
    branches.visible = branches.visible & (torch.arange(cached) < cached - hidden[:, :, None])
    branches.positions = branches.positions - hidden
    name = language_model.encode_after_start(settings.name) if settings.force_name else []
    for token in (language_model.start_id, *name):
        logits = branches.step(torch.full((len(rows), most), token))
    grown = [
        [
            _Branch(
                replace(candidate, sample=sample), _draws(settings, candidate, sample, seed), [*name], column
            )
            for column, candidate in enumerate(chosen[row])
            for sample in range(settings.samples)
        ]
        for row in rows
    ]
    _grow(language_model, branches, logits, grown, settings)
    candidates: list[list[Candidate]] = [[] for _ in chosen]
    for row, of_row in zip(rows, grown, strict=True):
        candidates[row] = [_candidate(settings, branch) for branch in of_row]
    return candidates


def _grow(
    language_model: LanguageModel,
    branches: Branches,
    logits: torch.Tensor,
    grown: list[list[_Branch]],
    settings: ToolSettings,
) -> None:
    """Draws tokens until every sample has ended.

    `logits` are [rows, columns, vocabulary]. Samples of one position that have drawn the same tokens so far share a
    column: what the model says of them is computed once.
    """
    active = grown
    while True:
        alive: list[list[_Branch]] = []
        columns: list[dict[tuple[int, int], int]] = []
        every = [(row, branch) for row, of_row in enumerate(active) for branch in of_row]
        # All at once: a GPU is waited for at each draw.
        drawn = iter(
            draw(
                logits.flatten(0, 1),
                torch.tensor([branch.keys.pop() for _, branch in every]),
                torch.tensor([row * logits.shape[1] + branch.column for row, branch in every]),
                settings.temperature,
            ).tolist()
        )
        for of_row in active:
            alive.append([])
            columns.append({})
            for branch in of_row:
                token = next(drawn)
                branch.ids.append(token)
                branch.text = language_model.decode(branch.ids)
                if branch.keys and ended(branch.text, settings) is None:
                    branch.column = columns[-1].setdefault((branch.column, token), len(columns[-1]))
                    alive[-1].append(branch)
        # A context whose samples have all ended is read no further.
        going = [index for index, of_row in enumerate(alive) if of_row]
        if not going:
            return
        if len(going) < len(active):
            branches.keep_rows(going)
        active = [alive[index] for index in going]
        parents = [list(columns[index]) for index in going]
        width = max(map(len, parents))
        # A row with fewer columns repeats its first one; nothing is read from the repetition.
        parents = [(of_row + of_row[:1] * width)[:width] for of_row in parents]
        branches.select(torch.tensor([[column for column, _ in of_row] for of_row in parents]))
        logits = branches.step(torch.tensor([[token for _, token in of_row] for of_row in parents]))


def _draws(settings: ToolSettings, candidate: Candidate, sample: int, seed: int) -> list[int]:
    """The keys of a sample's draws, the last one first."""
    doc_id = candidate.window.document.doc_id
    keys = draw_keys(seed, doc_id, settings.key, candidate.position, sample, settings.max_call_tokens)
    return list(keys.tolist()[::-1])


def _candidate(settings: ToolSettings, branch: _Branch) -> Candidate:
    text, call, reason = read_sample(branch.text, settings)
    return replace(branch.candidate, text=text, call=call, status=reason or SCORED)
