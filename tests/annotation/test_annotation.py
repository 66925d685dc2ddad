"""Propose, draw, execute, score and merge, and the whole annotation, against the method read literally, for each architecture."""

import datetime
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from tests import textbook
from tests.annotation.conftest import CALLING
from tests.conftest import ARCHITECTURES, Patch, taught_model, tiny_model, tiny_tokenizer
from tests.tools.recorders import Recorder
from toolformer.annotation.candidates import SCORED, Candidate, ToolSettings, Window, windows
from toolformer.annotation.execute import LOOK_AHEAD, execute
from toolformer.annotation.gumbel_sampling import draw, draw_keys, exponentials
from toolformer.annotation.merge import keep, merge, row
from toolformer.annotation.pipeline import Annotator
from toolformer.annotation.propose import propose, read_sample
from toolformer.annotation.score import WEIGHTS, score
from toolformer.calls import ApiCall, call_end, linearise, strip
from toolformer.data import Document, demo_corpus
from toolformer.errors import UserError
from toolformer.lm.batching import cached_per_batch
from toolformer.lm.branches import Branches
from toolformer.lm.language_model import LanguageModel
from toolformer.stages import instantiate
from toolformer.stages.config import compose, validate
from toolformer.tools.base import Result, Tool
from toolformer.tools.prompt_sets import UNPROMPTED, Prompt

BORN = (
    "Joe Biden was born in Scranton.",
    'Joe Biden was born in [QA("Where was Joe Biden born?")] Scranton.',
)
PROMPT = Prompt(
    'Add calls. You can call the API by writing "[QA(question)]". Here are some examples of API calls:',
    (BORN,),
)
QA = ToolSettings("qa", "QA", PROMPT, start_threshold=0.0, max_positions=4, samples=3, max_call_tokens=12)
TEXTS = [
    "The population is 658,893 people.",
    "red is for the blood of martyrs, the first Monday of the year 北京 is 11.4% of the national average. Today",
    "x",
]
DOCUMENTS = [Document(f"d{n}", text, date=datetime.date(2020, 5, n + 1)) for n, text in enumerate(TEXTS)]


def whole_window(language_model: LanguageModel, document: Document) -> Window:
    encoding = language_model.encode_text(document.text)
    return Window(document, encoding, 0, len(encoding.ids))


def test_no_call_starts_inside_a_grapheme_cluster(tiny_gpt2: LanguageModel) -> None:
    characters = ["a", "e\u0301", " ", "👨\u200d👩\u200d👧", "ć", "कि", "🇩🇪", "b", "क्षि", ".\u0301"]
    text = "".join(characters)
    begins = {len("".join(characters[:n])) for n in range(len(characters))}
    (window,) = windows(tiny_gpt2, Document("d", text), tiny_gpt2.encode_text(text), QA, [(0, len(text))])
    assert window.ids == tiny_gpt2.encode(text), "all of it is read"
    offered = {position for position in window.positions if position is not None}
    assert {0, 1, text.index("b")} <= offered <= begins


def whole_windows(language_model: LanguageModel, documents: list[Document] = DOCUMENTS) -> list[Window]:
    return [whole_window(language_model, document) for document in documents]


def windows_of(
    model: LanguageModel, text: str, settings: ToolSettings, *spans: tuple[int, int]
) -> list[Window]:
    """The windows of a text, or of spans of it."""
    encoding = model.encode_text(text)
    return windows(model, Document("d", text), encoding, settings, spans or [(0, len(text))])


def test_the_cache_of_a_batch_stays_within_its_budget(monkeypatch: Patch) -> None:
    """A random model hardly ever ends a call: many samples of many texts grow to their limit."""
    tokenizer = tiny_tokenizer()
    model = LanguageModel(tiny_model("gpt2", len(tokenizer)), tokenizer)
    texts = [Document(f"d{n}", f"On day {n} " + "we met again " * 3) for n in range(8)]
    settings = replace(QA, max_positions=10, samples=6, max_call_tokens=30)
    held: list[int] = []
    step = Branches.step

    def measured(branches: Branches, *given: Any) -> torch.Tensor:
        logits = step(branches, *given)
        held.append(branches.visible.shape[0] * branches.visible.shape[2])
        return logits

    monkeypatch.setattr(Branches, "step", measured)
    found, cached = [], []
    for model.batch_tokens in (256, 10**6):
        held.clear()
        proposals = propose(model, settings, whole_windows(model, texts))
        found.append([[candidate.text for candidate in proposal.candidates] for proposal in proposals])
        cached.append(max(held))
    assert found[0] == found[1] and [len(calls) for calls in found[0]] == [60] * 8
    assert cached[0] <= cached_per_batch(256) < cached[1]


def test_a_sample_is_a_call_or_has_a_reason() -> None:
    for text, reason in (
        ('QA("Who?")] then', None), ("QA(Who?)]", None), ('QA("Who?"', "call not ended"), ("QA Who?]", "malformed call"),
        ("Calculator(1)]", "other tool"), ('QA("Who?") -> Me]', "result written by the model"),
    ):  # fmt: skip
        assert read_sample(text, QA)[2] == reason


def candidate(window: Window, i: int, call: ApiCall | None, **fields: Any) -> Candidate:
    values = {"tool": "qa", "token_position": i, "start_probability": 0.5, "sample": 0, "text": "", **fields}
    return Candidate(window=window, call=call, **values)


def test_losses_and_gains_are_those_of_the_textbook(language_model: LanguageModel) -> None:
    assert WEIGHTS == pytest.approx((1 / 3, 4 / 15, 1 / 5, 2 / 15, 1 / 15)), "the paper's, which sum to one"
    calls = [
        ApiCall("QA", "Who?", "Joe Biden", True), ApiCall("QA", "C:\\new\\table", "a \\ b"), ApiCall("QA", "", "x"),
    ]  # fmt: skip
    candidates = [
        candidate(window, i, call)
        for window in whole_windows(language_model)
        for i in {0, 1, 4, len(window.ids) - 2, len(window.ids) - 1}
        if 0 <= i < len(window.ids)
        for call in calls
    ]
    for one in score(language_model, candidates):
        text, i, call = one.window.document.text, one.token_position, one.call
        assert call is not None
        losses = [textbook.loss(language_model, text, i, each) for each in (call, call.with_result(""), None)]
        assert [one.loss_result, one.loss_no_result, one.loss_none] == pytest.approx(losses, abs=1e-4)
        assert one.gain == pytest.approx(min(one.loss_none, one.loss_no_result) - one.loss_result)


def test_the_call_survives_in_the_loss_of_a_long_text(tiny_gpt2: LanguageModel) -> None:
    """Earlier implementations cut the call off when the text filled the context."""
    window = whole_window(tiny_gpt2, Document("long", "The population is 658,893 people. " * 60))
    assert len(window.ids) > tiny_gpt2.context_length
    calls = [ApiCall("QA", "Who?", result) for result in ("people", "Monday Scranton")]
    first, second = score(tiny_gpt2, [candidate(window, len(window.ids) - 5, call) for call in calls])
    assert first.loss_result != second.loss_result


def test_spans_limit_the_annotation(tiny_gpt2: LanguageModel) -> None:
    text = "First paragraph.\n\nSecond paragraph here.\n\nThird."
    start = text.index("Second")
    found = windows_of(tiny_gpt2, text, QA, (start, start + 22))
    assert [window.text for window in found] == ["Second paragraph here."]
    long, wide = replace(QA, prompt=Prompt("word " * 600, ())), replace(QA, window_overlap=400)
    for settings, message in (
        (long, "tool.qa: its prompt does not fit into the context of 512 tokens"),
        (wide, "propose.window_overlap is 400, but a window of tool qa has"),
    ):
        with pytest.raises(UserError, match=message):
            windows_of(tiny_gpt2, text, settings)


class Recording(Recorder):
    """Answers in capitals."""

    def __init__(self) -> None:
        super().__init__(lambda text: Result(text.upper()) if text else Result(reason="nothing asked"), "QA")


def test_each_distinct_call_is_executed_once(tiny_gpt2: LanguageModel) -> None:
    first, second, _ = whole_windows(tiny_gpt2)
    tool = Recording()
    asked = [ApiCall("QA", "who", None, True), ApiCall("QA", "who"), ApiCall("QA", "")]
    candidates = [
        candidate(window, 1, call, sample=n) for window in (first, second) for n, call in enumerate(asked)
    ]
    candidates.append(candidate(first, 1, None, status="malformed call"))
    done = execute(candidates, {"qa": tool})
    assert [sorted(batch) for batch in tool.batches] == [["", "", "who", "who"]]
    assert [c.status for c in done] == [SCORED, SCORED, "nothing asked"] * 2 + ["malformed call"]
    assert [c.call.result for c in done if c.status == SCORED and c.call] == ["WHO"] * 4


def test_a_translation_of_what_comes_later_is_dropped(tiny_gpt2: LanguageModel) -> None:
    window = whole_window(tiny_gpt2, Document("t", "He wrote O homem in 1967."))
    call = ApiCall("MT", "O homem")
    asked = [candidate(window, i, call, tool="translation") for i in (1, len(window.ids) - 1)]
    done = [execute([one], {"translation": Recording()})[0].status for one in asked]
    assert done == [LOOK_AHEAD, SCORED]

    for key, selector in (("translation", "any"), ("mine", "translation"), ("mine", "any")):
        settings = replace(QA, key=key, selector=selector)
        annotator = Annotator(tiny_gpt2, [settings], {key: Recording()})
        (one,) = annotator._execute([candidate(window, 1, call, tool=key)])
        assert (one.status == LOOK_AHEAD) == (key == "translation" or selector == "translation")


def test_kept_calls_are_inserted_into_unchanged_texts(tiny_gpt2: LanguageModel) -> None:
    window = whole_windows(tiny_gpt2)[0]
    losses = {"loss_no_result": 3.0, "loss_none": 4.0}
    candidates = [
        candidate(window, 0, ApiCall("QA", "zero", "0"), loss_result=1.0, **losses),
        candidate(window, 3, ApiCall("QA", "worse", "1"), loss_result=2.2, sample=0, **losses),
        candidate(window, 3, ApiCall("QA", 'better \\ "q"', "2", True), loss_result=2.0, sample=1, **losses),
        candidate(window, 4, ApiCall("QA", "dropped"), status="no date"),
    ]
    rows = [row(one) for one in candidates]

    def inputs(threshold: float) -> list[str]:
        return [kept.call.input for kept in keep(rows, {"qa": threshold}).get("d0", [])]

    assert inputs(0.5) == inputs(1.0) == ["zero", 'better \\ "q"'], "a gain of exactly 1.0 is kept"
    assert inputs(1.5) == ["zero"] and inputs(2.5) == []
    merged = merge(window.document, keep(rows, {"qa": 0.5})["d0"])
    text = merged["text"]
    assert isinstance(text, str) and text.startswith(" [QA(zero) -> 0]The")
    assert strip(text, {"QA"}) == window.document.text
    assert ' [QA("better \\\\ \\"q\\"") -> 2]' in text
    assert merged["date"] == "2020-05-01"
    both = [
        row(candidate(window, 2, ApiCall(name, "a", "b"), tool=tool, loss_result=0.0, **losses))
        for tool, name in (("search", "WikiSearch"), ("qa", "QA"))
    ]
    text = str(merge(window.document, keep(both, {"qa": 1.0, "search": 1.0})["d0"])["text"])
    assert "[QA(a) -> b] [WikiSearch(a) -> b]" in text, "two tools at one position"


def echo(text: str) -> Result:
    """Knows nothing of Joe."""
    return Result(reason="no answer") if "Joe" in text else Result(text[::-1])


def compare(
    language_model: LanguageModel, settings: ToolSettings, tool: Tool, documents: Sequence[Document]
) -> tuple[int, int]:
    """Holds a shard to the textbook; returns how many calls were scored and kept."""
    annotator = Annotator(language_model, [settings], {settings.key: tool}, seed=5)
    rows = annotator.annotate(documents).rows
    in_text = keep(rows, {settings.key: settings.filter_threshold})
    scored = stayed = 0
    for document in documents:
        expected = textbook.annotate(language_model, settings, tool, document, seed=5)
        found = [row for row in rows if row["doc_id"] == document.doc_id]
        assert [(row["token_position"], row["sample"]) for row in found] == [
            (one.token_position, one.sample) for one in expected
        ]
        for made, one in zip(found, expected, strict=True):
            assert made["start_probability"] == pytest.approx(one.start_probability, abs=1e-4)
            assert (made["status"] == SCORED) == (one.call is not None), (made, one)
            if one.call is None or one.losses is None:
                assert made["call"] in (one.text, f"[{one.text}") or call_end(one.text) is not None
                continue
            scored += 1
            assert made["call"] == linearise(replace(one.call, result=None)).strip()
            assert made["result"] == one.call.result
            losses = (made["loss_result"], made["loss_no_result"], made["loss_none"])
            assert losses == pytest.approx(one.losses, abs=1e-4)
            assert made["gain"] == pytest.approx(one.gain, abs=1e-4)
        best = textbook.kept(expected, settings.filter_threshold)
        stayed += len(best)
        positions = language_model.encode_text(document.text).positions
        assert [(call.position, call.call) for call in in_text.get(document.doc_id, [])] == [
            (positions[i], one.call) for i, one in sorted(best.items())
        ]
    return scored, stayed


@pytest.fixture(scope="module", params=ARCHITECTURES)
def calling_model(request: pytest.FixtureRequest) -> LanguageModel:
    """A tiny model of each architecture that writes calls."""
    return taught_model(request.param, *CALLING)


@pytest.mark.parametrize("way", [{"force_name": True}, {}, {"force_name": True, "temperature": 0.5}])
def test_annotation_is_the_textbooks(calling_model: LanguageModel, way: dict[str, Any]) -> None:
    settings = replace(QA, **way, max_call_tokens=30, samples=6, filter_threshold=-0.5)
    scored, stayed = compare(calling_model, settings, Recorder(echo, "QA"), DOCUMENTS)
    assert scored >= stayed > 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_further_round_is_the_textbooks(architecture: str) -> None:
    """A model that was trained on calls with results annotates unprompted; its calls end at the arrow."""
    model = taught_model(architecture, *CALLING[:4], "[QA(x) -> y]", "[QA(Joe) -> eoJ]")
    settings = replace(QA, prompt=UNPROMPTED, force_name=True, max_call_tokens=30, samples=6)
    settings = replace(settings, filter_threshold=-0.5)
    scored, stayed = compare(model, settings, Recorder(echo, "QA"), DOCUMENTS)
    assert scored >= stayed > 0


@pytest.mark.real
def test_annotation_by_the_bundled_model_is_the_references() -> None:
    """A real tool on a document."""
    config = validate(compose("generate", ["tools=[calculator]"]))
    language_model = LanguageModel.from_pretrained(config.model, "float32", "cpu")
    few = {"max_positions": 2, "samples": 2, "selector": "any", "filter_threshold": -1.0}
    settings = replace(instantiate.tool_settings(config, "calculator"), **few)
    tool, documents = instantiate.tools(config)["calculator"], list(demo_corpus("train"))[7:8]
    scored, stayed = compare(language_model, settings, tool, documents)
    assert scored > 0 and stayed > 0


def keys(count: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(draw_keys(seed, "d", "qa", 3, 1, count))


def test_keys_depend_only_on_the_sampled_draw() -> None:
    one = draw_keys(0, "d", "qa", 3, 1, 1000)
    assert (one == draw_keys(0, "d", "qa", 3, 1, 1000)).all()
    assert (one[:10] == draw_keys(0, "d", "qa", 3, 1, 10)).all()
    others = [
        (1, "d", "qa", 3, 1), (0, "e", "qa", 3, 1), (0, "d", "mt", 3, 1), (0, "d", "qa", 4, 1), (0, "d", "qa", 3, 2),
    ]  # fmt: skip
    assert all((one != draw_keys(*key, 1000)).all() for key in others)
    assert draw_keys(0, "\ud800", "qa", 3, 1, 1).shape == (1,)  # a broken text has a name, too


def test_numbers_are_exponential_and_independent() -> None:
    numbers = exponentials(keys(400), 500)
    assert stats.kstest(numbers.flatten().numpy(), "expon").pvalue > 1e-3
    # Each entry over many keys, and neighbours of either kind.
    assert min(stats.kstest(numbers[:, i].numpy(), "expon").pvalue for i in range(50)) > 1e-4
    for a, b in ((numbers[:, 1:], numbers[:, :-1]), (numbers[1:], numbers[:-1])):
        assert abs(np.corrcoef(a.flatten().numpy(), b.flatten().numpy())[0, 1]) < 0.01
    consecutive = exponentials(torch.arange(400), 50)
    assert stats.kstest(consecutive.flatten().numpy(), "expon").pvalue > 1e-3


def test_tokens_have_the_distribution_of_the_softmax() -> None:
    logits = torch.tensor([2.0, 0.0, -1.0, 1.0, -30.0, 0.5])
    drawn = draw(logits[None], keys(20_000), torch.zeros(20_000, dtype=torch.long))
    counts = torch.bincount(drawn, minlength=6)
    assert counts[4] == 0
    likely = [0, 1, 2, 3, 5]
    expected = logits.double().softmax(-1)[likely] * 20_000
    expected *= counts[likely].sum() / expected.sum()
    assert stats.chisquare(counts[likely].numpy(), expected.numpy()).pvalue > 1e-3


def test_draws_do_not_depend_on_the_batch() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 1000)
    rows = torch.tensor([2, 0, 0, 1] * 20)
    together = draw(logits, keys(80), rows)
    alone = [int(draw(logits, key[None], row[None])) for row, key in zip(rows, keys(80), strict=True)]
    assert together.tolist() == alone
    assert alone == [textbook.drawn(logits[row], int(key)) for row, key in zip(rows, keys(80), strict=True)]
    # Rounding moves hardly a draw: inverting the distribution function, some hundred of these would change.
    logits = 3 * torch.randn(50, 20_000)
    noisy = logits + 1e-5 * torch.randn_like(logits)
    rows = torch.arange(50).repeat(20)
    changed = draw(logits, keys(1000), rows) != draw(noisy, keys(1000), rows)
    assert changed.sum() <= 2
