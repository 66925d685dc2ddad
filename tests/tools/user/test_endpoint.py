"""A served model as a tool's reader or translator: against a real server that fails, hangs, limits and talks nonsense."""

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.build import OTHER_DOCUMENT, German
from tests.servers.completions import CHAT, Completions, Misbehaviour, served
from toolformer.errors import UserError
from toolformer.lm.endpoint import MOST_BYTES
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result
from toolformer.tools.question_answering import QuestionAnswering
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.translation import FewShotTranslator, Translation
from toolformer.tools.user.endpoint import EndpointGenerator

KEY = "sk-a-very-secret-key-0123456789"
SOON = {"retry-after-ms": "1"}
PROMPTS = [f"The number in the next {n}" for n in range(6)]
NONSENSE = {
    b"": "JSONDecodeError",
    b"[" * 100_000: "RecursionError",
    b'{"choices": []}': "IndexError",
    b'{"choices": [{"text": 5}]}': "TypeError",
    b" " * MOST_BYTES + b'{"choices": [{"text": "x"}]}': "JSONDecodeError",
}


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def generator(server: Completions, **more: Any) -> EndpointGenerator:
    return EndpointGenerator(server.url, "tiny", **more)


def completion(choice: dict[str, Any]) -> Misbehaviour:
    return Misbehaviour(200, json.dumps({"choices": [choice]}).encode())


def fault(reason: str) -> Result:
    return Result(reason=reason, fault=True)


@pytest.mark.parametrize(("chat", "concurrency"), [(False, 1), (True, 3)])
def test_the_same_texts_as_the_model_itself(
    server: Completions, tiny_gpt2: LanguageModel, chat: bool, concurrency: int
) -> None:
    url = server.url.replace("/v1/completions", CHAT) if chat else server.url
    asked = [*PROMPTS, PROMPTS[0], "\ud800 lone"]
    near = tiny_gpt2.generate([text.encode("utf-8", "replace").decode() for text in asked], 8, ("e",))
    assert EndpointGenerator(url, "tiny", concurrency=concurrency)(asked, 8, ("e",)) == near
    assert len(set(near)) > 1 and len(server.payloads) == 7, "an equal prompt is asked once"
    assert server.most_at_once <= concurrency
    server.answer = {"choices": [{"text": "Paris\nQuestion: What"}]}
    if not chat:
        assert generator(server)(["x"], 8, ("\n",)) == ["Paris"], "where the server knows no stop texts"
    generator(server, request={"seed": 3, "stop": None})(["x"], 2, ("\n",))
    fields = {"prompt": "x", "model": "tiny", "max_tokens": 2, "temperature": 0, "seed": 3}
    assert server.payloads[-1] == fields


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<think>\nMarie or Pierre?\n</think>\n\nMarie Curie", "Marie Curie"),
        ("Marie or Pierre?</think>Marie Curie", "Marie Curie"),
        ("[THINK]Marie?[/THINK]Marie Curie", "Marie Curie"),
        ("<reasoning>" + "Who? " * 400 + "</reasoning>Marie Curie\nor Pierre", "Marie Curie"),
        ("\nMarie Curie", "Marie Curie"),
        (
            "<|begin_of_thought|>Marie?<|end_of_thought|>\n<|begin_of_solution|>Marie Curie<|end_of_solution|>",
            "Marie Curie",
        ),
        ("<thoughts>Who?</thoughts>Marie Curie", "Marie Curie"),
        ("<reason>Who?</reason><answer>Marie Curie</answer>", "Marie Curie"),
        ("Well.\n<scratchpad>Who?</scratchpad>Marie Curie", "Marie Curie"),
        (
            "<|START_THINKING|>Who?<|END_THINKING|><|START_RESPONSE|>Marie Curie<|END_RESPONSE|>",
            "Marie Curie",
        ),
        ("analysisWho? Marie.assistantfinalMarie Curie", "Marie Curie"),
        ("<unused94>thought\nWho?<unused95>Marie Curie", "Marie Curie"),
        ("analysis of the assistantfinal", "analysis of the assistantfinal"),
        ("The tag <think> opens a thought", "The tag <think> opens a thought"),
        ("Between <think> and </think> it thinks", "Between <think> and </think> it thinks"),
        ("The <answer> of 2 < 3", "The <answer> of 2 < 3"),
        ([{"type": "text", "text": "Marie "}, {"type": "text", "text": "Curie"}], "Marie Curie"),
        (None, ""),
    ],
)
def test_the_answer_follows_the_thought(server: Completions, content: Any, text: str) -> None:
    server.script = [completion({"message": {"content": content}, "finish_reason": "stop"})]
    url = server.url.replace("/v1/completions", CHAT)
    assert EndpointGenerator(url, "tiny")(["Who?"], 12, ("\n",)) == [text]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"content": "<think>The user asks"}, "is still thinking at the limit of tokens"),
        ({"content": "", "reasoning_content": "The user asks"}, "is still thinking at the limit of tokens"),
        ({"content": None, "reasoning": "The user asks"}, "is still thinking at the limit of tokens"),
        ({"content": "<|begin_of_thought|>Marie"}, "is still thinking at the limit of tokens"),
        ({"content": "<think>Marie?</think>\n<thinking>Or"}, "is still thinking at the limit of tokens"),
        ({"content": "analysisThe user asks"}, "is still thinking at the limit of tokens"),
        ({"content": "<think>Marie?</think>"}, "is still thinking at the limit of tokens"),
        ({"content": ""}, "writes nothing up to the limit of tokens"),
    ],
)
def test_a_thought_without_an_answer_is_a_fault(
    server: Completions, message: dict[str, Any], reason: str
) -> None:
    server.script = [completion({"message": message, "finish_reason": "length"})]
    url = server.url.replace("/v1/completions", CHAT)
    assert EndpointGenerator(url, "tiny", tries=1)(["Who?"], 12, ("\n",)) == [fault(f"endpoint {reason}")]


def test_a_call_of_a_function_is_no_answer(server: Completions) -> None:
    message = {
        "content": None,
        "tool_calls": [{"type": "function", "function": {"name": "look_up", "arguments": "{}"}}],
    }
    server.script = [completion({"message": message, "finish_reason": "tool_calls"})]
    url = server.url.replace("/v1/completions", CHAT)
    failed = fault("endpoint calls a function in place of an answer")
    assert EndpointGenerator(url, "tiny", tries=1)(["Who?"], 12, ("\n",)) == [failed]


@pytest.mark.parametrize(
    "choice",
    [
        {"message": {"content": None}, "finish_reason": "content_filter"},
        {"message": {"content": "Marie"}, "finish_reason": "content_filter"},
        {"message": {"content": None, "refusal": "I cannot help."}, "finish_reason": "stop"},
        {"message": {"content": [{"type": "refusal", "refusal": "I cannot."}]}, "finish_reason": "stop"},
    ],
)
def test_a_refusal_is_no_answer(server: Completions, choice: dict[str, Any]) -> None:
    server.script = [completion(choice)]
    url = server.url.replace("/v1/completions", CHAT)
    assert EndpointGenerator(url, "tiny", tries=1)(["Who?"], 12) == [fault("endpoint refuses to answer")]


def test_a_filtered_completion_is_no_answer(server: Completions) -> None:
    server.script = [completion({"text": "", "finish_reason": "content_filter"})]
    assert generator(server, tries=1)(["Who?"], 12) == [fault("endpoint refuses to answer")]


def test_a_thought_of_a_plain_completion_is_no_answer(server: Completions) -> None:
    server.answer = {"choices": [{"text": "<think>"}]}
    assert generator(server, tries=1)(["Who?"], 12) == [
        fault("endpoint is still thinking at the limit of tokens")
    ]


@pytest.mark.parametrize("status", [200, 400])
def test_a_servers_error_is_logged_without_the_key(
    server: Completions, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    said = f"Unsupported parameter: max_tokens ({KEY}, http://a.example/?key=abc)"
    server.script = [Misbehaviour(status, json.dumps({"error": {"message": said}}).encode())]
    (answer,) = generator(server, tries=1)(["Who?"], 12)
    assert isinstance(answer, Result) and answer.fault and "max_tokens" not in str(answer.reason)
    assert "Unsupported parameter: max_tokens (***, http://a.example/?key=***" in caplog.text


def test_requests_are_under_way_side_by_side(server: Completions) -> None:
    server.meet = threading.Barrier(3, timeout=60)
    generator(server, concurrency=3, tries=1)(PROMPTS, 2)
    assert server.most_at_once == 3


@pytest.mark.parametrize(
    ("bad", "reason", "asked"),
    [
        (Misbehaviour(500, headers=SOON), "endpoint answers HTTP 500", 2),
        (Misbehaviour(400), "endpoint answers HTTP 400", 1),
        (Misbehaviour(307, headers={"Location": "http://127.0.0.1:9/"}), "endpoint answers HTTP 307", 1),
        (Misbehaviour(hang=True), "endpoint does not answer (ReadTimeout)", 1),
        (Misbehaviour(drip=True, body=b" " * 10_000), "endpoint does not answer (ReadTimeout)", 1),
        (Misbehaviour(drip_header=True), "endpoint does not answer (RemoteProtocolError)", 1),
        *((Misbehaviour(body=body), f"endpoint gives an answer that is not a completion ({kind})", 1) for body, kind in NONSENSE.items()),
    ],
    ids=lambda part: str(part.body[:12]) if isinstance(part, Misbehaviour) else None,
)  # fmt: skip
def test_one_that_fails_for_good_is_a_fault_beside_the_others(
    server: Completions, bad: Misbehaviour, reason: str, asked: int
) -> None:
    server.script = [bad] * asked
    limits = {"timeout": 1.5, "tries": 1} if bad.hang or bad.drip or bad.drip_header else {"tries": 2}
    texts = generator(server, concurrency=1, **limits)(PROMPTS[:2], 4)
    assert texts[0] == fault(reason)
    assert isinstance(texts[1], str) and texts[1]
    assert len(server.authorizations) == asked + 1


def test_what_may_pass_is_tried_again(server: Completions) -> None:
    cut_off = Misbehaviour(body=b"{}", headers={"Content-Length": "999"})
    server.script = [cut_off, Misbehaviour(503, b"<html>", SOON), Misbehaviour(429, headers=SOON)]
    (text,) = generator(server, tries=4)(["Joe Biden was"], 4)
    assert isinstance(text, str) and text and len(server.authorizations) == 4
    (answer,) = EndpointGenerator("http://127.0.0.1:9/v1/completions", "tiny", tries=2)(["x"], 2)
    assert answer == fault("endpoint does not answer (ConnectError)")


def test_the_key_is_sent_and_never_shown(
    tiny_gpt2: LanguageModel,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login me password {KEY}")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with served(tiny_gpt2, KEY) as server, caplog.at_level(logging.DEBUG):
        ask = generator(server, key_variable="MY_KEY")
        none = ask(["x"], 2)
        monkeypatch.setenv("MY_KEY", KEY + "x")
        wrong = ask(["x"], 2)
        monkeypatch.setenv("MY_KEY", KEY)
        assert isinstance(ask(["x"], 2)[0], str)
        server.script = [Misbehaviour(500, KEY.encode()), Misbehaviour(body=KEY.encode())]
        failed = generator(server, key_variable="MY_KEY", tries=1, concurrency=1)(["x", "y"], 2)
        monkeypatch.setenv("MY_KEY", f"{KEY}\r\nX-Other: 1")
        with pytest.raises(UserError, match=r"\$MY_KEY holds blanks") as caught:
            ask(["x"], 2)
    assert server.authorizations == [None, f"Bearer {KEY}x", *[f"Bearer {KEY}"] * 3]
    assert none == wrong == [fault("endpoint answers HTTP 401")]
    assert all(isinstance(one, Result) for one in failed)
    seen = [repr(failed), repr(vars(ask)), str(caught.value), caplog.text, *capfd.readouterr()]
    assert all("a-very-secret-key" not in text for text in seen)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": None}, "url and model are missing"), ({"model": ""}, "url and model are missing"),
        ({"url": "127.0.0.1:8000"}, "url must begin"), ({"url": "http://me:word@127.0.0.1/v1/completions"}, "no password"),
        ({"key_variable": "sk-abc"}, "not the key itself"), ({"concurrency": 0}, "concurrency is 0"),
        ({"timeout": float("nan")}, "timeout is nan"), ({"tries": 1.5}, "tries is 1.5"),
    ],
)  # fmt: skip
def test_impossible_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        EndpointGenerator(**{"url": "http://127.0.0.1:9/v1/completions", "model": "m", **arguments})
    assert "word" not in str(caught.value).replace("password", "")


def test_a_fault_stays_with_its_call(server: Completions, retriever: BM25) -> None:
    """Of question answering and translation."""
    server.answer = {"choices": [{"text": " wax\nQuestion:"}]}
    ask = generator(server, tries=1, concurrency=1)
    failed = fault("endpoint answers HTTP 500")
    for tool, inputs in (
        (QuestionAnswering(retriever, ask), ["What shows north?", "What tells the hour?"]),
        (Translation(FewShotTranslator(ask), German()), ["eins", "zwei"]),  # type: ignore[arg-type]
    ):
        server.script = [Misbehaviour(500)]
        assert {*tool.run(inputs, [OTHER_DOCUMENT] * 2)} == {failed, Result("wax")}
