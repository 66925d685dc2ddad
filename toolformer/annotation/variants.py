"""What goes beyond the paper, off by default: candidate positions, ratios of start probabilities, forced and closed calls, pre-filters.

- `places`: only positions near numbers, equals signs or names are tried.
- `rank=lift`: positions are ranked by the ratio of the start probability to the one without the prompt.
- `force_name`, `close`: help for models too small to write a call's name or its parenthesis.
- `screen`: cheap tests of executed calls before the exact scoring. Most calls are sampled where their result helps nobody. If
  nothing of a result occurs in the next tokens, it seldom makes these likelier; a text comparison shows it.
- `article`: texts of an encyclopedia.
"""

import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import torch

from toolformer.annotation.candidates import SCORED, Candidate, Screen, ToolSettings, Window
from toolformer.annotation.select import Decision, whole
from toolformer.calls import END
from toolformer.data import Document
from toolformer.data.numbers import CURRENCY, SIGN, UNSIGNED, exact
from toolformer.lm.language_model import LanguageModel

NUMBER_AHEAD = 3
"""Tokens within which a number counts as right ahead: a blank and a currency sign may be separate tokens."""
NOT_AHEAD = "screened: nothing of the result occurs ahead"
NOT_NEW = "screened: the result stands in the input"
_EQUALS = re.compile(rf"=\s*(?:[{CURRENCY}]\s*)?(?={SIGN}[{CURRENCY}]?{UNSIGNED})")
_CAPITALISED = r"[A-ZÀ-ÖØ-Þ]\w*"
_NAME = re.compile(rf"(?<!\w){_CAPITALISED}(?:[ -]{_CAPITALISED})*|(?<![\w.,]){UNSIGNED}")
_TERM = re.compile(rf"(?P<sign>{SIGN})[{CURRENCY}]?(?P<number>{UNSIGNED})|[^\W\d_]{{4,}}")


def article(document: Document) -> Decision:
    """Selects articles of an encyclopedia: search never returns a text itself."""
    return whole(document) if document.source_id else Decision(reason="no article")


def candidate_positions(window: Window, settings: ToolSettings) -> Sequence[int | None]:
    """The window's positions, None where none may be tried (`places`)."""
    return _PLACES[settings.places](window)


def _before_numbers(window: Window) -> list[int | None]:
    """None where no number begins within the next `NUMBER_AHEAD` tokens."""
    starts = [match.start() for match in re.finditer(UNSIGNED, window.document.text)]
    # The latest beginning of each token of the document, from its end on.
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


def _after_equals(window: Window) -> list[int | None]:
    """None except for the first position after each equals sign that a number follows."""
    matches = _EQUALS.finditer(window.document.text)
    return _first_of_each(window, ((match.start() + 1, match.end()) for match in matches))


def _before_names(window: Window) -> list[int | None]:
    """None except for the first position before each number and each run of capitalised words."""
    matches = _NAME.finditer(window.document.text)
    return _first_of_each(window, ((max(0, match.start() - 1), match.start()) for match in matches))


def _first_of_each(window: Window, spans: Iterable[tuple[int, int]]) -> list[int | None]:
    """None except for the first position in each span, ends included.

    One per span: otherwise a call before a blank and another after it would be adjacent.
    """
    allowed: set[int] = set()
    for start, end in spans:
        within = (p for p in window.positions if p is not None and start <= p <= end)
        allowed.update(itertools.islice(within, 1))
    return [position if position in allowed else None for position in window.positions]


_PLACES: dict[str, Callable[[Window], Sequence[int | None]]] = {
    "any": lambda window: window.positions,
    "number": _before_numbers,
    "equals": _after_equals,
    "name": _before_names,
}


def unprompted_ratios(
    language_model: LanguageModel, windows: Sequence[Window], probabilities: Sequence[Sequence[float]]
) -> list[list[float]]:
    """p(<API> | P_a(x), x_<i) / p(<API> | x_<i) for every i of each window."""
    bos = language_model.bos_ids
    # Without a BOS x_1 has no context: the start of a text is used instead, as for losses.
    alone = [] if bos else [language_model.start_ids()]
    after = language_model.start_log_probs([*alone, *([*bos, *window.ids[:-1]] for window in windows)])
    first = after[0][-1:] if alone else None
    ratios: list[list[float]] = []
    for p, log_probs in zip(probabilities, after[len(alone) :], strict=True):
        plain = torch.cat([first, log_probs]) if first is not None else log_probs[len(bos) - 1 :]
        ratios.append((torch.tensor(list(p)).clamp(min=1e-30).log() - plain).exp().tolist())
    return ratios


def forced_name(language_model: LanguageModel, settings: ToolSettings) -> list[int]:
    """The tokens that are written after the start token of each call (`force_name`)."""
    return language_model.encode_after_start(settings.name) if settings.force_name else []


def readings(text: str, settings: ToolSettings) -> Iterator[str]:
    """A sampled call as it may be read: as written, then with its parenthesis closed (`close`), [QA("Who?"]."""
    yield text
    if settings.close:
        yield f"{text.removesuffix(END).rstrip()}){END}"


def screen(candidates: Sequence[Candidate], rules: Screen) -> list[Candidate]:
    """The candidates; those that fail a test have it as their status and are not scored."""
    return [
        candidate if (reason := _failed(candidate, rules)) is None else replace(candidate, status=reason)
        for candidate in candidates
    ]


def _failed(candidate: Candidate, rules: Screen) -> str | None:
    call = candidate.call
    if candidate.status != SCORED or call is None or call.result is None:
        return None
    result = _terms(call.result)
    if rules.new_result:
        result -= _terms(call.input)
        if not result:
            return NOT_NEW
    if rules.result_ahead is not None and not result & _terms(*_ahead(candidate, rules.result_ahead)):
        return NOT_AHEAD
    return None


def _ahead(candidate: Candidate, tokens: int) -> tuple[str, int]:
    """The text after the call, and the number of characters of its next tokens."""
    text, positions = (
        candidate.window.document.text[candidate.position :],
        candidate.window.encoding.positions,
    )
    later = [position for position in positions[candidate.token_position + tokens :] if position is not None]
    return text, (later[0] - candidate.position if later else len(text))


def _terms(text: str, within: int | None = None) -> set[str | Fraction]:
    """The values of the numbers and the casefolded words that begin in the first `within` characters."""
    return {
        exact(match["number"]) * (-1 if match["sign"] else 1) if match["number"] else match.group().casefold()
        for match in _TERM.finditer(text)
        if within is None or match.start() < within
    }
