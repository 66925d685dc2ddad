"""A served chat model that calls tools: what is sent, executed and sent again; faults, limits and the evaluation stage."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.completions_server import Completions
from tests.conftest import Refused
from tests.decoding.test_decoder import Shout
from tests.decoding.test_endpoint import LONG, asked
from tests.evaluations import config, words
from toolformer.decoding.endpoint_chat import ChatEndpointLM
from toolformer.decoding.offers import offer
from toolformer.decoding.settings import Decoding, Endpoint
from toolformer.errors import UserError
from toolformer.stages.launch import run_stage
from toolformer.tools.base import Result
from toolformer.tracking import Tracker


def wants(name: Any, arguments: Any) -> dict[str, Any]:
    call = {"id": "x", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def says(text: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def asks_once(payload: dict[str, Any]) -> dict[str, Any]:
    """Calls, and repeats the result."""
    last = payload["messages"][-1]
    return (
        says(f"It is {last['content']}") if last["role"] == "tool" else wants("QA", '{"question": "Whom?!"}')
    )


def model(server: Completions, answers: Path | None = None, tool: Any = None, **more: Any) -> ChatEndpointLM:
    settings = Endpoint(**{"url": server.chat_url, "api": "chat", "model": "tiny", "tries": 1, **more})
    tools = {"qa": tool or Shout("QA"), "calendar": Shout("Calendar")}
    return ChatEndpointLM(
        answers, False, endpoint=settings, tools=tools, decoding=Decoding(max_result_tokens=6),
        offers={key: offer(key, tool) for key, tool in tools.items()}, clocks=["calendar"],
    )  # fmt: skip


def test_a_call_is_executed_and_its_result_sent(server: Completions) -> None:
    server.converse = asks_once
    lm = model(server)
    lm.switched_off = {"svamp": ["calendar"]}
    (text,) = lm.generate_until([asked("Who was it?")])
    assert text.startswith("It is WHOM?! None")
    (completion,) = [record.completion for record in lm.records]
    assert completion and completion.calls[0].input == "Whom?!" and completion.plain == text
    first, second = server.payloads
    assert first["messages"] == [{"role": "user", "content": "Who was it?"}]
    assert [tool["function"]["name"] for tool in first["tools"]] == ["QA"] and first["max_tokens"] == 80
    call = second["messages"][1]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"question": "Whom?!"}
    assert second["messages"][2]["tool_call_id"] == call["id"] and second["max_tokens"] == 8


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (wants("QA", '{"question": "odd"}'), "odd"),
        (wants("QA", '{"question": '), "malformed call"),
        (wants("QA", {"question": {"deep": 1}}), "malformed call"),
        (wants("rm", "{}"), "tool not allowed"),
        (wants(5, None), "tool not allowed"),
    ],
)
def test_a_call_that_fails_is_asked_again_without_tools(
    server: Completions, message: dict[str, Any], reason: str
) -> None:
    server.converse = lambda payload: message if "tools" in payload else says("It is 5.")
    lm = model(server)
    assert lm.generate_until([asked("x")]) == ["It is 5."]
    assert lm.records[0].completion and lm.records[0].completion.failed == reason
    assert [len(payload["messages"]) for payload in server.payloads] == [1, 1]


def test_answers_are_kept_and_faults_are_not(server: Completions, tmp_path: Path) -> None:
    class Away(Shout):
        def run(self, inputs: Any, documents: Any) -> list[Result]:
            return [Result(reason="server is away", fault=True)] * len(inputs)

    server.converse = lambda payload: asks_once(payload) if "tools" in payload else says("x")

    def run(tool: Any = None) -> tuple[str, int]:
        server.payloads.clear()
        lm = model(server, tmp_path / "a.jsonl", tool)
        with lm.answers:
            (text,) = lm.generate_until([asked("Who?")])
        return text, len(server.payloads)

    assert run(Away("QA")) == run(Away("QA")) == ("x", 2)
    text, count = run()
    assert text.startswith("It is WHOM") and count == 2 and run() == (text, 0)


def test_what_is_no_message_is_one_line(server: Completions) -> None:
    for message in ({"content": 5}, {"tool_calls": [{}]}, {"tool_calls": 5}, [], None):
        server.converse = lambda _, message=message: message
        with pytest.raises(UserError, match="is no chat completion.*are kept"):
            model(server).generate_until([asked("x")])
    server.converse = lambda _: says(None)
    lm = model(server)
    assert lm.generate_until([asked("x")]) == [""]
    assert lm.records[0].completion and lm.records[0].completion.failed == "endpoint gave no text"


def test_with_the_tokenizer_prompts_answers_and_results_are_cut(
    server: Completions, tiny_folder: Path
) -> None:
    server.converse = asks_once
    lm = model(server, tokenizer=str(tiny_folder), max_length=1024, concurrency=1)
    lm.generate_until([asked(LONG * 9)])
    (record,) = lm.records
    assert record.completion and record.completion.prompt_cut > 0 and record.tokens
    assert len(lm._tokens(record.completion.calls[0].result or "")) <= 6
    assert len(lm._tokens(record.completion.plain)) <= 8
    (prompt,) = {payload["messages"][0]["content"] for payload in server.payloads}
    assert LONG.endswith(prompt[-40:]) and len(prompt) < len(LONG * 9)


def test_an_evaluation_of_a_served_chat_model(server: Completions, tmp_path: Path, refused: Refused) -> None:
    def today(payload: dict[str, Any]) -> dict[str, Any]:
        last = payload["messages"][-1]
        has_called = last["role"] == "tool" or "tools" not in payload
        return says(last["content"]) if has_called else wants("Calendar", "{}")

    server.converse = today
    more = [
        "system=endpoint", "endpoint.api=chat", f"endpoint.url={server.chat_url}", "endpoint.model=large",
        "endpoint.tries=1", "tools=[calendar,calculator]", "evaluation.limit=4",
        "benchmarks=[dateset,heldout_perplexity]",
    ]  # fmt: skip
    done = run_stage("evaluate", config(tmp_path, *more))
    run = Tracker(None, tmp_path).get(done.run_id)
    assert (run.tags["system"], run.tags["baseline"]) == ("endpoint", "large, chat")
    assert done.metrics["dateset/call_share/calendar"] == 1 and "heldout_perplexity/n" not in done.metrics
    assert run.metrics["tools/calendar/calls"] == 4
    without = run_stage("evaluate", config(tmp_path, *more, "decoding.k=0"))
    assert without.metrics["dateset/call_share"] == 0 and without.run_id != done.run_id
    assert run_stage("evaluate", config(tmp_path, *more)).run_id == done.run_id
    said = refused("evaluate", *words(tmp_path, *more, "endpoint.api=completions"))
    assert "endpoint.url ends with /chat/completions; add endpoint.api=chat" in said
