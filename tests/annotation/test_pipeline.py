"""The annotation of a batch of documents: its funnel, long texts and tools that fail."""

import json
import re
from dataclasses import replace

import pytest

from tests.annotation.build import DOCUMENTS, QA, Recording
from tests.build import tiny_model, tiny_tokenizer
from toolformer.annotation import funnel as funnel_module
from toolformer.annotation.funnel import REASONS, STEPS, KeptInputs, log_funnel
from toolformer.annotation.merge import BELOW
from toolformer.annotation.pipeline import NO_POSITION, Annotator
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result
from toolformer.tools.limits import CALL_TOO_LONG


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
    made = {kind.key: Annotator(tiny_gpt2, kind, Recording()).annotate(documents).funnel for kind in kinds}
    for counts in made.values():
        assert all(isinstance(counts[step], int) for step in STEPS[:-1])
        assert sum(counts["reasons"].values()) == counts["documents"] == 5
        assert counts["selected"] <= counts["documents"] and counts["windows"] >= counts["selected"]
        assert counts["sampled"] >= counts["well_formed"] >= counts["executed"] >= counts["scored"]
        assert counts["sampled"] == counts["scored"] + sum(counts["drop_reasons"].values())
    assert made["qa"]["reasons"] == {"selected": 4, "empty text": 1}
    assert made["never"]["window_reasons"] == {NO_POSITION: 4}
    assert made["never"]["sampled"] == 0
    assert made["dated"]["reasons"] == {"selected": 3, "no date": 2}
    assert made["article"]["reasons"] == {"selected": 1, "no article": 4}
    dropped = made["dated"]["drop_reasons"]  # after one token
    assert dropped[CALL_TOO_LONG] > 0 and set(dropped) <= {CALL_TOO_LONG, "malformed call"}
    assert json.loads(json.dumps(made)) == made
    with caplog.at_level("INFO", funnel_module.__name__):
        log_funnel({"qa": {**made["qa"], "kept": 1, "filter_reasons": {BELOW: 3}}})
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
    tokenizer = tiny_tokenizer()
    model = LanguageModel(tiny_model("gpt2", len(tokenizer)), tokenizer)
    model.batch_tokens = 256
    for kind in kinds:
        steps: list[str] = []
        result = Annotator(model, kind, Recording()).annotate([book, long], steps.append)
        counts = result.funnel
        assert counts["reasons"]["longer than 5,000,000 characters"] == 1 and counts["documents"] == 2
        assert {row["doc_id"] for row in result.rows} <= {"long"}
        if kind.key == "any":
            assert result.rows
            assert any(
                re.fullmatch(rf"proposing QA, window \d+ of {counts['windows']}", step) for step in steps
            )


def test_bad_input_of_a_tool_ends_the_annotation(calling_model: LanguageModel) -> None:
    class Gone(Recording):
        def run(self, inputs: list[str], documents: list[Document]) -> list[Result]:
            raise UserError("its data are gone")

    with pytest.raises(UserError, match="its data are gone"):
        Annotator(calling_model, replace(QA, force_name=True), Gone()).annotate(DOCUMENTS)


@pytest.mark.parametrize(
    ("kept", "text", "named", "words"),
    [
        ([("Mars", "Mars is red.")] * 6 + [("Venus", "Venus.")] * 9, "Venus", 2, "9 of 15 kept calls have the input 'Venus'; give"),
        ([("a", "a")] * 4, "a", 0, ""),
        ([("bread", "All about spoons.")] + [(str(n), str(n)) for n in range(9)], "bread", 1, "1 of 10 .* copied from the prompt"),
        ([("bread", "The bread is stale.")] + [(str(n), str(n)) for n in range(9)], "bread", 0, ""),
        ([("", "It is Monday.")] * 9, "", 0, ""),
    ],
)  # fmt: skip
def test_an_input_that_is_kept_over_and_over_is_named(
    caplog: pytest.LogCaptureFixture, kept: list[tuple[str, str]], text: str, named: int, words: str
) -> None:
    inputs = KeptInputs({"bread"})
    for call_input, document in kept:
        inputs.add(call_input, document)
    counts = inputs.named()
    assert sum(map(len, counts.values())) == named
    with caplog.at_level("INFO", funnel_module.__name__):
        log_funnel({"shelf": {"kept": len(kept), **counts}})
    line = caplog.messages[0].splitlines()[-1]
    assert bool(re.search(words, line)) and ("tool.shelf.rank=lift" in line) == bool(named)
