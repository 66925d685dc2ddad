"""Windows of documents, and settings of tools."""

from dataclasses import replace

import pytest
import regex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.annotation.build import QA, windows_of
from toolformer.annotation.candidates import scoring_floor
from toolformer.errors import UserError
from toolformer.jobs.config import compose, validate
from toolformer.jobs.instantiate import tool_settings
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.prompt_sets import Prompt


def test_no_call_starts_inside_a_grapheme_cluster(tiny_gpt2: LanguageModel) -> None:
    characters = ["a", "e\u0301", " ", "👨\u200d👩\u200d👧", "ć", "कि", "🇩🇪", "b", "क्षि", ".\u0301"]
    text = "".join(characters)
    begins = {len("".join(characters[:n])) for n in range(len(characters))}
    (window,) = windows_of(tiny_gpt2, text, QA)
    assert window.ids == tiny_gpt2.encode(text), "all of it is read"
    offered = {position for position in window.positions if position is not None}
    assert {0, 1, text.index("b")} <= offered <= begins


@pytest.mark.parametrize("text", ["a\r\nb c\r\n\r\nd", "é\r\nb", "\r\n", "a\n\rb"])
def test_no_call_starts_between_cr_and_lf(tiny_gpt2: LanguageModel, text: str) -> None:
    (window,) = windows_of(tiny_gpt2, text, QA)
    offered = {position for position in window.positions if position is not None}
    assert offered and not any(text[n - 1 : n + 1] == "\r\n" for n in offered)


def test_spans_limit_the_annotation(tiny_gpt2: LanguageModel) -> None:
    text = "First paragraph.\n\nSecond paragraph here.\n\nThird."
    start = text.index("Second")
    found = windows_of(tiny_gpt2, text, QA, (start, start + 22))
    assert [window.text for window in found] == ["Second paragraph here."]
    long, wide = replace(QA, prompt=Prompt("word " * 600, ())), replace(QA, window_overlap=400)
    for unfit, message in (
        (long, "tool.qa: its prompt does not fit into the context of 512 tokens"),
        (wide, "propose.window_overlap is 400, but a window of tool qa has"),
    ):
        with pytest.raises(UserError, match=message):
            windows_of(tiny_gpt2, text, unfit)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tokens=st.none() | st.integers(16, 60),
    overlap=st.integers(0, 8),
    words=st.lists(st.sampled_from(["北京", "people", "😀👍🏽", "Monday ", " 658,893", "\n\n", "é"]), min_size=1, max_size=150),
    cut=st.floats(0, 1),
)  # fmt: skip
def test_no_position_is_lost_or_tried_twice(
    tiny_gpt2: LanguageModel, tokens: int | None, overlap: int, words: list[str], cut: float
) -> None:
    text = "".join(words)
    encoding, middle = tiny_gpt2.encode_text(text), int(len(text) * cut)
    one = replace(QA, window_tokens=tokens, window_overlap=overlap)
    found = windows_of(tiny_gpt2, text, one, (0, middle), (middle, len(text)))
    tried = [
        window.start + n for window in found for n, position in enumerate(window.positions) if position is not None
    ]  # fmt: skip
    characters = {match.start() for match in regex.finditer(r"\X", text)} | {len(text)}
    assert tried == [n for n, position in enumerate(encoding.positions) if position in characters]
    for window in found:
        assert len(window.ids) <= (tokens or 512)
        assert window.text in text and window.ids == encoding.ids[window.start : window.end]
        if window.first > window.start:  # the requested context, and the text says the same as the tokens
            assert window.first - window.start >= overlap
            assert encoding.positions[window.start] is not None
            assert text[encoding.positions[window.start] :].startswith(window.text)


def test_a_tool_has_its_own_settings_and_those_of_all() -> None:
    words = ["tool.qa.max_call_tokens=7", "tool.qa.max_result_tokens=9", "propose.force_name=true"]
    words += ["propose.window_tokens=64", "propose.window_overlap=8", "setting=large"]
    config = validate(compose("generate", words))
    qa, search = tool_settings(config, "qa"), tool_settings(config, "search")
    assert [(tool.max_call_tokens, tool.max_result_tokens) for tool in (qa, search)] == [(7, 9), (40, 64)]
    assert qa.force_name and (search.window_tokens, search.window_overlap) == (64, 8)


def test_the_floor_is_by_default_the_lowest_threshold() -> None:
    thresholds = {"qa": 0.5, "calendar": -1.0}
    assert scoring_floor(thresholds, None) == -1.0 and scoring_floor(thresholds, -2.0) == -2.0
    with pytest.raises(
        UserError, match="^score.floor is 0.1, above the filter_threshold -1 of tool calendar"
    ):
        scoring_floor(thresholds, 0.1)
