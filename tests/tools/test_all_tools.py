"""What every tool promises: as many results as inputs, never an exception, and the name that configuration gives it."""

import datetime
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.utils import instantiate

from tests.build import OTHER_DOCUMENT, German, Recorder, Writer
from toolformer.calls import ApiCall, linearise, parse
from toolformer.data import Document
from toolformer.jobs.config import compose
from toolformer.tools.base import Result, Tool
from toolformer.tools.cache import ResultCache
from toolformer.tools.calendar import Calendar
from toolformer.tools.question_answering import QuestionAnswering
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.runtime import Limits, ToolRuntime
from toolformer.tools.search import WikiSearch
from toolformer.tools.translation import FewShotTranslator, Translation

HOSTILE = [
    "", " ", "\x00", "\x1b[31mred\x1b[0m", "\ud800", "\udfff lighthouse \ud800", "a" * 100_000, "lighthouse " * 10_000,
    "(" * 100_000, "\n" * 1000, "] -> [", '"', "\\", "‮right to left", "🙂" * 500, "e\u0301" * 500, "\u2028", "1" * 5000,
    "%s %d {0} ${x}", "../../etc/passwd", "<script>alert(1)</script>", "Where is the lighthouse?\x85", "the of and",
]  # fmt: skip


echo = Writer(lambda prompt: prompt[-60:].split("\n")[-1] + " done")


def configured(key: str) -> Callable[[BM25], Tool]:
    """Makes a tool as it is configured."""
    return lambda retriever: instantiate(compose("generate", []).tool[key].implementation)  # type: ignore[no-any-return]


MAKERS: dict[str, Callable[[BM25], Tool]] = {
    **{key: configured(key) for key in compose("generate", []).tool},
    "calendar": lambda retriever: Calendar(use_clock=True),
    "search": WikiSearch,
    "qa": lambda retriever: QuestionAnswering(retriever, echo),
    "translation": lambda retriever: Translation(FewShotTranslator(echo), German()),  # type: ignore[arg-type]
}
"""Every bundled tool; those that would load a model or an index have others."""


@pytest.mark.parametrize("key", MAKERS)
def test_hostile_calls_get_results_that_fit_into_a_text(key: str, retriever: BM25, tmp_path: Path) -> None:
    """Nor does the runtime: the bare tool's results, first and again, from documents of several kinds."""
    inputs = [text for text in HOSTILE for _ in range(3)]
    dated = Document("dated", "x", date=datetime.date(2020, 2, 29))
    own = Document("own", "", source_id="Lighthouse")
    documents = [document for text in HOSTILE for document in (dated, own, Document("d", text))]
    tool = MAKERS[key](retriever)
    bare = tool.run(inputs, documents)
    assert len(bare) == len(inputs) and tool.run([], []) == []
    for result in bare:
        if result.text is None:
            assert result.reason and "\n" not in result.reason
            continue
        result.text.encode("utf-8")
        call = ApiCall(tool.name, "x").with_result(result.text)
        assert parse(linearise(call)) == call
    for executed in (1, 0):
        cached = ToolRuntime(MAKERS[key](retriever), cache=ResultCache(tmp_path / "x.sqlite"))
        assert cached.run(inputs, documents) == bare
        assert bool(cached.usage().executed) == executed
    limited = ToolRuntime(MAKERS[key](retriever), Limits(timeout=60, workers=3, batch_size=7))
    assert limited.run(inputs, documents) == bare, "a result does not depend on its batch"


def test_a_result_that_no_file_can_hold_is_repaired() -> None:
    broken = {"x": Result("a\ud800b"), "y": Result(reason="\udfff")}
    found = ToolRuntime(Recorder(broken.__getitem__)).run(list(broken), [OTHER_DOCUMENT] * 2)
    assert found == [Result("a?b"), Result(reason="?")]
