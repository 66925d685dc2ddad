"""The rules around a call: when it is run, taken back, cut, and what a prompt leaves room for."""

import pytest

from tests.build import DOCUMENTS, PROMPTS, Recorder, force, steer, tiny_model, tiny_tokenizer, tools
from tests.decoding.build import decoder_of
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.row import Row
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (' [QA("odd") ->', "odd"),
        (' [QA("Where?")] x', "call without arrow"),
        (' [QA("Where?" -> x] y', "malformed call"),
        (' [QA("' + "Where " * 30, "call longer than its limit"),
        (' [QA("Where?" <|endoftext|>', "call not ended"),
    ],
)
def test_a_call_that_fails_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, tiny_gpt2: LanguageModel, wanted: str, reason: str
) -> None:
    prompt = "Joe Biden was born in"
    force(monkeypatch, tiny_gpt2, prompt, " the" + wanted)
    decoder = Decoder(tiny_gpt2, tools(), k=1)
    (completion,) = decoder.complete([prompt], DOCUMENTS[:1], max_new_tokens=30)
    assert completion.failed == reason and completion.call is None
    assert completion.text == completion.plain and completion.text.startswith(" the")
    assert " [" not in completion.text


def test_a_tool_that_is_switched_off_is_never_named(
    monkeypatch: pytest.MonkeyPatch, tiny_gpt2: LanguageModel
) -> None:
    available = tools()
    decoder = Decoder(tiny_gpt2, available, k=400)
    decoder.complete(PROMPTS * 2, max_new_tokens=9, allowed={"calendar"})
    assert not available["qa"].batches and not available["calculator"].batches
    available["calendar"].batches.clear()
    decoder.complete(PROMPTS * 2, max_new_tokens=9, allowed=())
    assert not any(tool.batches for tool in available.values())
    force(monkeypatch, tiny_gpt2, "Joe", ' [QA("Where?") ->')
    Decoder(tiny_gpt2, available, k=1).complete(["Joe"] * 4, max_new_tokens=4)
    assert available["qa"].batches == [["Where?"] * 4]


def test_a_long_result_is_cut_and_never_inside_a_character(
    monkeypatch: pytest.MonkeyPatch, tiny_gpt2: LanguageModel
) -> None:
    force(monkeypatch, tiny_gpt2, "Joe", ' [QA("Where?") ->')
    for most in range(4, 12):
        tool = Recorder(lambda _: Result("東京都" * 5), "QA")
        decoder = decoder_of(tiny_gpt2, {"qa": tool}, k=1, max_result_tokens=most)
        completion = decoder.complete(["Joe"], max_new_tokens=2)[0]
        call = completion.call
        assert completion.results_cut == 1
        assert call is not None and call.result is not None
        assert "\ufffd" not in call.result and ("東京都" * 5).startswith(call.result)
        assert len(tiny_gpt2.encode_continuation(f" {call.result}")) <= most


def test_a_cut_prompt_leaves_room_for_the_longest_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, tokenizer = 3, tiny_tokenizer()
    model = LanguageModel(tiny_model("gpt2", len(tokenizer), context=128), tokenizer)
    call = model.encode(' [QA("Where?") ->')

    def following(_: Decoder, row: Row) -> int | None:
        written = row.ids[row.start :]
        is_calling = row.may_call and written == call[: len(written)]
        return call[len(written)] if is_calling else None

    steer(monkeypatch, following)
    limits = {
        "max_calls": calls,
        "max_call_tokens": len(call) - 1 - len(model.encode("a ->")[1:]),
        "max_result_tokens": 5,
    }
    tool = Recorder(lambda _: Result("red is for the blood of martyrs and more and more"), "QA")
    decoder = decoder_of(model, {"qa": tool}, k=1, min_new_tokens=4, **limits)
    completion = decoder.complete(["red " * 300], max_new_tokens=4)[0]
    assert len(completion.calls) == calls
    assert all(len(model.encode_continuation(f" {one.result}")) == 5 for one in completion.calls)


def test_a_prompt_that_does_not_fit_is_cut_or_refused(language_model: LanguageModel) -> None:
    assert Decoder(language_model, {}, k=0, min_new_tokens=4).complete([""], max_new_tokens=4)[0].text
    with pytest.raises(UserError, match="do not fit into the model's context of 512 tokens"):
        Decoder(language_model, {}).complete(["x"], max_new_tokens=500)
    decoder = Decoder(language_model, {}, mode="plain", max_calls=0)
    long = "red " * 600 + PROMPTS[0]
    room = language_model.context_length - 4
    assert len(language_model.encode(long)) > room
    (cut,) = decoder.complete([long], max_new_tokens=4)
    assert cut.prompt_cut > 0
    tail = language_model.decode((language_model.bos_ids + language_model.encode(long))[-room:])
    assert cut.text == decoder.complete([tail], max_new_tokens=4)[0].text
    with pytest.raises(UserError, match=f"leaves room for {room}"):
        decoder.complete([long], max_new_tokens=4, strict=True)
