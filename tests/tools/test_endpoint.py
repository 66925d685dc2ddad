"""A served model as a tool's reader or translator: against a real server that fails, hangs, limits and talks nonsense."""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.completions_server import CHAT, Completions, Misbehaviour, served
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.language_model import LanguageModel
from toolformer.tools import endpoint, runtime
from toolformer.tools.base import Result
from toolformer.tools.endpoint import EndpointGenerator
from toolformer.tools.question_answering import QuestionAnswering
from toolformer.tools.runtime import Limits, ToolRuntime
from toolformer.tools.search import BM25
from toolformer.tools.translation import FewShotTranslator, Translation

KEY = "sk-a-very-secret-key-0123456789"
PROMPTS = [f"The number in the next {n}" for n in range(6)]
ELSEWHERE = Document("d", "An unrelated text.")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(endpoint, "_growing", lambda state: 0.001)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def server(tiny_gpt2: LanguageModel) -> Iterator[Completions]:
    with served(tiny_gpt2) as running:
        yield running


def generator(server: Completions, **more: Any) -> EndpointGenerator:
    return EndpointGenerator(server.url, "tiny", **more)


def fault(reason: str) -> Result:
    return Result(reason=reason, fault=True)


NOT_ASKED = Result(reason="endpoint is down (not asked)", fault=True, final=True)


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_same_texts_as_the_model_itself(
    server: Completions, tiny_gpt2: LanguageModel, chat: bool, concurrency: int
) -> None:
    url = server.url.replace("/v1/completions", CHAT) if chat else server.url
    asked = [*PROMPTS, PROMPTS[0], "\ud800 lone"]
    near = tiny_gpt2.generate([text.encode("utf-8", "replace").decode() for text in asked], 8, ("e",))
    assert EndpointGenerator(url, "tiny", concurrency=concurrency)(asked, 8, ("e",)) == near
    assert len(set(near)) > 1
    assert len(server.payloads) == 7, "an equal prompt is asked once"
    assert server.most_at_once <= concurrency
    assert server.payloads[0]["max_tokens"] == 8 and server.payloads[0]["temperature"] == 0


def test_a_stop_text_counts_even_where_the_server_does_not_know_it(server: Completions) -> None:
    server.answer = {"choices": [{"text": "Paris\nQuestion: What"}]}
    assert generator(server)(["x"], 8, ("\n",)) == ["Paris"]
    assert generator(server)(["x"], 8) == ["Paris\nQuestion: What"]


def test_requests_are_under_way_side_by_side(server: Completions) -> None:
    server.meet = threading.Barrier(3, timeout=60)
    assert all(isinstance(text, str) for text in generator(server, concurrency=3, tries=1)(PROMPTS, 2))
    assert server.most_at_once == 3


@pytest.mark.parametrize(
    "bad",
    [
        Misbehaviour(500), Misbehaviour(503, b"<html>"), Misbehaviour(429), Misbehaviour(408), Misbehaviour(hang=True),
        Misbehaviour(body=b""), Misbehaviour(body=b'{"choices": [{"text": '), Misbehaviour(body=b"[" * 100_000),
        Misbehaviour(body=b"\xff\xfe"), Misbehaviour(body=b'{"choices": []}'), Misbehaviour(body=b'{"choices": {"text": 1}}'),
        Misbehaviour(body=b'{"choices": [{"text": 5}]}'), Misbehaviour(body=b"null"), Misbehaviour(body=b"1" * 10_000),
        Misbehaviour(body=b"{}", headers={"Content-Length": "999"}), Misbehaviour(headers={"Content-Encoding": "gzip"}),
        Misbehaviour(headers={"X": "y" * 100_000}), Misbehaviour(drip=True, body=b" " * 10_000),
    ],
    ids=lambda bad: f"{bad.status} {'hang' if bad.hang else 'drip' if bad.drip else bad.body[:12]!r}",
)  # fmt: skip
def test_what_may_pass_is_tried_again(server: Completions, bad: Misbehaviour) -> None:
    server.script = [bad, bad]
    (text,) = generator(server, tries=3, timeout=1.0 if bad.hang or bad.drip else 60)(["Joe Biden was"], 4)
    assert isinstance(text, str) and text and len(server.authorizations) == 3


@pytest.mark.parametrize(
    ("bad", "reason", "asked"),
    [
        (Misbehaviour(500), "endpoint fails (HTTP 500)", 2),
        (Misbehaviour(429), "endpoint limits its rate (HTTP 429)", 2),
        (Misbehaviour(400), "endpoint refuses the request (HTTP 400)", 1),
        (Misbehaviour(404), "endpoint has no such address or model (HTTP 404)", 1),
        (Misbehaviour(401), "endpoint refuses the key (HTTP 401)", 1),
        (Misbehaviour(307, headers={"Location": "http://127.0.0.1:9/"}), "endpoint refuses the request (HTTP 307)", 1),
        (Misbehaviour(body=b"no"), "endpoint's answer is no completion", 2),
        (Misbehaviour(body=b" " * (endpoint.MOST_BYTES + 1)), "endpoint's answer is too long", 1),
        (Misbehaviour(hang=True), "endpoint does not answer within 3 s", 2),
        (Misbehaviour(drip=True, body=b" " * 10_000), "endpoint does not answer within 3 s", 2),
    ],
)  # fmt: skip
def test_one_that_fails_for_good_is_a_fault_beside_the_others(
    server: Completions, bad: Misbehaviour, reason: str, asked: int
) -> None:
    server.script = [bad] * asked
    slow = bad.hang or bad.drip
    texts = generator(server, tries=2, concurrency=1, timeout=3.0 if slow else 60)(PROMPTS[:2], 4)
    assert texts[0] == fault(reason)
    assert isinstance(texts[1], str) and texts[1]
    assert len(server.authorizations) == asked + 1


def test_the_server_says_how_long_to_wait(server: Completions) -> None:
    """Seconds or a date, up to a bound; nonsense is passed over."""
    now = datetime.datetime.now(datetime.UTC)
    assert endpoint._seconds("7") == 7
    assert (
        50
        < endpoint._seconds(email.utils.format_datetime(now + datetime.timedelta(seconds=60), usegmt=True))
        <= 60
    )
    for text in (None, "", "-3", "soon", "²", "Mon, 99 Foo 2020", "Wed, 21 Oct 2015 07:28:00 GMT"):
        assert endpoint._seconds(text) == 0
    refused = endpoint._refused(429, "9" * 400)
    assert refused.seconds == 999_999_999


def test_it_waits_as_long_as_the_server_says_and_no_longer_than_a_bound(
    server: Completions, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    server.script = [
        Misbehaviour(429, headers={"Retry-After": "3"}),
        Misbehaviour(503, headers={"Retry-After": "86400"}),
        Misbehaviour(500),
    ]
    monkeypatch.setattr(asyncio, "sleep", sleep)
    (text,) = generator(server, tries=4)(["x"], 2)
    assert isinstance(text, str) and slept == [3.0, endpoint.LONGEST_WAIT, 0.001]


def test_a_server_that_is_down_is_not_asked_for_ever(
    server: Completions, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = [Misbehaviour(500)] * 100
    ask = generator(server, tries=2, concurrency=1)
    assert ask([str(n) for n in range(20)], 2) == [fault("endpoint fails (HTTP 500)")] * 3 + [NOT_ASKED] * 17
    assert ask(["0"], 2) == [NOT_ASKED], "nor by later batches"
    assert len(server.authorizations) == 6
    monkeypatch.setattr(endpoint, "time", Later())
    assert ask(["0", "1"], 2) == [fault("endpoint fails (HTTP 500)"), NOT_ASKED]
    assert len(server.authorizations) == 8
    monkeypatch.setattr(endpoint, "time", Later(2))
    server.script = []
    assert all(isinstance(text, str) for text in ask(["0", "1"], 2)), "after a while it is"


class Later:
    """A clock some pauses ahead."""

    def __init__(self, pauses: int = 1) -> None:
        self.seconds = pauses * endpoint.DOWN_SECONDS

    def monotonic(self) -> float:
        return time.monotonic() + self.seconds


def test_neither_tries_nor_workers_ask_a_server_that_is_down(
    server: Completions, retriever: BM25, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "FIRST_WAIT", 0.001)
    server.script = [Misbehaviour(500)] * 1000
    asked = QuestionAnswering(retriever, generator(server, tries=5, concurrency=1))
    tool = ToolRuntime(asked, Limits(tries=3, workers=4))
    results = tool.run([f"What shows north, {n}?" for n in range(60)], [ELSEWHERE] * 60)
    assert all(result.fault for result in results)
    assert len(server.authorizations) == 5 * endpoint.MOST_IN_VAIN


def test_the_limit_of_requests_under_way_holds_for_all_threads(server: Completions) -> None:
    ask = generator(server, concurrency=2)
    askers = [threading.Thread(target=ask, args=([f"{n} {one}" for one in PROMPTS], 2)) for n in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(server.payloads) == 24 and server.most_at_once <= 2


def test_a_prompt_that_is_refused_says_nothing_of_the_server(server: Completions) -> None:
    server.script = [Misbehaviour(400)] * 5
    texts = generator(server, concurrency=1)(PROMPTS, 2)
    assert texts[:5] == [fault("endpoint refuses the request (HTTP 400)")] * 5 and isinstance(texts[5], str)


def test_no_server_at_all() -> None:
    (answer,) = EndpointGenerator("http://127.0.0.1:9/v1/completions", "tiny", tries=2)(["x"], 2)
    assert answer == fault("endpoint does not answer (ClientConnectorError)")


def test_in_a_running_event_loop(server: Completions) -> None:
    async def notebook() -> object:
        return generator(server)(["Joe Biden was"], 2)

    assert asyncio.run(notebook()) == generator(server)(["Joe Biden was"], 2)


def test_fields_are_added_and_taken_out(server: Completions) -> None:
    generator(server, request={"seed": 3, "temperature": 0, "stop": None})(["x"], 2, ("\n",))
    assert server.payloads[0] == {
        "prompt": "x",
        "model": "tiny",
        "max_tokens": 2,
        "temperature": 0,
        "seed": 3,
    }


# ------------------------------------------------------------------------------ key


def test_the_key_is_sent_and_never_shown(
    tiny_gpt2: LanguageModel,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with served(tiny_gpt2, KEY) as server, caplog.at_level(logging.DEBUG):
        ask = generator(server, key_variable="MY_KEY")
        none = ask(["x"], 2)
        monkeypatch.setenv("MY_KEY", KEY + "x")
        wrong = ask(["x"], 2)
        monkeypatch.setenv("MY_KEY", KEY)
        assert isinstance(ask(["x"], 2)[0], str)
        server.script = [Misbehaviour(500, KEY.encode()), Misbehaviour(body=KEY.encode())]
        failed = generator(server, key_variable="MY_KEY", tries=1, concurrency=1)(["x", "y"], 2)
    assert server.authorizations == [None, f"Bearer {KEY}x", *[f"Bearer {KEY}"] * 3]
    assert none == wrong == [fault("endpoint refuses the key (HTTP 401)")]
    assert all(isinstance(one, Result) for one in failed)
    seen = [repr(failed), repr(vars(ask)), caplog.text, *capfd.readouterr()]
    assert all("a-very-secret-key" not in text for text in seen)


def test_a_key_that_cannot_be_sent_is_named_by_its_variable(
    server: Completions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", f"{KEY}\r\nX-Other: 1")
    with pytest.raises(UserError, match=r"\$MY_KEY holds blanks") as caught:
        generator(server, key_variable="MY_KEY")(["x"], 2)
    assert "a-very-secret-key" not in str(caught.value) and not server.authorizations


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


# ---------------------------------------------------------------------------- tools


def test_a_dead_endpoint_gives_results_with_a_reason(server: Completions, retriever: BM25) -> None:
    """Question answering and translation: the calls that it fails have a fault, those beside them their results."""
    server.answer = {"choices": [{"text": " wax\nQuestion:"}]}
    ask = generator(server, tries=1, concurrency=1)
    questions = ["What shows north?", "What tells the hour?", "?"]
    server.script = [Misbehaviour(500)]
    results = QuestionAnswering(retriever, ask).run(questions, [ELSEWHERE] * 3)
    assert sorted(map(repr, results)) == sorted(
        map(repr, [fault("endpoint fails (HTTP 500)"), Result("wax"), Result(reason="empty question")])
    )
    server.script = [Misbehaviour(body=b"no")]
    german = Translation(FewShotTranslator(ask), identifier=German())  # type: ignore[arg-type]
    assert german.run(["eins", "zwei"], [ELSEWHERE] * 2) == [
        fault("endpoint's answer is no completion"), Result("wax"),
    ]  # fmt: skip


class German:
    def identify(self, text: str) -> tuple[str, float]:
        return "de", 1.0


def test_an_empty_answer_is_no_result(server: Completions, retriever: BM25) -> None:
    for text in ("", " \n Paris", "unknown", "N/A."):
        server.answer = {"choices": [{"text": text}]}
        (result,) = QuestionAnswering(retriever, generator(server)).run(["What shows north?"], [ELSEWHERE])
        assert result == Result(reason="no answer")
