"""The decoder behind lm-eval's interface, with a tiny real model: what is asked, answered and taken up again."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance

from tests.build import SVAMP, Patch, Recorder, force, write
from toolformer.calls import ApiCall, linearise
from toolformer.decoding import recording
from toolformer.decoding.completion import Request
from toolformer.decoding.decoder import Completion, Decoder
from toolformer.decoding.lm_eval_model import CHARACTERS_AT_ONCE, ToolformerLM
from toolformer.decoding.prompted import PromptedDecoder
from toolformer.decoding.recording import AnswerFile
from toolformer.errors import UserError
from toolformer.evaluation import suite
from toolformer.evaluation.metrics import task_metrics
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result
from toolformer.tools.calendar import Calendar


class Scripted(Decoder):
    """A decoder that calls the calendar for every prompt, in batches, and may be interrupted."""

    fail_after: int | None = None

    def answers(
        self, requests: Sequence[Request], on_finished: Any = None, strict: bool = False
    ) -> list[Completion]:
        if requests:
            self.asked = [*getattr(self, "asked", []), list(requests)]
        found = []
        for request in requests:
            calls = "calendar" in (request.tools or ())
            answer = " It is 5." if calls else " none"
            call = f" [Calendar() -> {request.document.date}]" if calls else ""
            found.append(Completion(f"{call}{answer}", answer))
        for start in range(0, len(requests), 2):
            if self.fail_after is not None and start >= self.fail_after:
                raise KeyboardInterrupt
            on_finished(dict(list(enumerate(found))[start : start + 2]))
        return found


def instance(prompt: str, task: str = "dateset", doc_id: int = 0, **settings: Any) -> Instance:
    document = {"id": "x", "current_date": f"2021-03-{doc_id + 1:02}"}
    arguments = (prompt, {"until": [], "max_gen_toks": 8, **settings})
    return Instance("generate_until", document, arguments, 0, (task, doc_id, 1))


def test_tools_get_the_date_of_the_example(tiny_gpt2: LanguageModel) -> None:
    scripted = Scripted(tiny_gpt2, {"calendar": Calendar()})
    model = ToolformerLM(scripted, progress=False)
    model.switched_off = {"moons_quiz": ["calendar", "abacus"]}
    requests = [*(instance("a", doc_id=n) for n in range(3)), instance("b", "moons_quiz")]
    assert model.generate_until(requests) == [" It is 5."] * 3 + [" none"]
    [requests] = scripted.asked
    assert [(request.prompt, request.limit, request.stop) for request in requests] == [("a", 8, ())] * 3 + [
        ("b", 8, ())
    ]
    assert [request.document.date.day for request in requests] == [1, 2, 3, 1]
    assert [request.tools for request in requests] == [{"calendar"}] * 3 + [set()]
    record = model.records[2]
    assert (record.task, record.doc_id) == ("dateset", 2)
    assert record.completion.text == " [Calendar() -> 2021-03-03] It is 5."


def test_an_interrupted_run_goes_on_where_it_was(tiny_gpt2: LanguageModel, tmp_path: Path) -> None:
    scripted = Scripted(tiny_gpt2, {"calendar": Calendar()})
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
    assert [request.prompt for request in scripted.asked[0]] == [f"prompt {n}" for n in range(3, 7)]
    assert all(record.seconds is not None for record in model.records)
    scripted.asked = []
    with AnswerFile(path) as file:
        again = ToolformerLM(scripted, file, progress=False)
        assert again.generate_until(requests) == answers and again.records == model.records
    assert scripted.asked == []
    assert len(path.read_text().splitlines()) == 7


class Counting(LanguageModel):
    """Keeps what it scored and read; may be interrupted at its third batch of long texts."""

    scored: list[tuple[str, str]]
    batches: list[list[str]]

    @classmethod
    def of(cls, model: LanguageModel) -> "Counting":
        made = cls(model.model, model.tokenizer, model.name)
        made.scored, made.batches = [], []
        return made

    def log_likelihoods(self, pairs: Any) -> list[tuple[float, bool]]:
        self.scored.extend(pairs)
        return super().log_likelihoods(pairs)

    def rolling_log_likelihoods(self, texts: Any, *more: Any) -> list[tuple[float, int]]:
        self.batches.append(texts)
        if len(self.batches) == 3:
            raise KeyboardInterrupt
        return super().rolling_log_likelihoods(texts, *more)


def test_the_gold_answer_is_scored_behind_the_result_of_the_call(
    tiny_gpt2: LanguageModel, tmp_path: Path
) -> None:
    call = ApiCall("Calendar", "").with_result("Today is Monday.")
    text = " So{} it [Calendar() -> x] 5."
    written = {
        "a": Completion(text.format(linearise(call)), text.format(""), (call,)),
        "b": Completion(" none", " none", failed="no result"),
    }

    class Answers(Decoder):
        def answers(
            self, requests: Sequence[Request], on_finished: Any = None, strict: bool = False
        ) -> list[Completion]:
            found = [written[request.prompt] for request in requests]
            on_finished(dict(enumerate(found)))
            return found

    requests = [instance("a"), instance("b", doc_id=1), instance("b", "svamp", 2)]
    expected = tiny_gpt2.log_likelihoods([(f"a So{linearise(call)}", " Monday"), ("b", " Monday")])
    counting = Counting.of(tiny_gpt2)
    for _ in range(2):
        with AnswerFile(tmp_path / "answers.jsonl") as file:
            model = ToolformerLM(Answers(counting, {}), file, progress=False)
            model.gold = {"dateset": lambda document: "Monday"}
            model.generate_until(requests)
        nats = [record.gold_nats for record in model.records]
        assert nats == [pytest.approx(-expected[0][0]), pytest.approx(-expected[1][0]), None]
        assert len(counting.scored) == 2, "of the task that asks for it, and recorded"


def test_nats_of_the_gold_answer_are_a_column_and_a_figure(tiny_gpt2: LanguageModel, tmp_path: Path) -> None:
    write(tmp_path, "svamp/svamp", [{**SVAMP, "id": str(n), "question": f"Is it {n}?"} for n in range(4)])
    lm = ToolformerLM(Decoder(tiny_gpt2, mode="plain"), progress=False)
    found = suite.evaluate_tasks(lm, ["svamp"], {"data_dir": str(tmp_path)}, gold_nats=True)["svamp"]
    assert {sample["target"][0][-2:] for sample in found.samples} == {".0"}, "as it is published"
    pairs = [(sample["prompt"], f" {sample['target'][0][:-2]}") for sample in found.samples]
    expected = [-value for value, _ in tiny_gpt2.log_likelihoods(pairs)]
    assert [sample["gold_nats"] for sample in found.samples] == pytest.approx(expected)
    figure = task_metrics(found)
    assert figure["gold_nats"] == pytest.approx(sum(expected) / 4)
    assert figure["gold_nats/ci_low"] < figure["gold_nats"] < figure["gold_nats/ci_high"]


def test_a_cut_prompt_leaves_a_trace(tiny_gpt2: LanguageModel, tmp_path: Path) -> None:
    long = "The number in the next term is 18 + 12 x 3. " * 60
    write(tmp_path, "svamp/svamp", [{**SVAMP, "id": "0", "body": "x"}, {**SVAMP, "id": "1", "body": long}])

    def run() -> list[dict[str, Any]]:
        with AnswerFile(tmp_path / "a.jsonl") as file:
            lm = ToolformerLM(Decoder(tiny_gpt2, mode="plain"), file, progress=False)
            return suite.evaluate_tasks(lm, ["svamp"], {"data_dir": str(tmp_path)})["svamp"].samples

    # A call of the default length and the 32 tokens of a math answer have room in 512 tokens.
    whole, end = len(tiny_gpt2.encode(run()[1]["prompt"])), len(tiny_gpt2.encode_continuation("]"))
    arrow = len(tiny_gpt2.encode_continuation(" ->"))
    for _ in range(2):  # kept with the answer
        assert [sample["prompt_cut"] for sample in run()] == [
            0,
            whole - (512 - 32 - (1 + end + arrow + 40 + 64)),
        ]


def test_a_tools_fault_is_asked_again_and_its_refusal_is_not(
    tiny_gpt2: LanguageModel, tmp_path: Path, monkeypatch: Patch
) -> None:
    force(monkeypatch, tiny_gpt2, "Joe", ' [QA("Where?") ->')

    away, refused = Result(reason="server is away", fault=True), Result(reason="no answer")
    for result, calls, answered in (
        (away, 1, away),
        (away, 1, away),
        (refused, 1, refused),
        (Result("x"), 0, refused),
    ):
        tool = Recorder(lambda _, result=result: result, "QA")
        with AnswerFile(tmp_path / "answers.jsonl") as file:
            model = ToolformerLM(Decoder(tiny_gpt2, {"qa": tool}, k=1), file, progress=False)
            model.generate_until([instance("Joe")])
        (record,) = model.records
        assert len(tool.batches) == calls and record.seconds is not None
        assert (record.completion.failed, record.completion.fault) == (answered.reason, answered.fault)


def test_long_texts_are_written_down_as_they_are_read(tiny_gpt2: LanguageModel, tmp_path: Path) -> None:
    texts = [
        f"On day {n} we met. {' ' * (CHARACTERS_AT_ONCE * long // 10)}" for n, long in enumerate([3, 3, 6, 6])
    ]
    counting, kind = Counting.of(tiny_gpt2), "loglikelihood_rolling"
    requests = [Instance(kind, {}, (text,), 0, (kind, n, 1)) for n, text in enumerate(texts)]
    with AnswerFile(tmp_path / "answers.jsonl") as file, pytest.raises(KeyboardInterrupt):
        ToolformerLM(Decoder(counting), file, progress=False).loglikelihood_rolling(requests)
    assert counting.batches == [texts[:2], texts[2:3], texts[3:]]
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 3


def test_perplexity_disables_calls_of_a_trained_model(tiny_gpt2: LanguageModel, tmp_path: Path) -> None:
    """M reads a text as it is, prompted too; Toolformer without the start token. One file may hold both."""
    texts = ["On day 3 we met", "red is for the blood [of day 3] " * 200]
    requests = [Instance("loglikelihood_rolling", {}, (text,), n) for n, text in enumerate(texts)]
    untaught = [Decoder(tiny_gpt2, mode="plain"), PromptedDecoder(tiny_gpt2)]
    with AnswerFile(tmp_path / "answers.jsonl") as file:
        for decoder, calls in (*((decoder, True) for decoder in untaught), (Decoder(tiny_gpt2), False)):
            model = ToolformerLM(decoder, file, progress=False)
            values = model.loglikelihood_rolling(requests)
            read = list(zip(values, [record.tokens for record in model.records], strict=True))
            assert read == tiny_gpt2.rolling_log_likelihoods(texts, calls)


def test_an_answer_is_only_used_for_what_it_answered(tiny_gpt2: LanguageModel, tmp_path: Path) -> None:
    def asks(request: Instance, identity: Any = None, off: Any = None, **options: Any) -> bool:
        decoder = Scripted(tiny_gpt2, {"calendar": Calendar()}, **options)
        with AnswerFile(tmp_path / "answers.jsonl") as file:
            model = ToolformerLM(decoder, file, identity, progress=False)
            model.switched_off = off or {}
            model.generate_until([request])
        return hasattr(decoder, "asked")

    same = instance("a")
    assert asks(same) and not asks(same)
    assert asks(same, k=3) and asks(same, constrain_tool_name=False) and asks(same, {"checkpoint": "other"})
    assert asks(same, off={"dateset": ["calendar"]}) and asks(instance("a", doc_id=1)), "the tools, the date"
    assert asks(instance("b")) and asks(instance("a", until=["\n"])) and not asks(same)


def test_answer_files_survive_damage(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    answers = {"a": [1.5, True], "b": {"x": "ü\ud800\u2028"}, "e": "Scranton", "f": float("-inf")}
    with AnswerFile(path) as file:
        file.add(answers, seconds=4.0)
        file.add({"g": 1}, final=False)
        assert file["g"] == 1
    content = path.read_bytes()
    # A letter that changed, a number that changed, a line of an older version, a line that is no JSON, half a line.
    changed = content.replace(b"Scranton", b"Scrantom").replace(b"1.5,", b"1.6,")
    path.write_bytes(b'\x00oops\n{"key": "d", "answer": 1}\n[]\n' + changed + b'{"key": "c", "ans')
    with AnswerFile(path) as found:
        assert found["b"] == answers["b"] and found["f"] == float("-inf") and found.seconds("b") == 1.0
        assert not any(key in found for key in "acdeg")
        found.add({"a": [1.5, True]})
    with AnswerFile(path) as found:
        assert found["a"] == [1.5, True] and found["b"] == answers["b"]
        assert (found.seconds("a"), found.seconds("z")) == (None, None)
    with pytest.raises(ValueError, match="closed"):
        found.add({"d": 1})
    assert "d" not in AnswerFile(None)


def test_a_folder_in_place_of_an_answer_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl" / "x").mkdir(parents=True)
    with pytest.raises(UserError, match="cannot write answers.jsonl .*move the folder away"):
        AnswerFile(tmp_path / "answers.jsonl")


def test_answers_outlive_their_process_and_are_synced_by_time(tmp_path: Path, monkeypatch: Patch) -> None:
    """Each is in the file at once; the wait for the disk is shared by those of a second, and by what closes the file."""
    synced: list[int] = []
    monkeypatch.setattr(
        os, "fsync", lambda _: synced.append(len((tmp_path / "a.jsonl").read_bytes().splitlines()))
    )
    with AnswerFile(tmp_path / "a.jsonl") as file:
        for n in range(50):
            file.add({f"{n}": n})
            assert len((tmp_path / "a.jsonl").read_bytes().splitlines()) == n + 1
        monkeypatch.setattr(recording, "SYNC_SECONDS", 0)
        file.add({"50": 50})
    assert synced[0] == 1 and synced[-2:] == [51, 51] and len(synced) < 10


def test_processes_write_to_files_of_their_own_and_read_all(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswerFile(path) as first, AnswerFile(path) as second:
        first.add({"a": 1})
        second.add({"b": 2})
        assert "b" not in first
        first.refresh()
        assert first["b"] == 2 and first["a"] == 1
    assert sorted(file.name for file in tmp_path.glob("*.jsonl")) == ["answers-1.jsonl", "answers.jsonl"]
    half = tmp_path / "answers-1.jsonl"
    half.write_bytes(half.read_bytes() + b'{"key": "c"')
    with AnswerFile(path) as third:
        assert third["a"] == 1 and third["b"] == 2 and third.path == path, (
            "a file that nobody has open is used again"
        )
        with AnswerFile(path) as fourth:
            fourth.add({"d": 4})
        third.refresh()
        assert third["d"] == 4, "the half line of a process that was killed is cut off"


def test_a_killed_process_leaves_its_file_to_others(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    code = f"from filelock import FileLock; lock = FileLock({f'{path}.lock'!r}); lock.acquire(); print('open', flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None and other.stdout.readline() == b"open\n"
        with AnswerFile(path) as mine:
            assert mine.path == tmp_path / "answers-1.jsonl"
    finally:
        other.kill()  # no chance to let go of the lock
        other.wait()
    with AnswerFile(path) as again:
        assert again.path == path


def test_sampling_is_refused(tiny_gpt2: LanguageModel) -> None:
    for settings in ({"do_sample": True}, {"num_beams": 4}):
        with pytest.raises(UserError, match="decoding is greedy"):
            ToolformerLM(Decoder(tiny_gpt2), progress=False).generate_until([instance("a", **settings)])
