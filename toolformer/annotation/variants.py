"""Options beyond the paper, off by default: ratios of start probabilities, forced and closed calls, pre-filters.

- `rank=lift`: positions are ranked by the ratio of the start probability to the one without the prompt.
- `force_name`, `close`: help for models too small to write a call's name or its parenthesis.
- `screen`: cheap tests of executed calls before the exact scoring. Most calls are sampled where their result helps nobody. If
  nothing of a result occurs in the next tokens, it seldom makes these likelier; a text comparison shows it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch

from toolformer.annotation.candidates import SCORED, Candidate, PreFilters, ToolSettings
from toolformer.annotation.leaks import terms
from toolformer.annotation.windows import Window
from toolformer.calls import END
from toolformer.lm.language_model import LanguageModel

NOT_AHEAD = "pre-filter: nothing of the result occurs ahead"
NOT_NEW = "pre-filter: the input already has the result"


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


def pre_filter(
    candidates: Sequence[Candidate], rules: PreFilters, tools: Iterable[ToolSettings] = ()
) -> list[Candidate]:
    """The candidates; those that fail a test have it as their status and are not scored.

    Args:
        tools: the settings of tools, some of which may have a `result_ahead` of their own.
    """
    of_tool = {
        tool.key: replace(rules, result_ahead=tool.result_ahead or None)
        for tool in tools
        if tool.result_ahead is not None
    }
    reasons = (_failed(candidate, of_tool.get(candidate.tool, rules)) for candidate in candidates)
    return [
        candidate if reason is None else replace(candidate, status=reason)
        for candidate, reason in zip(candidates, reasons, strict=True)
    ]


def _failed(candidate: Candidate, rules: PreFilters) -> str | None:
    call = candidate.call
    if candidate.status != SCORED or call is None or call.result is None:
        return None
    result = terms(call.result)
    if rules.new_result:
        is_new = result - terms(call.input) if result else call.result.casefold() not in call.input.casefold()
        if not is_new:
            return NOT_NEW
        result -= terms(call.input)
    if rules.result_ahead is not None:
        text, within = _ahead(candidate, rules.result_ahead)
        if not (result & terms(text, within) if result else _begins_within(call.result, text, within)):
            return NOT_AHEAD
    return None


def _begins_within(result: str, text: str, within: int) -> bool:
    """Whether a result without numbers and long words (XIV, no) occurs as words that begin in the first characters."""
    match = re.search(rf"(?<!\w){re.escape(result)}(?!\w)", text, re.IGNORECASE)
    return match is not None and match.start() < within


def _ahead(candidate: Candidate, tokens: int) -> tuple[str, int]:
    """The text after the call, and the number of characters of its next tokens."""
    text, positions = (
        candidate.window.document.text[candidate.position :],
        candidate.window.encoding.positions,
    )
    later = [position for position in positions[candidate.token_position + tokens :] if position is not None]
    return text, (later[0] - candidate.position if later else len(text))
