"""Sampled calls: start probabilities, ranks, batches, and how a sample is read."""

from dataclasses import replace
from typing import Any

import pytest

from tests import reference
from tests.annotation.build import QA, whole_windows, windows_of
from tests.build import tiny_model, tiny_tokenizer
from toolformer.annotation.propose import choose_positions, propose, read_sample
from toolformer.annotation.score import score
from toolformer.calls import ApiCall
from toolformer.data import Document
from toolformer.lm.batching import cached_per_batch
from toolformer.lm.language_model import LanguageModel


def test_the_cache_of_a_batch_stays_within_its_budget() -> None:
    """A random model hardly ever ends a call: many samples of many texts grow to their limit."""
    tokenizer = tiny_tokenizer()
    model = LanguageModel(tiny_model("gpt2", len(tokenizer)), tokenizer)
    texts = [Document(f"d{n}", f"On day {n} " + "we met again " * 3) for n in range(8)]
    settings = replace(QA, max_positions=10, samples=6, max_call_tokens=30)
    held: list[int] = []

    def measure(*given: Any) -> None:
        seen = given[-1]["attention_mask"]  # [rows, 1, tokens, keys]
        held.append(seen.shape[0] * seen.shape[-1])

    hook = model.model.register_forward_pre_hook(measure, with_kwargs=True)
    found, cached = [], []
    for model.batch_tokens in (256, 10**6):
        held.clear()
        proposals = propose(model, settings, whole_windows(model, texts))
        found.append([[candidate.text for candidate in proposal.candidates] for proposal in proposals])
        cached.append(max(held))
    hook.remove()
    assert found[0] == found[1] and [len(calls) for calls in found[0]] == [60] * 8
    assert cached[0] <= cached_per_batch(256) < cached[1]


def test_a_sample_is_a_call_or_has_a_reason() -> None:
    for text, reason in (
        ('QA("Who?")] then', None), ("QA(Who?)]", None), ('QA("Who?"', "call longer than its limit"), ("QA Who?]", "malformed call"),
        ("Calculator(1)]", "other tool"), ('QA("Who?") -> Me]', "result written by the model"),
    ):  # fmt: skip
        assert read_sample(text, QA)[2] == reason


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
        expected = reference.start_probabilities(tiny_gpt2, one, window.text)
        for c in proposal.candidates:
            assert c.start_probability == pytest.approx(expected[c.token_position - window.start], abs=1e-5)
            assert tiny_gpt2.tokenizer.decode(encoding.ids[: c.token_position]) == text[: c.position]
            places.append(c.token_position)
        call = ApiCall("QA", "Who?", "Joe")
        (c,) = score(tiny_gpt2, [replace(proposal.candidates[0], call=call, status="scored")])
        end = ends[window.end]
        seen = window.text + text[len(text) if end is None else end :]
        loss = reference.loss(tiny_gpt2, seen, c.token_position - window.start, None)
        assert c.loss_none == pytest.approx(loss, abs=1e-4)
    assert places == [n for n, position in enumerate(encoding.positions) if position is not None]


def test_lifts_are_those_of_the_reference(language_model: LanguageModel) -> None:
    ranked = replace(QA, rank="lift", max_positions=3, samples=1, max_call_tokens=1)
    for proposal in propose(language_model, ranked, whole_windows(language_model)):
        text = proposal.window.document.text
        prompted = reference.start_probabilities(language_model, ranked, text)
        ids = language_model.encode(text)
        lifts = []
        for i, p in enumerate(prompted):
            context = language_model.bos_ids + ids[:i] or language_model.start_ids()
            row = reference.logits(language_model, context)[-1].softmax(-1)
            lifts.append(p / float(row[language_model.start_id]))
        positions = proposal.window.encoding.positions
        allowed = [p if positions[i] is not None else None for i, p in enumerate(prompted)]
        expected = choose_positions(allowed, 0.0, 3, lifts)
        assert sorted({one.token_position for one in proposal.candidates}) == expected


def test_close_adds_a_missing_parenthesis() -> None:
    closing = replace(QA, close=True)
    texts = {'QA("Who?"] x': "Who?", "QA(Who?] x": "Who?", 'QA("a [b]"]': "a [b]", "QA(2)]": "2"}
    for text, input in texts.items():
        _, call, reason = read_sample(text, closing)
        assert call and (call.input, reason) == (input, None)
    for text in ('QA("Who? ', "QA Who?]", 'QA("Who?" x]'):
        assert read_sample(text, closing)[1:] == read_sample(text, QA)[1:] and read_sample(text, QA)[2]
    assert read_sample('QA("Who?"]', QA)[1:] == (None, "malformed call"), "the paper's way"
