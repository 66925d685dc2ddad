"""The whole annotation, as the stage does it, against the method read literally with stock `generate`."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests import textbook
from tests.annotation.conftest import CALLING
from tests.annotation.test_annotation import DOCUMENTS, QA
from tests.conftest import ARCHITECTURES, taught_model
from tests.tools.recorders import Recorder
from toolformer.annotation.candidates import SCORED, ToolSettings
from toolformer.annotation.merge import keep
from toolformer.annotation.pipeline import Annotator
from toolformer.calls import call_end, linearise
from toolformer.data import Document, demo_corpus
from toolformer.lm.language_model import LanguageModel
from toolformer.stages import instantiate
from toolformer.stages.config import compose, validate
from toolformer.tools.base import Result, Tool


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
        for row, one in zip(found, expected, strict=True):
            assert row["start_probability"] == pytest.approx(one.start_probability, abs=1e-4)
            assert (row["status"] == SCORED) == (one.call is not None), (row, one)
            if one.call is None or one.losses is None:
                assert row["call"] in (one.text, f"[{one.text}") or call_end(one.text) is not None
                continue
            scored += 1
            assert row["call"] == linearise(replace(one.call, result=None)).strip()
            assert row["result"] == one.call.result
            losses = (row["loss_result"], row["loss_no_result"], row["loss_none"])
            assert losses == pytest.approx(one.losses, abs=1e-4)
            assert row["gain"] == pytest.approx(one.gain, abs=1e-4)
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


@pytest.mark.parametrize("force_name", [True, False])
def test_annotation_is_the_textbooks(calling_model: LanguageModel, force_name: bool) -> None:
    settings = replace(QA, force_name=force_name, max_call_tokens=30, samples=6, filter_threshold=-0.5)
    scored, stayed = compare(calling_model, settings, Recorder(echo, "QA"), DOCUMENTS)
    assert scored >= stayed > 0


@pytest.mark.real
@pytest.mark.parametrize(("key", "first", "last"), [("calculator", 7, 8), ("search", 13, 15)])
def test_annotation_of_real_texts_by_the_embedded_model_is_the_textbooks(
    key: str, first: int, last: int
) -> None:
    """Real tools on a document or two each."""
    config = validate(compose("generate", [f"tools=[{key}]"]))
    language_model = LanguageModel.from_pretrained(config.model, "float32", "cpu")
    few = {"max_positions": 2, "samples": 2, "selector": "any", "filter_threshold": -1.0}
    settings = replace(instantiate.tool_settings(config, key), **few)
    documents = list(demo_corpus("train"))[first:last]
    scored, stayed = compare(language_model, settings, instantiate.tools(config)[key], documents)
    assert scored > 0 and stayed > 0
