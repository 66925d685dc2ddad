"""An endpoint on this machine gives what the same model gives directly; faults are one line; nothing is asked twice."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance

from benchmarks import suite
from tests.benchmarks.test_loaders import SVAMP, write
from tests.completions_server import Completions, served
from toolformer.decoding.answers import AnswerFile
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.endpoint import Endpoint, EndpointLM
from toolformer.decoding.lm_eval_model import ToolformerLM
from toolformer.errors import UserError
from toolformer.evaluation_files import write_samples
from toolformer.language_model import LanguageModel

KEY = "sk-a-very-secret-key-0123456789"


@pytest.fixture
def server(tiny_gpt2: LanguageModel) -> Iterator[Completions]:
    with served(tiny_gpt2) as running:
        yield running


def asked(prompt: str, doc_id: int = 0, tokens: int = 8) -> Instance:
    settings = {"until": [], "max_gen_toks": tokens, "do_sample": False}
    return Instance("generate_until", {"id": str(doc_id)}, (prompt, settings), 0, ("svamp", doc_id, 1))


def rolling(text: str, doc_id: int = 0) -> Instance:
    return Instance("loglikelihood_rolling", {}, (text,), 0, ("heldout_perplexity", doc_id, 1))


def pair(context: str, continuation: str, doc_id: int = 0) -> Instance:
    return Instance("loglikelihood", {}, (context, continuation), 0, ("t", doc_id, 1))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_same_numbers_as_the_model_itself(
    server: Completions, tiny_gpt2: LanguageModel, tiny_folder: Path, concurrency: int
) -> None:
    endpoint = Endpoint(
        server.url, "tiny", tokenizer=str(tiny_folder), concurrency=concurrency, max_length=512, tries=1
    )
    far = EndpointLM(endpoint, progress=False)
    near = ToolformerLM(Decoder(tiny_gpt2, mode="plain"), progress=False)
    prompts = [asked(f"The number in the next {n}", n) for n in range(4)]
    assert far.generate_until(prompts) == near.generate_until(prompts)
    assert all(record.seconds is not None for record in far.records)
    texts = [rolling("red is for the blood"), rolling("Joe Biden was born in Scranton, the first. " * 40, 1)]
    assert far.loglikelihood_rolling(texts) == pytest.approx(near.loglikelihood_rolling(texts), rel=1e-4)
    assert [r.tokens for r in far.records[4:]] == [r.tokens for r in near.records[4:]]
    pairs = [pair("Joe Biden was", " born in"), pair("Today is the ", "first", 1)]
    for one, two in zip(far.loglikelihood(pairs), near.loglikelihood(pairs), strict=True):
        assert one == pytest.approx(two, rel=1e-4)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_an_interrupted_evaluation_asks_only_what_is_missing(
    server: Completions, tmp_path: Path, concurrency: int
) -> None:
    requests = [asked(f"Prompt {n}", n) for n in range(6)]
    endpoint = Endpoint(server.url, "tiny", concurrency=concurrency, tries=1)
    server.fail_after = 4
    with AnswerFile(tmp_path / "a.jsonl") as file, pytest.raises(UserError, match="HTTP 500.*are kept"):
        EndpointLM(endpoint, file, progress=False).generate_until(requests)
    kept = len((tmp_path / "a.jsonl").read_text().splitlines())
    assert kept >= 3  # with several requests under way the last answer may be lost
    server.settle()
    server.fail_after = None
    server.payloads.clear()
    with AnswerFile(tmp_path / "a.jsonl") as file:
        answers = EndpointLM(endpoint, file, progress=False).generate_until(requests)
    assert len(server.payloads) == 6 - kept and len(set(answers)) > 1
    with AnswerFile(tmp_path / "a.jsonl") as file:
        assert EndpointLM(endpoint, file, progress=False).generate_until(requests) == answers
        other = EndpointLM(Endpoint(server.url, "larger", tries=1), file, progress=False)
        other.generate_until(requests[:1])
    assert len(server.payloads) == 6 - kept + 1 and server.payloads[-1]["model"] == "larger"


def test_a_request_is_made_again_before_it_counts(server: Completions) -> None:
    server.fail_first = 1
    lm = EndpointLM(Endpoint(server.url, "tiny", tries=2), progress=False)
    assert len(lm.generate_until([asked("x")])) == 1
    assert len(server.authorizations) == 2 and len(server.payloads) == 1


def test_an_answer_of_another_form_is_one_line(server: Completions) -> None:
    lm = EndpointLM(Endpoint(server.url, "tiny", tries=1), progress=False)
    for answer in ({"choices": "none"}, {"error": {"message": "no"}}, ["x"], {"choices": [{"index": 0}]}):
        server.answer = answer
        with pytest.raises(UserError, match="no completion"):
            lm.generate_until([asked("x")])


@pytest.mark.parametrize("concurrency", [1, 2])
def test_an_answer_that_is_no_text_is_not_kept(server: Completions, tmp_path: Path, concurrency: int) -> None:
    rows = [{**SVAMP, "id": str(n), "question": f"How much is {n}?"} for n in range(2)]
    write(tmp_path, "svamp/svamp", rows)
    endpoint = Endpoint(server.url, "tiny", concurrency=concurrency, tries=1)

    def run(text: object) -> list[dict[str, Any]]:
        server.answer = {"choices": [{"index": 0, "text": text}]}
        server.payloads.clear()
        with AnswerFile(tmp_path / "a.jsonl") as file:
            lm = EndpointLM(endpoint, file, progress=False)
            found = suite.run(lm, ["svamp"], {"data_dir": str(tmp_path)}, bootstrap_iters=5)["svamp"]
        write_samples(tmp_path, "svamp", found)
        return found.samples

    for wrong in (5, ["a"], {"a": 1}):
        with pytest.raises(UserError, match="is no completion .TypeError.*are kept"):
            run(wrong)
    for again in (False, True):
        samples = run(None)
        assert [sample["failed"] for sample in samples] == ["endpoint gave no text"] * 2
        assert all(sample["fault"] and sample["prediction"] == "" for sample in samples)
        # Null is asked again; the first time a request of the runs that failed may still come in.
        assert len(server.payloads) == 2 or not again
    assert not (tmp_path / "a.jsonl").exists() or not (tmp_path / "a.jsonl").read_text()
    assert [sample["prediction"] for sample in run("x \ud83d")] == ["x ?"] * 2
    assert [sample["prediction"] for sample in run("y")] == ["x ?"] * 2 and not server.payloads


@pytest.mark.parametrize("concurrency", [1, 2])
def test_the_key_is_sent_and_never_shown(
    tiny_gpt2: LanguageModel,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    concurrency: int,
) -> None:
    requests = [asked(f"Prompt {n}", n) for n in range(3)]
    with served(tiny_gpt2, KEY) as server, caplog.at_level(logging.DEBUG):
        right = Endpoint(server.url, "tiny", KEY, concurrency=concurrency, tries=1)
        assert len(EndpointLM(right, progress=False).generate_until(requests)) == 3
        wrong = Endpoint(server.url, "tiny", KEY + "x", concurrency=concurrency, tries=1)
        with pytest.raises(UserError, match="refuses the key .HTTP 401.") as caught:
            EndpointLM(wrong, progress=False).generate_until(requests)
        gc.collect()  # requests that were under way speak up when they are thrown away
    assert "never retrieved" not in caplog.text
    seen = [str(caught.value), repr(right), repr(caught.value.__cause__), caplog.text, *capfd.readouterr()]
    assert all("a-very-secret-key" not in text for text in seen)


def test_without_a_key_none_is_sent(server: Completions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)  # lm-eval's backend would take it
    EndpointLM(Endpoint(server.url, "tiny", tries=1), progress=False).generate_until([asked("x")])
    assert server.authorizations == [None]


def test_faults_are_one_line(server: Completions, tiny_folder: Path) -> None:
    with pytest.raises(UserError, match="no such address or model .HTTP 404."):
        EndpointLM(Endpoint(server.url + "/x", "tiny", tries=1), progress=False).generate_until([asked("x")])
    server.answer = {"choices": [{"index": 0, "text": "x", "logprobs": None}]}
    scoring = EndpointLM(Endpoint(server.url, "tiny", tokenizer=str(tiny_folder), tries=1), progress=False)
    with pytest.raises(UserError, match="gives no log-probabilities of a prompt"):
        scoring.loglikelihood_rolling([rolling("red is for")])
    before = len(server.authorizations)
    with pytest.raises(UserError, match="endpoint.tokenizer: /no/such cannot be loaded"):
        EndpointLM(Endpoint(server.url, "tiny", tokenizer="/no/such"), progress=False)
    assert len(server.authorizations) == before
    with pytest.raises(UserError, match="only with the served model's tokenizer"):
        EndpointLM(Endpoint(server.url, "tiny"), progress=False).loglikelihood([pair("a", "b")])
    for concurrency in (1, 2):
        down = Endpoint(
            "http://user:word@127.0.0.1:9/v1/completions", "tiny", concurrency=concurrency, tries=1
        )
        with pytest.raises(
            UserError, match=r"http://127.0.0.1:9/v1/completions does not answer .*start the server"
        ):
            EndpointLM(down, progress=False).generate_until([asked("x")])


LONG = "The number in the next term is 18 + 12 x 3, as Joe Biden was born in Scranton 北京. " * 6


def test_a_prompt_that_is_too_long_is_cut_on_its_left(
    server: Completions, tiny_gpt2: LanguageModel, tiny_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.reads = 64
    endpoint = Endpoint(server.url, "tiny", tokenizer=str(tiny_folder), tries=1, max_length=64)
    lm = EndpointLM(endpoint, progress=False)
    lm.generate_until([asked(LONG, 0), asked("red is", 1), asked(LONG + "x", 2)])
    (told,) = [record.getMessage() for record in caplog.records if "cut" in record.getMessage()]
    assert "2 of 3 prompts are longer than endpoint.max_length=64 leaves room for" in told
    assert [record.prompt for record in lm.records] == [LONG, "red is", LONG + "x"]
    lost = [record.completion.prompt_cut for record in lm.records if record.completion]
    assert lost[0] > 40 and lost[1] == 0 and lost[2] > 40
    sent = [payload["prompt"] for payload in server.payloads]
    sent = [one if isinstance(one, str) else one[0] for one in sent]
    assert "red is" in sent
    for whole in (LONG, LONG + "x"):
        # As much of the end as fits: with a character more there would be a token too many.
        (cut,) = [one for one in sent if whole.endswith(one) and len(one) > 20]
        assert len(tiny_gpt2.encode(whole)) - len(tiny_gpt2.encode(cut)) in (lost[0], lost[2])
        assert len(tiny_gpt2.encode(cut)) <= 56 < len(tiny_gpt2.encode(whole[-len(cut) - 1 :]))
    with pytest.raises(UserError, match="max_length is 64: 64 new tokens leave no room for a prompt"):
        lm.generate_until([asked("x", tokens=64)])


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_prompt_that_the_server_refuses_is_told_with_the_mend(
    server: Completions, tmp_path: Path, tiny_folder: Path, concurrency: int
) -> None:
    server.reads = 64
    plain = Endpoint(server.url, "tiny", concurrency=concurrency, tries=1)
    with AnswerFile(tmp_path / "a.jsonl") as file:
        EndpointLM(plain, file, progress=False).generate_until([asked("red is")])
        with pytest.raises(UserError, match="HTTP 400.*longer than it reads; name endpoint.tokenizer.*kept"):
            EndpointLM(plain, file, progress=False).generate_until([asked("red is"), asked(LONG, 1)])
        too_much = Endpoint(server.url, "tiny", tokenizer=str(tiny_folder), tries=1, max_length=128)
        with pytest.raises(UserError, match="HTTP 400.*lower endpoint.max_length=128.*kept"):
            EndpointLM(too_much, file, progress=False).generate_until([asked("red is"), asked(LONG, 1)])
    assert len(server.payloads) == 1


def test_a_tokenizer_asks_no_completion_anew(server: Completions, tmp_path: Path, tiny_folder: Path) -> None:
    requests = [asked("red is"), asked(LONG, 1)]
    texts = [rolling("red is for the blood")]

    def run(**more: Any) -> int:
        """The number of requests it takes."""
        server.payloads.clear()
        with AnswerFile(tmp_path / "a.jsonl") as file:
            lm = EndpointLM(Endpoint(server.url, "tiny", tries=1, **more), file, progress=False)
            lm.generate_until(requests)
            if "tokenizer" in more:
                lm.loglikelihood_rolling(texts)
        return len(server.payloads)

    tokenizer = str(tiny_folder)
    assert run() == 2 and run(max_length=512) == 0
    assert run(tokenizer=tokenizer, max_length=512) == 1  # the text alone
    assert run(tokenizer=tokenizer, max_length=512) == 0
    assert run(tokenizer=tokenizer, max_length=64) == 2  # the text in other windows, and a prompt that is cut


def test_whole_benchmarks_over_http(server: Completions, tmp_path: Path, tiny_folder: Path) -> None:
    rows = [{**SVAMP, "id": str(n), "question": f"How much is {n}?"} for n in range(5)]
    write(tmp_path, "svamp/svamp", rows)
    (tmp_path / "held.jsonl").write_text('{"text": "The population is 658,893 people."}\n')
    metadata = {"data_dir": str(tmp_path), "heldout_path": str(tmp_path / "held.jsonl")}
    endpoint = Endpoint(server.url, "tiny", tokenizer=str(tiny_folder), concurrency=2, tries=1)
    found = suite.run(
        EndpointLM(endpoint, progress=False), ["svamp", "heldout_perplexity"], metadata, bootstrap_iters=50
    )
    assert found["svamp"].interval.n == 5 and found["heldout_perplexity"].interval.value > 1
    assert all(sample["tool"] is None and sample["tokens"] for sample in found["svamp"].samples)
