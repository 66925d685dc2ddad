"""The whole annotation against the reference implementation, for each architecture."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests import reference
from tests.annotation.build import DOCUMENTS, QA, keep
from tests.build import ARCHITECTURES, QA_PIECES, Recorder, taught_model
from toolformer.annotation.candidates import SCORED, ToolSettings
from toolformer.annotation.pipeline import Annotator
from toolformer.annotation.score import gain
from toolformer.calls import ApiCall, call_end
from toolformer.data import Document, demo_corpus
from toolformer.jobs import instantiate
from toolformer.jobs.config import compose, validate
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result, Tool
from toolformer.tools.prompt_sets import UNPROMPTED


def echo(text: str) -> Result:
    """Knows nothing of Joe."""
    return Result(reason="no answer") if "Joe" in text else Result(text[::-1])


def compare(
    language_model: LanguageModel, settings: ToolSettings, tool: Tool, documents: Sequence[Document]
) -> tuple[int, int]:
    """Compares a shard with the reference; returns how many calls were scored and kept."""
    annotator = Annotator(language_model, settings, tool, seed=5)
    rows = annotator.annotate(documents).rows
    in_text = keep(rows, {settings.key: settings.filter_threshold})
    scored = stayed = 0
    for document in documents:
        expected = reference.annotate(language_model, settings, tool, document, seed=5)
        found = [row for row in rows if row["doc_id"] == document.doc_id]
        assert [(row["token_position"], row["sample"]) for row in found] == [
            (one.token_position, one.sample) for one in expected
        ]
        for made, one in zip(found, expected, strict=True):
            assert made["start_probability"] == pytest.approx(one.start_probability, abs=1e-4)
            assert (made["status"] == SCORED) == (one.call is not None), (made, one)
            if one.call is None or one.losses is None:
                assert made["written"] == one.text or call_end(one.text) is not None
                continue
            scored += 1
            assert ApiCall.of_row(made["call"]) == one.call
            losses = (made["loss_result"], made["loss_no_result"], made["loss_none"])
            assert losses == pytest.approx(one.losses, abs=1e-4)
            assert gain(made) == pytest.approx(one.gain, abs=1e-4)
        best = reference.kept(expected, settings.filter_threshold)
        stayed += len(best)
        positions = language_model.encode_text(document.text).positions
        assert [(call.position, call.call) for call in in_text.get(document.doc_id, [])] == [
            (positions[i], one.call) for i, one in sorted(best.items())
        ]
    return scored, stayed


@pytest.fixture(scope="module", params=ARCHITECTURES)
def calling_model(request: pytest.FixtureRequest) -> LanguageModel:
    """A tiny model of each architecture that writes calls."""
    return taught_model(request.param, *QA_PIECES)


@pytest.mark.parametrize("way", [{"force_name": True}, {}, {"force_name": True, "temperature": 0.5}])
def test_annotation_is_the_reference(calling_model: LanguageModel, way: dict[str, Any]) -> None:
    settings = replace(QA, **way, max_call_tokens=30, samples=6, filter_threshold=-0.5)
    scored, stayed = compare(calling_model, settings, Recorder(echo, "QA"), DOCUMENTS)
    assert scored >= stayed > 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_further_round_is_the_reference(architecture: str) -> None:
    """A model that was trained on calls with results annotates unprompted; its calls end at the arrow."""
    model = taught_model(architecture, *QA_PIECES[:4], "[QA(x) -> y]", "[QA(Joe) -> eoJ]")
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
