"""The Python API: the gain of a call, and what is refused since it would be read as something else."""

from pathlib import Path

import pytest

from toolformer import Toolformer
from toolformer.calls import ApiCall
from toolformer.decoding.decoder import Decoder
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel


def test_a_bare_text_is_no_list_of_texts(tiny_folder: Path) -> None:
    words = ["tools=[calculator]", "lm.dtype=float32", "lm.device=cpu"]
    toolformer = Toolformer.from_pretrained(tiny_folder, words)
    with pytest.raises(UserError, match=r"prompts is the string 'abc'; give a list: \['abc'\]"):
        toolformer.complete("abc")
    with pytest.raises(UserError, match="stop is the string"):
        toolformer.complete(["abc"], stop="ab")
    with pytest.raises(UserError, match="overrides is the string"):
        Toolformer.from_pretrained(tiny_folder, "decoding.k=1")
    assert len(toolformer.complete(["abc"], max_new_tokens=1, stop=["ab"])) == 1


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
        ((["The"], 0, ["QA(x)"], ["y"]), "position: expected a list of 1 items, one per text"),
        ((["The"], [0], ["QA(x)"], "y"), "result: expected a list of 1 items"),
        ((["The"], [0], ["QA(x)"] * 2, ["y"]), "call: expected a list of 1 items"),
    ],
)  # fmt: skip
def test_what_has_no_gain_is_refused(
    tiny_gpt2: LanguageModel, arguments: tuple[object, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Toolformer(Decoder(tiny_gpt2)).gain(*arguments)  # type: ignore[call-overload]
