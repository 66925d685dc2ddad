"""The decoder behind lm-eval's interface, with a tiny real model: what is asked, answered and taken up again."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from benchmarks import suite
from tests.benchmarks.test_loaders import SVAMP, write
from tests.decoding.test_calls import force
from toolformer.decoding import recording
from toolformer.decoding.answers import AnswerFile
from toolformer.decoding.decoder import Completion, Decoder
from toolformer.decoding.lm_eval_model import ToolformerLM
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.language_model import LanguageModel
from toolformer.tools.base import Result


class Diary:
    """A tool that answers with the document's date and remembers the documents."""

    name = "Calendar"

    def __init__(self) -> None:
        self.documents: list[Document] = []

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        self.documents += documents
        return [Result(f"Today is {document.date}.") for document in documents]


class Scripted(Decoder):
    """A decoder that calls the calendar for every prompt, in batches, and may be interrupted."""

    fail_after: int | None = None

    def complete(self, prompts: Sequence[str], documents: Any = None, **options: Any) -> list[Completion]:
        self.asked = [*getattr(self, "asked", []), (list(prompts), list(documents), options)]
        found = [
            Completion(f" [Calendar() -> {d.date}] It is 5.", " It is 5.", tokens=4)
            if "calendar" in options["allowed"]
            else Completion(" none", " none")
            for d in documents
        ]
        for start in range(0, len(prompts), 2):
            if self.fail_after is not None and start >= self.fail_after:
                raise KeyboardInterrupt
            batch = list(range(start, min(start + 2, len(prompts))))
            options["on_batch"](batch, [found[n] for n in batch])
        return found


class _Watched(AnswerFile):
    """An answer file that remembers the keys it was given."""

    def __init__(self) -> None:
        super().__init__(None)
        self.keys: list[str] = []

    def add(self, answers: Mapping[str, Any], seconds: float | None = None, final: bool = True) -> None:
        self.keys += answers
        super().add(answers, seconds, final)


def instance(prompt: str, task: str = "dateset", doc_id: int = 0, **settings: Any) -> Instance:
    return Instance(
        request_type="generate_until",
        doc={"id": "x", "current_date": f"2021-03-{doc_id + 1:02}"},
        arguments=(prompt, {"until": [], "max_gen_toks": 8, **settings}),
        idx=0,
        metadata=(task, doc_id, 1),
    )


def rolling(text: str, doc_id: int = 0) -> Instance:
    return Instance("loglikelihood_rolling", {}, (text,), 0, ("heldout_perplexity", doc_id, 1))


@pytest.fixture
def scripted(tiny_gpt2: LanguageModel) -> Scripted:
    return Scripted(tiny_gpt2, {"calendar": Diary()})


def test_tools_get_the_examples_own_date(scripted: Scripted) -> None:
    model = ToolformerLM(scripted, progress=False)
    assert model.generate_until([instance("a", doc_id=n) for n in range(3)]) == [" It is 5."] * 3
    [(prompts, documents, options)] = scripted.asked
    assert prompts == ["a"] * 3 and [str(d.date) for d in documents] == [
        "2021-03-01",
        "2021-03-02",
        "2021-03-03",
    ]
    assert options["max_new_tokens"] == 8 and options["stop"] == () and options["allowed"] == ["calendar"]
    assert [(r.task, r.doc_id, r.completion.text if r.completion else "") for r in model.records][2] == (
        "dateset", 2, " [Calendar() -> 2021-03-03] It is 5.",
    )  # fmt: skip


def test_tools_are_switched_off_by_task(scripted: Scripted) -> None:
    model = ToolformerLM(scripted, progress=False, switched_off={"moons_quiz": ["calendar", "abacus"]})
    answers = model.generate_until(
        [instance("a", "moons_quiz"), instance("a"), instance("b", max_gen_toks=3)]
    )
    assert answers == [" none", " It is 5.", " It is 5."]
    assert [options["allowed"] for _, _, options in scripted.asked] == [[], ["calendar"], ["calendar"]]


def test_answers_that_are_stored_keep_their_keys(scripted: Scripted) -> None:
    """What is switched off decides an answer, and so is in its key, as it has always been."""
    asked = {
        "lama_trex": "0507bc6c",
        "nq": "0d4a6777",
        "dateset": "5c505025",
    }
    for task, begins in asked.items():
        model = ToolformerLM(scripted, identity={"tools": {}}, progress=False)
        model.answers = _Watched()
        model.generate_until([instance("a", task)])
        assert model.answers.keys[0][:8] == begins, task


def test_an_interrupted_run_goes_on_where_it_was(scripted: Scripted, tmp_path: Path) -> None:
    path = tmp_path / "answers" / "dateset.jsonl"
    requests = [instance(f"prompt {n}", doc_id=n) for n in range(7)]
    scripted.fail_after = 4
    with AnswerFile(path) as file, pytest.raises(KeyboardInterrupt):
        ToolformerLM(scripted, file, progress=False).generate_until(requests)
    # The last line half written, as a killed process leaves it.
    path.write_bytes(path.read_bytes()[:-25])
    scripted.fail_after, scripted.asked = None, []
    with AnswerFile(path) as file:
        model = ToolformerLM(scripted, file, progress=False)
        answers = model.generate_until(requests)
    assert scripted.asked[0][0] == [f"prompt {n}" for n in range(3, 7)]
    assert all(record.seconds is not None for record in model.records)
    scripted.asked = []
    with AnswerFile(path) as file:
        again = ToolformerLM(scripted, file, progress=False)
        assert again.generate_until(requests) == answers and again.records == model.records
    assert scripted.asked == []
    assert len(path.read_text().splitlines()) == 7


def test_a_cut_prompt_leaves_a_trace(tiny_gpt2: LanguageModel, tmp_path: Path) -> None:
    long = "The number in the next term is 18 + 12 x 3. " * 60
    tokens = len(tiny_gpt2.encode(long))

    def run() -> list[dict[str, Any]]:
        rows = [{**SVAMP, "id": "0", "body": "x", "question": "How?"}, {**SVAMP, "id": "1", "body": long}]
        write(tmp_path, "svamp/svamp", rows)
        with AnswerFile(tmp_path / "a.jsonl") as file:
            lm = ToolformerLM(Decoder(tiny_gpt2, mode="plain"), file, progress=False)
            return suite.run(lm, ["svamp"], {"data_dir": str(tmp_path)}, bootstrap_iters=5)["svamp"].samples

    first, second = run()
    assert first["prompt_cut"] == 0
    # A call of the default length and the 32 tokens of a math answer have room in 512 tokens.
    end = len(tiny_gpt2.encode_behind("]"))
    whole = len(tiny_gpt2.encode(second["prompt"]))
    assert tokens < whole and second["prompt_cut"] == whole - (512 - 32 - (1 + end + 40 + 64))
    assert [sample["prompt_cut"] for sample in run()] == [0, second["prompt_cut"]]  # kept with the answer
    stored = (tmp_path / "a.jsonl").read_text()
    assert stored.count("prompt_cut") == 2
    old = re.sub(r', "prompt_cut": \d+', "", stored)
    (tmp_path / "a.jsonl").write_text(old)
    assert [sample["prompt_cut"] for sample in run()] == [0, 0]
    assert (tmp_path / "a.jsonl").read_text() == old  # nothing was asked anew


def test_a_tools_fault_is_asked_again_and_its_refusal_is_not(
    tiny_gpt2: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(monkeypatch, tiny_gpt2, "Joe", ' [QA("Where?") ->')

    class Answering:
        name = "QA"
        asked = 0

        def __init__(self, result: Result) -> None:
            self.result = result

        def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
            self.asked += len(inputs)
            return [self.result for _ in inputs]

    def asked(result: Result) -> tuple[int, Completion]:
        tool = Answering(result)
        with AnswerFile(tmp_path / "answers.jsonl") as file:
            model = ToolformerLM(Decoder(tiny_gpt2, {"qa": tool}, k=1), file, progress=False)
            model.generate_until([instance("Joe")])
        (record,) = model.records
        assert record.completion is not None and record.seconds is not None
        return tool.asked, record.completion

    count, without = asked(Result(reason="server is away", fault=True))
    assert count == 1 and without.fault and without.failed == "server is away"
    assert asked(Result(reason="server is away", fault=True))[0] == 1
    count, refused = asked(Result(reason="no answer"))
    assert count == 1 and not refused.fault and refused.failed == "no answer"
    assert asked(Result("x")) == (0, refused)


def test_long_texts_are_written_down_as_they_are_read(
    tiny_gpt2: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "answers.jsonl"
    monkeypatch.setattr(recording, "CHARACTERS_AT_ONCE", 40)
    texts = ["On day 3 we met", "On day 4", "On day 5 we met and met again", "On day 6 we met and met again"]
    lots: list[list[str]] = []
    read = tiny_gpt2.rolling_log_likelihoods

    def interrupted(lot: list[str]) -> list[tuple[float, int]]:
        lots.append(lot)
        if len(lots) == 3:
            raise KeyboardInterrupt
        return read(lot)

    scripted = Scripted(tiny_gpt2, {})
    requests = [rolling(text, n) for n, text in enumerate(texts)]
    with monkeypatch.context() as patch, AnswerFile(path) as file:
        model = ToolformerLM(scripted, file, progress=False)
        patch.setattr(model.language_model, "rolling_log_likelihoods", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.loglikelihood_rolling(requests)
    assert lots == [texts[:2], texts[2:3], texts[3:]]
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("change", ["k", "identity", "date", "prompt", "settings", "task"])
def test_an_answer_is_only_used_for_what_it_answered(
    tiny_gpt2: LanguageModel, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "answers.jsonl"
    first = Scripted(tiny_gpt2, {"calendar": Diary()})
    with AnswerFile(path) as file:
        ToolformerLM(first, file, progress=False).generate_until([instance("a")])
    second = Scripted(tiny_gpt2, {"calendar": Diary()}, k=3 if change == "k" else 10)
    asked = {
        "date": instance("a", doc_id=1),
        "prompt": instance("b"),
        "settings": instance("a", until=["\n"]),
        "task": instance("a", "lama_trex"),
    }.get(change, instance("a"))
    identity = {"checkpoint": "other"} if change == "identity" else None
    ToolformerLM(second, path, identity, progress=False).generate_until([asked])
    assert len(second.asked) == 1


def test_answer_files_survive_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswerFile(path) as file:
        file.add({"a": [1.5, True], "b": {"x": "ü\ud800\u2028"}}, seconds=3.0)
    path.write_bytes(b"\x00oops\n" + path.read_bytes() + b'{"key": "c", "ans')
    with AnswerFile(path) as found:
        assert found["a"] == [1.5, True] and found["b"] == {"x": "ü\ud800\u2028"} and "c" not in found
        assert "1 lines cannot be read" in caplog.text
        found.add({"c": float("-inf")})
    with AnswerFile(path) as found:
        assert found["c"] == float("-inf") and "a" in found
        assert (found.seconds("a"), found.seconds("c"), found.seconds("d")) == (1.5, None, None)
    with pytest.raises(ValueError, match="closed"):
        found.add({"d": 1})
    assert "d" not in AnswerFile(None)


def test_one_process_at_a_time_writes_answers(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    code = f"from toolformer.decoding.answers import AnswerFile as A; a = A({str(path)!r}); print('open', flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None and other.stdout.readline() == b"open\n"
        with pytest.raises(UserError, match="another evaluation .* wait until it ends"):
            AnswerFile(path)
    finally:
        other.kill()  # no chance to let go of the lock
        other.wait()
    with AnswerFile(path) as mine:
        mine.add({"a": 1})
    with AnswerFile(path) as again:
        assert again["a"] == 1


def test_sampling_is_refused(scripted: Scripted) -> None:
    for settings in ({"do_sample": True}, {"temperature": 0.7}, {"num_beams": 4}):
        with pytest.raises(UserError, match="decoding is greedy"):
            ToolformerLM(scripted, progress=False).generate_until([instance("a", **settings)])
    ToolformerLM(scripted, progress=False).generate_until([instance("a", do_sample=False, temperature=0.0)])


def test_texts_are_scored_by_the_language_model(tiny_gpt2: LanguageModel, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    texts = ["The population is 658,893 people.", "", "Joe Biden was born in Scranton. " * 60] * 4
    requests = [rolling(text, n) for n, text in enumerate(texts)]
    expected = tiny_gpt2.rolling_log_likelihoods(texts)
    for _ in range(2):
        with AnswerFile(path) as file:
            model = ToolformerLM(Decoder(tiny_gpt2), file, progress=False)
            assert model.loglikelihood_rolling(requests) == pytest.approx(
                [total for total, _ in expected], rel=1e-5
            )
        assert [record.tokens for record in model.records] == [tokens for _, tokens in expected]
    assert len(path.read_text().splitlines()) == 3
    pairs = [Instance("loglikelihood", {}, ("Joe Biden was", " born in"), 0, ("t", 0, 1))]
    [(total, greedy)] = ToolformerLM(Decoder(tiny_gpt2), path, progress=False).loglikelihood(pairs)
    assert (total, greedy) == pytest.approx(tiny_gpt2.log_likelihoods([("Joe Biden was", " born in")])[0])


def test_a_whole_evaluation_with_a_tiny_model(tiny_gpt2: LanguageModel, tmp_path: Path) -> None:
    write(
        tmp_path, "svamp/svamp", [{**SVAMP, "id": str(n), "question": f"How much is {n}?"} for n in range(5)]
    )
    (tmp_path / "held.jsonl").write_text(
        '{"text": "The population is 658,893 people."}\n{"text": "red is for"}\n'
    )
    metadata = {
        "data_dir": str(tmp_path),
        "heldout_path": str(tmp_path / "held.jsonl"),
        "subset": 8,
        "seed": 1,
    }

    def evaluate() -> Any:
        diary = Diary()
        decoder = Decoder(tiny_gpt2, {"calendar": diary}, k=400, max_call_tokens=12, batch_size=4)
        with AnswerFile(tmp_path / "answers.jsonl") as file:
            model = ToolformerLM(decoder, file, progress=False)
            found = suite.run(model, ["dateset", "svamp", "heldout_perplexity"], metadata, bootstrap_iters=50)
        return found, diary

    found, _ = evaluate()
    assert [len(result.samples) for result in found.values()] == [8, 5, 2]
    # With k = 400 the model always starts a call; the calendar is the only tool there is.
    called = [sample for sample in found["dateset"].samples if sample["tool"]]
    assert all(sample["call_result"] == f"Today is {sample['current_date']}." for sample in called)
    assert all(sample["tool"] or sample["failed"] for sample in found["dateset"].samples)
    assert all("[Calendar" not in sample["prediction"] for sample in called)
    held = found["heldout_perplexity"]
    assert held.interval == held.others["token_perplexity"] and held.interval.value > 1
    again, unused = evaluate()
    assert again == found and unused.documents == []


def test_likelihoods_are_those_of_lm_evals_own_model(tiny_gpt2: LanguageModel) -> None:
    reference = HFLM(pretrained=tiny_gpt2.model, tokenizer=tiny_gpt2.tokenizer, batch_size=1)
    model = ToolformerLM(Decoder(tiny_gpt2), progress=False)
    # The last text is longer than the model's context of 512 tokens.
    texts = ["red", "The population is 658,893 people.", "Joe Biden was born in Scranton, the first. " * 110]
    assert len(tiny_gpt2.encode(texts[-1])) > 2 * tiny_gpt2.context_length
    ours = model.loglikelihood_rolling([rolling(text, n) for n, text in enumerate(texts)])
    theirs = reference.loglikelihood_rolling(
        [rolling(text, n) for n, text in enumerate(texts)], disable_tqdm=True
    )
    assert ours == pytest.approx(theirs, rel=1e-4)
    pairs = [("Joe Biden was", " born in"), ("", "red is for"), ("Today is the first ", "Monday")]
    asked = [Instance("loglikelihood", {}, pair, 0, ("t", n, 1)) for n, pair in enumerate(pairs)]
    for found, expected in zip(
        model.loglikelihood(asked), reference.loglikelihood(asked, disable_tqdm=True), strict=True
    ):
        assert found == pytest.approx(expected, rel=1e-4)
