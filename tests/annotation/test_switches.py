"""Switches of the annotation: the baseline, window sizes, call lengths; and the funnel."""

import json
import re
import threading
from dataclasses import replace
from typing import Any

import pytest
import regex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import textbook
from tests.annotation.test_annotation import DOCUMENTS, QA, Recording, candidate, whole_windows, windows_of
from tests.conftest import tiny_model, tiny_tokenizer
from toolformer.annotation import funnel as funnel_module
from toolformer.annotation.funnel import REASONS, STEPS, log_funnel
from toolformer.annotation.merge import BEATEN, BELOW, NO_GAIN, decide, gain, keep, row
from toolformer.annotation.pipeline import NO_POSITION, Annotator
from toolformer.annotation.propose import propose, read_sample
from toolformer.annotation.score import score
from toolformer.calls import ApiCall
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.stages.config import compose, validate
from toolformer.stages.instantiate import tool_settings
from toolformer.tools.base import Result


def scored(window: Any, i: int, sample: int = 0, **losses: float) -> dict[str, Any]:
    """A row of a candidate that was scored. The call alone helps: the plain baseline, without one, gains more."""
    losses = {"loss_result": 1.0, "loss_no_result": 1.5, "loss_none": 3.0, **losses}
    return row(candidate(window, i, ApiCall("QA", "a", "b"), sample=sample, **losses))


def test_the_baseline_is_chosen_after_scoring(tiny_gpt2: LanguageModel) -> None:
    window = whole_windows(tiny_gpt2)[0]
    rows = [scored(window, 2)]
    assert rows[0]["gain"] == 0.5  # the file keeps the paper's
    assert gain(rows[0]) == 0.5 and gain(rows[0], "plain") == 2.0
    assert keep(rows, {"qa": 1.0}) == {}
    ((kept,),) = keep(rows, {"qa": 1.0}, "plain").values()
    assert kept.gain == 2.0
    harmful = scored(window, 2, loss_no_result=9.0)
    assert gain(harmful) == gain(harmful, "plain") == 2.0


def test_every_scored_call_is_kept_or_has_a_reason(tiny_gpt2: LanguageModel) -> None:
    window = whole_windows(tiny_gpt2)[0]
    losses = [(1, 0, 0.4), (1, 1, 0.2), (1, 2, 0.3), (2, 0, 1.2), (3, 0, float("nan"))]
    rows = [scored(window, i, sample, loss_result=loss) for i, sample, loss in losses]
    rows.append(row(candidate(window, 4, None, status="malformed call")))
    decisions = decide(rows, {"qa": 1.0})
    reasons = [BEATEN, "", BEATEN, BELOW, NO_GAIN, "malformed call"]
    assert [decision.reason for decision in decisions] == reasons
    assert [decision.gain for decision in decisions[:4]] == pytest.approx([1.1, 1.3, 1.2, 0.3])
    assert decisions[4].gain is decisions[5].gain is None
    ((kept,),) = keep(rows, {"qa": 1.0}).values()
    assert kept.gain == pytest.approx(1.3)


def test_an_unscored_gain_counts_as_its_bound(tiny_gpt2: LanguageModel) -> None:
    bounded = scored(whole_windows(tiny_gpt2)[0], 2, loss_none=1.2) | {"loss_no_result": None, "gain": None}
    for baseline in ("paper", "plain"):
        (decision,) = decide([bounded], {"qa": 1.0}, baseline)
        assert (decision.reason, decision.gain) == (BELOW, pytest.approx(0.2))


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


def test_overlapping_windows_are_the_references(tiny_gpt2: LanguageModel) -> None:
    text = "The population of 北京 is 658,893 people. " * 6
    encoding = tiny_gpt2.encode_text(text)
    one = replace(QA, window_tokens=40, window_overlap=10, max_positions=1000, samples=1, max_call_tokens=2)
    found = windows_of(tiny_gpt2, text, one)
    assert len(found) > 2
    assert all(later.start <= earlier.end - 10 for earlier, later in zip(found, found[1:], strict=False))
    ends = [*encoding.positions, len(text)]
    places: list[int] = []
    for window, proposal in zip(found, propose(tiny_gpt2, one, found), strict=True):
        expected = textbook.start_probabilities(tiny_gpt2, one, window.text)
        for c in proposal.candidates:
            assert c.start_probability == pytest.approx(expected[c.token_position - window.start], abs=1e-5)
            assert tiny_gpt2.tokenizer.decode(encoding.ids[: c.token_position]) == text[: c.position]
            places.append(c.token_position)
        call = ApiCall("QA", "Who?", "Joe")
        (c,) = score(tiny_gpt2, [replace(proposal.candidates[0], call=call, status="scored")])
        end = ends[window.end]
        seen = window.text + text[len(text) if end is None else end :]
        loss = textbook.loss(tiny_gpt2, seen, c.token_position - window.start, None)
        assert c.loss_none == pytest.approx(loss, abs=1e-4)
    assert places == [n for n, position in enumerate(encoding.positions) if position is not None]


def test_a_tools_call_length_overrides_the_common_one() -> None:
    words = ["propose.max_call_tokens=30", "tool.qa.max_call_tokens=7", "propose.force_name=true"]
    words += ["propose.window_tokens=64", "propose.window_overlap=8", "tool.search.max_call_tokens=null"]
    config = validate(compose("generate", words))
    qa, search = tool_settings(config, "qa"), tool_settings(config, "search")
    assert (qa.max_call_tokens, search.max_call_tokens) == (7, 30)
    assert qa.force_name and (search.window_tokens, search.window_overlap) == (64, 8)


def test_the_funnel_counts_every_step_and_every_drop(
    tiny_gpt2: LanguageModel, caplog: pytest.LogCaptureFixture
) -> None:
    kinds = [
        replace(QA, force_name=True, samples=4),
        replace(QA, key="never", start_threshold=0.999999),
        replace(QA, key="dated", selector="calendar", max_call_tokens=1),
        replace(QA, key="article", selector="article"),
    ]
    undated = Document("undated", "No day is known here.", source_id="town")
    documents = [*DOCUMENTS, Document("blank", " "), undated]
    made = Annotator(tiny_gpt2, kinds, {kind.key: Recording() for kind in kinds}).annotate(documents)
    for counts in made.funnel.values():
        assert all(isinstance(counts[step], int) for step in STEPS[:-1])
        assert sum(counts["reasons"].values()) == counts["documents"] == 5
        assert counts["selected"] <= counts["documents"] and counts["windows"] >= counts["selected"]
        assert counts["sampled"] >= counts["well_formed"] >= counts["executed"] >= counts["scored"]
        assert counts["sampled"] == counts["scored"] + sum(counts["drop_reasons"].values())
    assert made.funnel["qa"]["reasons"] == {"selected": 4, "empty text": 1}
    assert made.funnel["never"]["window_reasons"] == {NO_POSITION: 4}
    assert made.funnel["never"]["sampled"] == 0
    assert made.funnel["dated"]["reasons"] == {"selected": 3, "no date": 2}
    assert made.funnel["article"]["reasons"] == {"selected": 1, "no article": 4}
    dropped = made.funnel["dated"]["drop_reasons"]  # after one token
    assert dropped["call not ended"] > 0 and set(dropped) <= {"call not ended", "malformed call"}
    assert json.loads(json.dumps(made.funnel)) == made.funnel
    with caplog.at_level("INFO", funnel_module.__name__):
        log_funnel({"qa": {**made.funnel["qa"], "kept": 1, "filter_reasons": {BELOW: 3}}})
    (table,) = caplog.messages
    _, heads, row, reasons = table.splitlines()
    assert heads.split() == ["tool", *STEPS] and len(heads) <= 100
    assert row.split()[:4] == ["qa", "5", "4", "4"] and row.split()[-1] == "1"
    assert reasons.startswith("qa: texts: ") and reasons.endswith(f"; {REASONS['filter_reasons']}: 3 {BELOW}")


def test_a_text_that_is_too_long_is_skipped() -> None:
    """With overlapping windows, for every selector, among texts that are annotated as ever."""
    book = Document("book", "The 3 people of 4 towns. " * 220_000, date=DOCUMENTS[0].date, source_id="a")
    long = Document("long", "The population is 658,893 people. " * 40)
    common = replace(QA, window_tokens=40, window_overlap=8, max_call_tokens=1)
    selectors = ("any", "calculator", "calendar", "translation", "article")
    kinds = [replace(common, key=key, selector=key) for key in selectors]
    steps: list[str] = []
    tokenizer = tiny_tokenizer()
    model = LanguageModel(tiny_model("gpt2", len(tokenizer)), tokenizer)
    model.batch_tokens = 256
    annotator = Annotator(model, kinds, {kind.key: Recording() for kind in kinds})
    result = annotator.annotate([book, long], steps.append)
    for counts in result.funnel.values():
        assert counts["reasons"]["longer than 5,000,000 characters"] == 1 and counts["documents"] == 2
    assert {row["doc_id"] for row in result.rows} == {"long"}
    windows_of = result.funnel["any"]["windows"]
    assert any(re.fullmatch(rf"proposing QA, window \d+ of {windows_of}", step) for step in steps)


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


def test_the_model_continues_while_a_remote_tool_answers(calling_model: LanguageModel) -> None:
    local, served = replace(QA, key="local", force_name=True), replace(QA, key="served", force_name=True)
    there, steps = Served(), list[str]()

    def on_step(step: str) -> None:
        steps.append(step)
        if len(steps) == 2:  # the second tool's proposals begin, and the first one's calls are on their way
            assert there.begun.wait(60), "nobody asked"
            there.gone_on.set()

    tools = {"local": Recording(), "served": there}
    made = Annotator(calling_model, [local, served], tools).annotate(DOCUMENTS, on_step)
    assert steps == ["proposing QA", "proposing QA", "executing calls", "scoring"]
    assert list(made.funnel) == ["local", "served"]
    assert made.funnel["served"]["executed"] == made.funnel["served"]["well_formed"] > 0
    there.gone_on.set()
    again = Annotator(calling_model, [local, served], {key: Recording() for key in tools}).annotate(DOCUMENTS)
    assert (again.rows, again.funnel) == (made.rows, made.funnel)


def test_an_error_of_a_remote_tool_ends_the_annotation(calling_model: LanguageModel) -> None:
    class Gone(Recording):
        elsewhere = True

        def run(self, inputs: list[str], documents: list[Document]) -> list[Result]:
            raise UserError("its data are gone")

    with pytest.raises(UserError, match="its data are gone"):
        Annotator(calling_model, [replace(QA, force_name=True)], {"qa": Gone()}).annotate(DOCUMENTS)


@pytest.mark.parametrize("window_tokens", [None, 16])
def test_places_before_numbers(tiny_gpt2: LanguageModel, window_tokens: int | None) -> None:
    """Only where a number begins within three tokens, in whichever window."""
    text = "She has 48 clips and sold 1,536 of them in the four weeks of May, for $2 each."
    encoding = tiny_gpt2.encode_text(text)
    numbered = replace(
        QA, places="number", max_positions=1000, samples=1, max_call_tokens=1, window_tokens=window_tokens
    )
    parts = windows_of(tiny_gpt2, text, numbered)
    tried = {c.token_position for made in propose(tiny_gpt2, numbered, parts) for c in made.candidates}
    starts = [text.index(number) for number in ("48", "1,536", "2 each")]
    ends = [*encoding.positions, *[len(text)] * 3]
    assert tried == {
        i for i, position in enumerate(encoding.positions)
        if any(position is not None and position <= start < ends[i + 3] for start in starts)
    }  # fmt: skip
    assert tried


@pytest.mark.parametrize(
    ("places", "marked"),
    [
        ("equals", "4 =| 2 + 2. She has 48/2 =| $24 left, which =is half, and 7 x 6=| 42. 14 - 23 =| -9."),
        ("name", "|He met| Ada Lovelace in| London-Soho,| 1,536 times, and| Éva at a| 2.5 km run; x2 is none."),
    ],
)  # fmt: skip
def test_places(places: str, marked: str, tiny_gpt2: LanguageModel) -> None:
    """After an equals sign; before names and numbers."""
    parts = marked.split("|")
    text, expected = "".join(parts), {len("".join(parts[:n])) for n in range(1, len(parts))}
    settings = replace(QA, places=places, max_positions=1000, samples=1, max_call_tokens=1)
    (proposal,) = propose(tiny_gpt2, settings, windows_of(tiny_gpt2, text, settings))
    assert {c.position for c in proposal.candidates} == expected


def test_close_adds_a_missing_parenthesis() -> None:
    closing = replace(QA, close=True)
    texts = {'QA("Who?"] x': "Who?", "QA(Who?] x": "Who?", 'QA("a [b]"]': "a [b]", "QA(2)]": "2"}
    for text, input in texts.items():
        _, call, reason = read_sample(text, closing)
        assert call and (call.input, reason) == (input, None)
    for text in ('QA("Who? ', "QA Who?]", 'QA("Who?" x]'):
        assert read_sample(text, closing)[1:] == read_sample(text, QA)[1:] and read_sample(text, QA)[2]
    assert read_sample('QA("Who?"]', QA)[1:] == (None, "malformed call"), "the paper's way"
