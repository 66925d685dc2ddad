"""Steps in fixed buffers give what steps in a growing cache give: the path that a GPU takes, run without a CUDA graph."""

import math
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build import PIECES, QA_PIECES, random_documents, taught_model, tiny_model, tiny_tokenizer, tools
from toolformer.annotation.candidates import ToolSettings, Window
from toolformer.annotation.propose import propose
from toolformer.decoding.decoder import Decoder
from toolformer.lm import kv_cache
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.slots import Slots
from toolformer.lm.static_steps import are_equal
from toolformer.tools.prompt_sets import UNPROMPTED

CONTEXTS = [[5, 9, 2, 14], [7, 3], [11, 4, 6, 8, 1, 2]]


def in_fixed_buffers(model: LanguageModel) -> LanguageModel:
    fixed = LanguageModel(model.model, model.tokenizer, model.name)
    fixed.use_static_steps()
    return fixed


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def both(request: pytest.FixtureRequest) -> tuple[LanguageModel, LanguageModel]:
    tokenizer = tiny_tokenizer()
    model = LanguageModel(tiny_model(request.param, len(tokenizer)), tokenizer)
    return model, in_fixed_buffers(model)


def run(model: LanguageModel, seed: int) -> list[torch.Tensor]:
    """Logits of steps of two batches whose rows and columns change at random, and of slots that take rows from them."""
    chance = random.Random(seed)
    batches = [model.prefill(CONTEXTS[:2])[1], model.prefill(CONTEXTS)[1]]
    slots, logits = Slots(model), []
    for _ in range(10):
        n = chance.randrange(2)
        branches = batches[n]
        rows, columns = branches.positions.shape
        match chance.randrange(5):
            case 0:
                width = chance.randint(1, 6)
                branches.select(torch.tensor([chance.choices(range(columns), k=width) for _ in range(rows)]))
            case 1 if rows > 1:
                branches.keep_rows(sorted(chance.sample(range(rows), rows - 1)))
            case 2 if columns == 1:
                tails = [[chance.randrange(50)] * chance.randint(1, 3) for _ in range(rows)]
                logits.append(branches.extend(tails))
            case 3 if columns == 1:
                slots.put([chance.randrange(len(slots.lengths) + 1)], branches, [chance.randrange(rows)])
        if count := len(slots.lengths):
            fed = chance.choices([True, False], k=count)
            logits.append(slots.step(chance.choices(range(50), k=count), fed)[fed])
        for _ in range(chance.randint(1, 2)):
            logits.append(branches.step(torch.randint(50, branches.positions.shape, generator=_of(chance))))
    return logits


def _of(chance: random.Random) -> torch.Generator:
    return torch.Generator().manual_seed(chance.randrange(1000))


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_logits_are_those_of_growing_caches(both: tuple[LanguageModel, LanguageModel], seed: int) -> None:
    growing, fixed = (run(model, seed) for model in both)
    for ours, expected in zip(fixed, growing, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=0)


def test_a_row_that_overflowed_leaves_nothing_to_others(both: tuple[LanguageModel, LanguageModel]) -> None:
    expected = both[0].prefill([[5, 9]])[1].step(torch.tensor([[3]]))[0]
    for model in both:
        slots = Slots(model)
        _, overflowed = model.prefill([list(range(30))])
        for layer in kv_cache.layers(overflowed.cache):
            layer.hold(layer.keys * math.nan, layer.values * math.nan)
        slots.put([0], overflowed, [0])
        assert slots.step([1], fed=[True]).isnan().all()
        slots.put([0], model.prefill([[5, 9]])[1], [0])
        torch.testing.assert_close(slots.step([3], fed=[True]), expected, atol=1e-4, rtol=0)
        _, branches = model.prefill([[5, 9]])
        torch.testing.assert_close(branches.step(torch.tensor([[3]]))[0], expected, atol=1e-4, rtol=0)


def test_only_the_thread_that_made_them_has_the_buffers(both: tuple[LanguageModel, LanguageModel]) -> None:
    growing, fixed = both
    fixed.use_static_steps()
    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(lambda seed: run(fixed, seed), range(12)))
    for seed, logits in enumerate(results):
        for ours, expected in zip(logits, run(growing, seed), strict=True):
            torch.testing.assert_close(ours, expected, atol=1e-4, rtol=0)
    assert fixed.static_steps is not None and fixed.static_steps.nbytes == 0
    run(fixed, 0)
    assert fixed.static_steps.nbytes > 0


@pytest.mark.parametrize(
    ("change", "equal"), [({}, True), ({0: 0.001}, True), ({0: 0.02}, False), ({1: 0.009, 2: 0.0}, False)]
)
def test_a_graph_with_other_logits_or_ranks_is_rejected(change: dict[int, float], equal: bool) -> None:
    logits = torch.zeros(2, 1, 40)
    logits[0, 0, :3] = torch.tensor([1.0, 0.003, 0.006])
    logits[:, :, 3:] = torch.arange(37.0).neg() - 1
    replayed = logits.clone()
    for token, added in change.items():
        replayed[0, 0, token] += added
    assert are_equal(replayed, logits) is equal


def test_a_cache_longer_than_the_buffers_moves_to_larger_ones(
    both: tuple[LanguageModel, LanguageModel],
) -> None:
    growing, fixed = both
    context = list(range(250))
    (_, ours), (_, expected) = fixed.prefill([context]), growing.prefill([context])
    for token in range(10):
        fed = torch.tensor([[token]])
        torch.testing.assert_close(ours.step(fed), expected.step(fed), atol=1e-4, rtol=0)


@pytest.mark.parametrize("settings", [{}, {"max_calls": 3, "k": 3}])
def test_prompts_are_continued_alike(settings: dict[str, Any]) -> None:
    model = taught_model("llama", *PIECES)
    documents = random_documents(PIECES[:3], 60)
    found = [
        Decoder(each, tools(), batch_size=7, **settings).complete(
            [document.text for document in documents], documents, max_new_tokens=12
        )
        for each in (model, in_fixed_buffers(model))
    ]
    assert found[0] == found[1]
    assert any(completion.calls for completion in found[0])


def test_calls_are_proposed_alike() -> None:
    model = taught_model("llama", *QA_PIECES)
    settings = ToolSettings(
        "qa",
        "QA",
        UNPROMPTED,
        force_name=True,
        max_call_tokens=12,
        samples=6,
        start_threshold=0,
        max_positions=4,
    )
    encoded = [
        (document, model.encode_text(document.text)) for document in random_documents(QA_PIECES[:4], 30)
    ]
    windows = [Window(document, encoding, 0, len(encoding.ids)) for document, encoding in encoded]
    ours, expected = (
        [
            replace(candidate, start_probability=0.0)
            for proposal in proposals
            for candidate in proposal.candidates
        ]
        for proposals in (propose(each, settings, windows) for each in (in_fixed_buffers(model), model))
    )
    assert ours == expected
    assert len({candidate.text for candidate in ours}) > 5
