"""The public gain of a call is the one that an annotation stores."""

from dataclasses import replace

import pytest

from tests.annotation.build import DOCUMENTS, QA
from tests.build import QA_PIECES, Recorder, taught_model
from toolformer import Toolformer
from toolformer.annotation.candidates import SCORED
from toolformer.annotation.pipeline import Annotator
from toolformer.annotation.score import gain
from toolformer.calls import ApiCall
from toolformer.decoding.decoder import Decoder
from toolformer.tools.base import Result
from toolformer.tools.limits import Calling


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "mistral"])
def test_a_gain_is_what_an_annotation_stores(architecture: str) -> None:
    model = taught_model(architecture, *QA_PIECES)
    tool = Recorder(lambda text: Result("A long result [of it] -> 東京都 " * 3), "QA")
    settings = replace(QA, force_name=True, samples=8, max_call_tokens=30, max_result_tokens=12)
    rows = Annotator(model, settings, tool).annotate(DOCUMENTS).rows
    rows = [row for row in rows if row["status"] == SCORED]
    texts = {document.doc_id: document.text for document in DOCUMENTS}
    toolformer = Toolformer(Decoder(model, {"qa": tool}, {"qa": Calling(max_result_tokens=12)}))
    stored = [gain(row) for row in rows]
    calls = [replace(ApiCall.of_row(row["call"]), result=None) for row in rows]
    answer = tool.answer("").text or ""
    found = toolformer.gain([texts[row["doc_id"]] for row in rows], [row["position"] for row in rows], calls, [answer] * len(rows))  # fmt: skip
    assert len(found) > 5 and found == pytest.approx(stored, abs=1e-5)
    one = toolformer.gain(texts[rows[0]["doc_id"]], rows[0]["position"], calls[0], answer)
    assert one == pytest.approx(stored[0], abs=1e-5)
