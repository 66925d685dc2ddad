"""Switches of the annotation: the baseline, window sizes, call lengths, the dtype of the losses; and the funnel."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import textbook
from tests.annotation.test_annotation import DOCUMENTS, QA, Recording, candidate, whole_windows
from tests.conftest import taught_model
from toolformer.annotation import funnel as funnel_module
from toolformer.annotation.candidates import windows
from toolformer.annotation.execute import LOOK_AHEAD, execute
from toolformer.annotation.funnel import REASONS, STEPS, log_funnel, rows_skipped
from toolformer.annotation.merge import BEATEN, BELOW, NO_GAIN, gain, keep, row
from toolformer.annotation.pipeline import NO_POSITION, Annotator
from toolformer.annotation.propose import propose
from toolformer.annotation.score import score
from toolformer.build import tool_settings
from toolformer.calls import ApiCall
from toolformer.config import compose, validate
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.language_model import LanguageModel
from toolformer.reporting.evidence import STEPS as SHOWN
from toolformer.tools.base import Result

# The call alone helps here: the plain baseline, which knows no call without result, gains more.
LOSSES = {"loss_result": 1.0, "loss_no_result": 1.5, "loss_none": 3.0}


def test_the_baseline_is_chosen_after_scoring(tiny_gpt2: LanguageModel) -> None:
    window = whole_windows(tiny_gpt2)[0]
    rows = [row(candidate(window, 2, ApiCall("QA", "a", "b"), **LOSSES))]
    assert rows[0]["gain"] == 0.5  # the file keeps the paper's
    assert gain(rows[0]) == 0.5 and gain(rows[0], "plain") == 2.0
    assert keep(rows, {"qa": 1.0}) == {}
    ((kept,),) = keep(rows, {"qa": 1.0}, "plain").values()
    assert kept.gain == 2.0
    harmful = [row(candidate(window, 2, ApiCall("QA", "a", "b"), **{**LOSSES, "loss_no_result": 9.0}))]
    assert gain(harmful[0]) == gain(harmful[0], "plain") == 2.0


def test_every_scored_call_is_kept_or_has_a_reason(tiny_gpt2: LanguageModel) -> None:
    window = whole_windows(tiny_gpt2)[0]
    call = ApiCall("QA", "a", "b")
    rows = [
        row(candidate(window, i, call, sample=sample, **{**LOSSES, "loss_result": loss}))
        for i, sample, loss in [(1, 0, 0.4), (1, 1, 0.2), (1, 2, 0.3), (2, 0, 1.2), (3, 0, float("nan"))]
    ]
    rows.append(row(candidate(window, 4, None, status="malformed call")))
    dropped: dict[str, Counter[str]] = {}
    kept = keep(rows, {"qa": 1.0}, dropped=dropped)
    assert [one.gain for one in kept["d0"]] == [pytest.approx(1.3)]
    assert dropped == {"qa": {BEATEN: 2, BELOW: 1, NO_GAIN: 1}}
    assert keep(rows, {"qa": 1.0}) == kept


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
    document, encoding = Document("d", text), tiny_gpt2.encode_text(text)
    middle = int(len(text) * cut)
    spans = [(0, middle), (middle, len(text))]
    one = replace(QA, window_tokens=tokens, window_overlap=overlap)
    found = windows(tiny_gpt2, document, encoding, one, spans)
    tried = [
        n for window in found for n in range(window.start, window.end) if window.encoding.positions[n] is not None
    ]  # fmt: skip
    assert tried == [n for n, position in enumerate(encoding.positions) if position is not None]
    for window in found:
        assert len(window.ids) <= (tokens or 512)
        assert window.text in text and window.ids == encoding.ids[window.start : window.end]
        first = next(n for n in range(window.start, window.end) if window.encoding.positions[n] is not None)
        if first > window.start:  # as much context as was asked for, and the text says the same as the tokens
            assert first - window.start >= overlap
            assert encoding.positions[window.start] is not None
            assert text[encoding.positions[window.start] :].startswith(window.text)


def test_windows_overlap_and_their_calls_are_those_of_the_textbook(tiny_gpt2: LanguageModel) -> None:
    text = "The population of 北京 is 658,893 people. " * 6
    document, encoding = Document("long", text), tiny_gpt2.encode_text(text)
    one = replace(QA, window_tokens=40, window_overlap=10, max_positions=1000, samples=1, max_call_tokens=2)
    found = windows(tiny_gpt2, document, encoding, one, [(0, len(text))])
    assert len(found) > 2
    assert all(later.start <= earlier.end - 10 for earlier, later in zip(found, found[1:], strict=False))
    places: list[int] = []
    for window, proposal in zip(found, propose(tiny_gpt2, one, found), strict=True):
        expected = textbook.start_probabilities(tiny_gpt2, one, window.text)
        for c in proposal.candidates:
            assert c.start_probability == pytest.approx(expected[c.token_position - window.start], abs=1e-5)
            assert tiny_gpt2.tokenizer.decode(encoding.ids[: c.token_position]) == text[: c.position]
            places.append(c.token_position)
        call = ApiCall("QA", "Who?", "Joe")
        (scored,) = score(tiny_gpt2, [replace(proposal.candidates[0], call=call, status="scored")])
        assert scored.loss_none == pytest.approx(
            textbook.loss(tiny_gpt2, window.text + text[_end(window) :], scored.token_position - window.start, None),
            abs=1e-4,
        )  # fmt: skip
    assert places == [n for n, position in enumerate(encoding.positions) if position is not None]


def _end(window: Any) -> int:
    position = window.encoding.positions[window.end] if window.end < len(window.encoding.ids) else None
    return len(window.document.text) if position is None else int(position)


def test_an_overlap_that_leaves_no_room_is_one_line(tiny_gpt2: LanguageModel) -> None:
    document = DOCUMENTS[0]
    one = replace(QA, window_overlap=400)
    with pytest.raises(UserError, match="propose.window_overlap is 400, but a window of tool qa has"):
        windows(tiny_gpt2, document, tiny_gpt2.encode_text(document.text), one, [(0, 5)])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("filter.baseline=plane", "filter.baseline is 'plane'; .*did you mean plain"),
        ("score.dtype=float64", "score.dtype is 'float64'"),
        ("propose.max_call_tokens=0", "propose.max_call_tokens is 0"),
        ("propose.window_tokens=4", "propose.window_tokens is 4; it must be at least 16"),
        ("propose.window_overlap=-1", "propose.window_overlap is -1"),
    ],
)
def test_impossible_switches_are_one_line(words: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        validate(compose("generate", [words]))
    with pytest.raises(UserError, match="must be less than propose.window_tokens"):
        validate(compose("generate", ["propose.window_tokens=20", "propose.window_overlap=20"]))


def test_a_tools_own_call_length_goes_before_the_common_one() -> None:
    words = ["propose.max_call_tokens=30", "tool.qa.max_call_tokens=7", "propose.force_name=true"]
    words += ["propose.window_tokens=64", "propose.window_overlap=8"]
    config = validate(compose("generate", words))
    qa, search = tool_settings(config, "qa"), tool_settings(config, "search")
    assert (qa.max_call_tokens, search.max_call_tokens) == (7, 30)
    assert qa.force_name and (search.window_tokens, search.window_overlap) == (64, 8)
    default = tool_settings(validate(compose("generate", [])), "qa")
    assert (default.max_call_tokens, default.force_name, default.window_tokens) == (40, False, None)


def test_the_dtype_of_the_losses(tiny_gpt2: LanguageModel) -> None:
    window = whole_windows(tiny_gpt2)[0]
    asked = [candidate(window, i, ApiCall("QA", "Who?", "Joe")) for i in (1, 2, 4)]
    full, same, half = (score(tiny_gpt2, asked, dtype) for dtype in ("auto", "float32", "bfloat16"))
    assert full == same
    assert [c.loss_none for c in half] != [c.loss_none for c in full]
    for one, other in zip(full, half, strict=True):
        assert one.loss_result == pytest.approx(other.loss_result, abs=0.1)
    logits = tiny_gpt2.score([window.ids], [[1]], torch.bfloat16)[0].log_probs
    assert logits.dtype == torch.bfloat16


def test_the_look_ahead_rule_follows_the_selector_not_the_name(tiny_gpt2: LanguageModel) -> None:
    window = whole_windows(tiny_gpt2)[0]
    calls = [candidate(window, 1, ApiCall("QA", "people"), tool=tool) for tool in ("mt", "qa")]
    done = execute(calls, {"mt": Recording(), "qa": Recording()}, without_look_ahead={"mt"})
    assert [c.status for c in done] == [LOOK_AHEAD, "scored"]


def test_the_funnel_counts_every_step_and_every_drop(
    tiny_gpt2: LanguageModel, caplog: pytest.LogCaptureFixture
) -> None:
    qa = replace(QA, force_name=True, samples=4)
    never = replace(QA, key="never", start_threshold=0.999999)
    dated = replace(QA, key="dated", selector="calendar", max_call_tokens=1)
    documents = [*DOCUMENTS, Document("blank", " "), Document("undated", "No day is known here.")]
    annotator = Annotator(
        tiny_gpt2, [qa, never, dated], {key: Recording() for key in ("qa", "never", "dated")}
    )
    made = annotator.annotate(documents)
    for key, counts in made.funnel.items():
        steps = [counts[step] for step in STEPS[:-1]]
        assert sum(counts["reasons"].values()) == counts["documents"] == 5
        assert counts["selected"] <= counts["documents"] and counts["windows"] >= counts["selected"]
        assert counts["sampled"] >= counts["well_formed"] >= counts["executed"] >= counts["scored"]
        assert counts["sampled"] == counts["scored"] + sum(counts["drop_reasons"].values())
        assert all(isinstance(step, int) for step in steps), key
    assert made.funnel["qa"]["reasons"] == {"selected": 4, "empty text": 1}
    assert made.funnel["never"]["window_reasons"] == {NO_POSITION: 4}
    assert made.funnel["never"]["sampled"] == 0
    assert made.funnel["dated"]["reasons"] == {"selected": 3, "no date in the URL": 2}
    dropped = made.funnel["dated"]["drop_reasons"]  # after one token
    assert dropped["call not ended"] > 0 and set(dropped) <= {"call not ended", "malformed call"}
    assert json.loads(json.dumps(made.funnel)) == made.funnel
    with caplog.at_level("INFO", funnel_module.__name__):
        log_funnel({"qa": {**made.funnel["qa"], "kept": 1, "filter_reasons": {BELOW: 3}}})
    assert caplog.messages[0].startswith("qa: 5 documents > 4 selected > 4 windows >")
    assert caplog.messages[0].endswith("> 1 kept")
    assert caplog.messages[-1] == f"qa: {REASONS['filter_reasons']}: 3 {BELOW}"
    assert SHOWN == STEPS


@pytest.fixture(scope="module")
def calling() -> LanguageModel:
    """A model that writes calls of QA."""
    return taught_model("gpt2", ["we met [QA(day)]", "on [QA(who met)]", "the day"])


class Served(Recording):
    """A tool on another machine, which answers when the language model has gone on to another tool."""

    elsewhere = True

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.gone_on = threading.Event(), threading.Event()

    def run(self, inputs: list[str], documents: list[Document]) -> list[Result]:
        self.begun.set()
        if not self.gone_on.wait(60):
            return [Result(reason="nobody went on", fault=True) for _ in inputs]
        return super().run(inputs, documents)


def test_the_model_goes_on_while_another_machine_answers(calling: LanguageModel) -> None:
    local, served = replace(QA, key="local", force_name=True), replace(QA, key="served", force_name=True)
    there, told = Served(), list[str]()

    def tell(step: str) -> None:
        told.append(step)
        if len(told) == 2:  # the second tool's proposals begin, and the first one's calls are on their way
            assert there.begun.wait(60), "nobody asked"
            there.gone_on.set()

    tools = {"local": Recording(), "served": there}
    made = Annotator(calling, [local, served], tools).annotate(DOCUMENTS, tell)
    assert told == ["proposing QA", "proposing QA", "executing calls", "scoring"]
    assert list(made.funnel) == ["local", "served"]
    assert made.funnel["served"]["executed"] == made.funnel["served"]["well_formed"] > 0
    there.gone_on.set()
    again = Annotator(calling, [local, served], {key: Recording() for key in tools}).annotate(DOCUMENTS)
    assert (again.rows, again.funnel) == (made.rows, made.funnel)


def test_what_ends_a_tool_elsewhere_ends_the_annotation(calling: LanguageModel) -> None:
    class Gone(Recording):
        elsewhere = True

        def run(self, inputs: list[str], documents: list[Document]) -> list[Result]:
            raise UserError("its data are gone")

    with pytest.raises(UserError, match="its data are gone"):
        Annotator(calling, [replace(QA, force_name=True)], {"qa": Gone()}).annotate(DOCUMENTS)


def test_skipped_rows_are_metrics() -> None:
    assert rows_skipped({"empty text": 2, "not UTF-8": 1}) == {
        "rows_skipped": 3,
        "rows_skipped/empty text": 2,
        "rows_skipped/not UTF-8": 1,
    }
    assert rows_skipped({}) == {"rows_skipped": 0}
