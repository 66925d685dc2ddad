"""An endpoint on this machine gives what the same model gives directly; a served chat model calls tools; faults are one line,
and nothing is asked twice.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance

from tests.benchmarks.test_loaders import SVAMP, write
from tests.completions_server import Completions, Misbehaviour
from tests.conftest import Refused
from tests.decoding.test_decoder import Shout
from tests.processes import config, words
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.endpoint import ServedModel
from toolformer.decoding.lm_eval_model import ToolformerLM
from toolformer.decoding.offers import offer
from toolformer.decoding.settings import Decoding, Endpoint
from toolformer.errors import UserError
from toolformer.evaluation import suite
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.loading import load_tokenizer
from toolformer.stages.launch import run_stage
from toolformer.tools.base import Result

KEY = "sk-a-very-secret-key-0123456789"
LONG = "The number in the next term is 18 + 12 x 3, as Joe Biden was born in Scranton 北京. " * 6


def asked(prompt: str, doc_id: int = 0, tokens: int = 8) -> Instance:
    settings = {"until": [], "max_gen_toks": tokens, "do_sample": False}
    return Instance("generate_until", {"id": str(doc_id)}, (prompt, settings), 0, ("svamp", doc_id, 1))


def rolling(text: str, doc_id: int = 0) -> Instance:
    return Instance("loglikelihood_rolling", {}, (text,), 0, ("heldout_perplexity", doc_id, 1))


def endpoint(server: Completions, answers: Path | None = None, **more: Any) -> ToolformerLM:
    settings = Endpoint(**{"url": server.url, "model": "tiny", "tries": 1, "concurrency": 1, **more})
    return ToolformerLM(ServedModel(settings), answers, progress=False)


def test_the_same_numbers_as_the_model_itself(
    server: Completions, tiny_gpt2: LanguageModel, tiny_folder: Path
) -> None:
    near = ToolformerLM(Decoder(tiny_gpt2, mode="plain"), progress=False)
    prompts = [asked(f"The number in the next {n}", n) for n in range(4)]
    texts = [rolling("red is for the blood"), rolling("Joe Biden was born in Scranton, the first. " * 40, 1)]
    expected = near.generate_until(prompts), pytest.approx(near.loglikelihood_rolling(texts), rel=1e-4)
    for concurrency in (1, 3):
        far = endpoint(server, tokenizer=str(tiny_folder), concurrency=concurrency, max_length=512)
        assert (far.generate_until(prompts), far.loglikelihood_rolling(texts)) == expected
        assert all(record.seconds is not None for record in far.records[:4])
        assert [r.tokens for r in far.records[4:]] == [r.tokens for r in near.records[4:]]


def test_an_interrupted_evaluation_asks_only_what_is_missing(
    server: Completions, tmp_path: Path, tiny_folder: Path
) -> None:
    requests = [asked(f"Prompt {n}", n) for n in range(5)] + [asked(LONG, 5)]

    def answers(**more: Any) -> tuple[list[str], int]:
        server.payloads.clear()
        lm = endpoint(server, tmp_path / "a.jsonl", concurrency=2, **more)
        with lm.answers:
            found = lm.generate_until(requests)
            if more.get("tokenizer"):
                lm.loglikelihood_rolling([rolling("red is for the blood")])
            return found, len(server.payloads)

    server.fail_after = 4
    with pytest.raises(UserError, match="HTTP 500.*are kept"):
        answers()
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 4
    server.fail_after = None
    server.script = [Misbehaviour(500)]
    found, count = answers(tries=2)  # a request is made again before it counts
    assert count == 2 and len(set(found)) > 1 and answers(max_length=512) == (found, 0)
    # A tokenizer asks no completion anew.
    own: dict[str, Any] = {"tokenizer": str(tiny_folder)}
    assert answers(**own, max_length=512) == (found, 1), "the text alone"
    assert answers(**own, max_length=512) == (found, 0)
    assert answers(**own, max_length=64)[1] == 2, "the text in other windows, and a prompt that is cut"
    assert answers(model="larger")[1] == 6 and server.payloads[-1]["model"] == "larger"


def test_an_answer_that_is_no_text_is_not_kept(server: Completions, tmp_path: Path) -> None:
    rows = [{**SVAMP, "id": str(n), "question": f"How much is {n}?"} for n in range(2)]
    write(tmp_path, "svamp/svamp", rows)

    def run(answer: Any) -> list[dict[str, Any]]:
        server.answer = answer
        server.payloads.clear()
        lm = endpoint(server, tmp_path / "a.jsonl")
        with lm.answers:
            return suite.run(lm, ["svamp"], {"data_dir": str(tmp_path)}, bootstrap_iters=5)["svamp"].samples

    def text(value: object) -> dict[str, Any]:
        return {"choices": [{"index": 0, "text": value}]}

    for wrong in (text(5), {"choices": "none"}, {"error": {"message": "no"}}, ["x"]):
        with pytest.raises(UserError, match="is no completion.*are kept"):
            run(wrong)
    for _ in range(2):
        samples = run(text(None))  # null is asked again
        assert [sample["failed"] for sample in samples] == ["endpoint gave no text"] * 2
        assert all(sample["fault"] and sample["prediction"] == "" for sample in samples)
        assert len(server.payloads) == 2
    assert not (tmp_path / "a.jsonl").exists()
    (long,) = {len(sample["prediction"]) for sample in run(text("9 " * 500_000))}
    assert long == 128 * server.payloads[0]["max_tokens"], "longer than was asked for"
    (tmp_path / "a.jsonl").unlink()
    assert [sample["prediction"] for sample in run(text("x \ud83d"))] == ["x ?"] * 2
    assert [sample["prediction"] for sample in run(text("y"))] == ["x ?"] * 2 and not server.payloads


def test_faults_are_one_line(server: Completions, tiny_folder: Path) -> None:
    with pytest.raises(UserError, match="HTTP 404; check the address"):
        endpoint(server, url=server.url + "/x", concurrency=2).generate_until([asked("x")])
    server.script = [Misbehaviour(401, KEY.encode())]
    with pytest.raises(UserError, match="HTTP 401; set the variable") as caught:
        endpoint(server).generate_until([asked("x")])
    assert KEY not in str(caught.value)
    server.answer = {"choices": [{"index": 0, "text": "x", "logprobs": None}]}
    with pytest.raises(UserError, match="holds no log-probabilities of a prompt"):
        endpoint(server, tokenizer=str(tiny_folder)).loglikelihood_rolling([rolling("red is for")])
    before = len(server.authorizations)
    with pytest.raises(UserError, match="only with the served model's tokenizer"):
        endpoint(server).loglikelihood_rolling([rolling("a")])
    assert len(server.authorizations) == before


def test_a_prompt_that_is_too_long_is_cut_on_its_left(
    server: Completions, tiny_gpt2: LanguageModel, tiny_folder: Path
) -> None:
    server.reads = 64
    lm = endpoint(server, tokenizer=str(tiny_folder), max_length=64)
    lm.generate_until([asked(LONG, 0), asked("red is", 1), asked(LONG + "x", 2)])
    lost = [record.completion.prompt_cut for record in lm.records if record.completion]
    assert lost[0] > 40 and lost[1] == 0 and lost[2] > 40
    sent = [payload["prompt"] for payload in server.payloads]
    for whole in (LONG, LONG + "x"):
        # As much of the end as fits: with a character more there would be a token too many.
        (cut,) = [prompt for prompt in sent if whole.endswith(prompt)]
        assert len(tiny_gpt2.encode(whole)) - len(tiny_gpt2.encode(cut)) in (lost[0], lost[2])
        assert len(tiny_gpt2.encode(cut)) <= 56 < len(tiny_gpt2.encode(whole[-len(cut) - 1 :]))
    with pytest.raises(UserError, match="max_length is 64: 64 new tokens leave no room for a prompt"):
        lm.generate_until([asked("x", tokens=64)])
    # Without the tokenizer the server refuses, and the line says what to set.
    with pytest.raises(
        UserError, match=r"HTTP 400.*name endpoint.tokenizer and lower endpoint.max_length.*kept"
    ):
        endpoint(server).generate_until([asked(LONG)])


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


def model(server: Completions, answers: Path | None = None, tool: Any = None, **more: Any) -> ToolformerLM:
    settings = Endpoint(**{"url": server.chat_url, "api": "chat", "model": "tiny", "tries": 1, **more})
    tools = {"qa": tool or Shout("QA"), "calendar": Shout("Calendar")}
    offers = {key: offer(key, tool) for key, tool in tools.items()}
    chat = ServedModel(settings, tools, offers, Decoding(max_result_tokens=6))
    return ToolformerLM(chat, answers, progress=False, clocks=["calendar"])


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
        (wants("QA", {"question": {"deep": 1}}), "malformed call"),
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
    encode = load_tokenizer(str(tiny_folder)).tokenize
    assert len(encode(record.completion.calls[0].result or "")) <= 6
    assert len(encode(record.completion.plain)) <= 8
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
    assert (done.facts["system"], done.facts["baseline"]) == ("endpoint", "large, chat")
    assert done.metrics["dateset/call_share/calendar"] == 1 and "heldout_perplexity/n" not in done.metrics
    assert done.metrics["tools/calendar/calls"] == 4
    without = run_stage("evaluate", config(tmp_path, *more, "decoding.k=0"))
    assert without.metrics["dateset/call_share"] == 0 and without.id != done.id
    assert run_stage("evaluate", config(tmp_path, *more)).id == done.id
    said = refused("evaluate", *words(tmp_path, *more, "endpoint.api=completions"))
    assert "endpoint.url ends with /chat/completions; add endpoint.api=chat" in said
