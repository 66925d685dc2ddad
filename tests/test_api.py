"""The Python API: the gain of a call, and what is refused since it would be read as something else."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.annotation.build import DOCUMENTS, QA
from tests.build import QA_PIECES, Recorder, taught_model
from toolformer import Toolformer
from toolformer.annotation.candidates import SCORED
from toolformer.annotation.pipeline import Annotator
from toolformer.annotation.score import gain
from toolformer.calls import ApiCall
from toolformer.decoding.decoder import Decoder
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result
from toolformer.tools.limits import Calling


def test_a_bare_text_is_no_list_of_texts(tiny_folder: Path) -> None:
    words = ["tools=[calculator]", "lm.dtype=float32", "lm.device=cpu"]
    toolformer = Toolformer.from_pretrained(tiny_folder, words)
    with pytest.raises(UserError, match=r"prompts is the text 'abc'; give a list .* \['abc'\]"):
        toolformer.complete("abc")
    with pytest.raises(UserError, match="stop is the text"):
        toolformer.complete(["abc"], stop="ab")
    with pytest.raises(UserError, match="overrides is the text"):
        Toolformer.from_pretrained(tiny_folder, "decoding.k=1")
    assert len(toolformer.complete(["abc"], max_new_tokens=1, stop=["ab"])) == 1


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "mistral"])
def test_a_gain_is_what_an_annotation_stores(architecture: str) -> None:
    model = taught_model(architecture, *QA_PIECES)
    tool = Recorder(lambda text: Result("A long result [of it] -> 東京都 " * 3), "QA")
    settings = replace(QA, force_name=True, samples=8, max_call_tokens=30, max_result_tokens=12)
    rows = Annotator(model, [settings], {"qa": tool}).annotate(DOCUMENTS).rows
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


def test_a_call_is_given_as_text(tiny_gpt2: LanguageModel) -> None:
    toolformer, text = Toolformer(Decoder(tiny_gpt2)), "The population is 658,893 people."
    written = [
        toolformer.gain(text, 3, call, "5") for call in ("QA(x)", "[QA(x)]", ApiCall("QA", "x"), " [QA( x )]")
    ]
    assert written == [written[0]] * 4
    assert toolformer.gain([], [], [], []) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("The population", 7, "QA(x)", "y"), "position: no token of the text begins at character 7, .* positions are"),
        (("The population", 99, "QA(x)", "y"), "position: no token of the text begins at character 99"),
        (("", 0, "QA(x)", "y"), "position: .* none: the text is empty"),
        (("The population", 3, "QA x", "y"), r"call: 'QA x' is not a call \(.*\); write Tool\(input\)"),
        ((["The"], 0, ["QA(x)"], ["y"]), "position: with a list of 1 texts, give a list of as many"),
        ((["The"], [0], ["QA(x)"], "y"), "result: with a list of 1 texts"),
        ((["The"], [0], ["QA(x)"] * 2, ["y"]), "call: with a list of 1 texts"),
    ],
)  # fmt: skip
def test_what_has_no_gain_is_refused(
    tiny_gpt2: LanguageModel, arguments: tuple[object, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Toolformer(Decoder(tiny_gpt2)).gain(*arguments)  # type: ignore[call-overload]
