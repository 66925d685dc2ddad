"""Annotation from left to right, against a plain loop over positions, samples and losses."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests import textbook
from tests.annotation.conftest import CALLING
from tests.annotation.test_annotation import DOCUMENTS, QA, echo
from tests.conftest import taught_model
from tests.tools.recorders import Recorder
from toolformer.annotation.candidates import SCORED, ToolSettings
from toolformer.annotation.merge import keep
from toolformer.annotation.pipeline import Annotator
from toolformer.calls import linearise
from toolformer.data import Document
from toolformer.lm.language_model import LanguageModel
from toolformer.stages.config import compose, validate
from toolformer.stages.generate import annotation
from toolformer.tools.base import Result
from toolformer.tools.prompt_sets import UNPROMPTED, Prompt

CHAINED = replace(
    QA, chain=True, force_name=True, max_call_tokens=30, samples=6, filter_threshold=-0.5, max_positions=5
)
SEARCH = replace(
    CHAINED,
    key="search",
    name="WikiSearch",
    prompt=Prompt("Use [WikiSearch(x)].", (("Red is red.", "Red is [WikiSearch(x)] red."),)),
)


def annotator(model: LanguageModel, settings: Sequence[ToolSettings], **more: Any) -> Annotator:
    tools = {each.key: Recorder(answer, each.name) for each in settings}
    return Annotator(model, settings, tools, seed=5, **more)


def answer(text: str) -> Result:
    """As long as the input, so that what is kept changes what follows."""
    return echo(text) if text else Result("658,893 people")


def compare(model: LanguageModel, settings: Sequence[ToolSettings], documents: Sequence[Document]) -> int:
    """Checks a shard against the reference; returns the most calls that were kept in a text."""
    chain = annotator(model, settings)
    rows = chain.annotate(documents).rows
    in_text = keep(rows, {each.key: each.filter_threshold for each in settings})
    for document in documents:
        expected = textbook.chain(model, settings, chain.tools, document, seed=5)
        expected.sort(key=lambda one: one[0])
        made = [row for row in rows if row["doc_id"] == document.doc_id]
        assert [(row["tool"], row["token_position"], row["sample"]) for row in made] == [
            (tool, one.token_position, one.sample) for tool, one, _ in expected
        ]
        for row, (_, one, _) in zip(made, expected, strict=True):
            assert (row["status"] == SCORED) == (one.call is not None), (row, one)
            if one.call and one.losses:
                assert row["call"] == linearise(replace(one.call, result=None)).strip()
                assert row["result"] == one.call.result
                losses = (row["loss_result"], row["loss_no_result"], row["loss_none"])
                assert losses == pytest.approx(one.losses, abs=1e-4)
        kept = [(tool, one.call) for tool, one, is_kept in expected if is_kept]
        merged = in_text.get(document.doc_id, [])
        assert sorted([(call.tool, linearise(call.call)) for call in merged]) == sorted(
            (tool, linearise(call)) for tool, call in kept if call
        )
    return max(map(len, in_text.values()))


def taught(architecture: str) -> LanguageModel:
    """A tiny model that writes calls, with and without results."""
    return taught_model(architecture, *CALLING, "[QA(x) -> y]")


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return taught("gpt2")


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_a_chain_is_the_references(architecture: str) -> None:
    assert compare(taught(architecture), [CHAINED], DOCUMENTS) > 1, "a call was kept before another"


def test_a_chain_of_two_tools_is_the_references(model: LanguageModel) -> None:
    assert compare(model, [SEARCH, CHAINED], DOCUMENTS[:2]) > 2


def test_a_chain_without_a_prompt_is_the_references(model: LanguageModel) -> None:
    assert compare(model, [replace(CHAINED, prompt=UNPROMPTED)], DOCUMENTS[:2]) > 1


def test_a_chain_does_not_depend_on_the_batch(model: LanguageModel) -> None:
    together = annotator(model, [CHAINED]).annotate(DOCUMENTS).rows
    alone = [row for document in DOCUMENTS for row in annotator(model, [CHAINED]).annotate([document]).rows]
    names = ("doc_id", "position", "sample", "call", "result", "status")
    assert [[row[name] for name in names] for row in together] == [
        [row[name] for name in names] for row in alone
    ]


def test_a_chain_applies_its_thresholds_while_it_annotates(model: LanguageModel) -> None:
    """A call that is not kept changes nothing after it."""
    settings = replace(CHAINED, max_positions=3)
    losses = []
    for chain, threshold in ((False, 0), (True, 1e3), (True, -1e3)):
        tool = replace(settings, chain=chain, filter_threshold=threshold)
        rows = annotator(model, [tool]).annotate(DOCUMENTS).rows
        scored = {
            (row["doc_id"], row["position"]): row["loss_none"] for row in rows if row["status"] == SCORED
        }
        losses.append(scored)
    plain, strict, lax = losses
    common = plain.keys() & strict.keys()
    assert common and all(plain[key] == pytest.approx(strict[key], abs=1e-4) for key in common)
    assert any(lax[key] != pytest.approx(strict[key], abs=1e-2) for key in lax.keys() & strict.keys())


def test_the_funnel_of_a_chain_adds_up(model: LanguageModel) -> None:
    annotation = annotator(model, [CHAINED]).annotate(DOCUMENTS)
    counts = annotation.funnel["qa"]
    assert counts["sampled"] == len(annotation.rows) == counts["positions"] * CHAINED.samples
    assert counts["scored"] + sum(counts["drop_reasons"].values()) == counts["sampled"]
    assert counts["well_formed"] >= counts["executed"] >= counts["scored"] > 0


def test_kept_calls_that_do_not_fit_the_context_are_left_out_from_the_first_on(model: LanguageModel) -> None:
    long = Document("long", "The population is 658,893 people. " * 20)
    settings = replace(CHAINED, max_positions=8, samples=2, filter_threshold=-1e3)
    tool = Recorder(lambda _: Result("red " * 60), "QA")
    rows = Annotator(model, [settings], {"qa": tool}, seed=5).annotate([long]).rows
    calls = keep(rows, {"qa": -1e3})["long"]
    assert sum(len(model.encode(linearise(call.call))) for call in calls) > model.context_length


def key(*overrides: str) -> str:
    return annotation(validate(compose("generate", ["tools=[calculator]", *overrides]))).key()


def test_thresholds_decide_a_chain_and_nothing_else() -> None:
    assert key("filter_threshold=1") == key("filter_threshold=2") == key("filter.baseline=plain")
    chains = [["filter_threshold=1"], ["filter_threshold=2"], ["filter.baseline=plain"]]
    assert len({key("propose.chain=true", *overrides) for overrides in chains} | {key()}) == 4
