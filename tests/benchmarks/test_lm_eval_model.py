"""The decoder behind lm-eval's interface, with a tiny real model: what is asked, answered and taken up again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance

from benchmarks import suite
from benchmarks.figures import figures
from tests.benchmarks.test_loaders import SVAMP, write
from tests.decoding.test_calls import force, talker
from toolformer.calls import ApiCall, linearise
from toolformer.data import Document
from toolformer.decoding import recording
from toolformer.decoding.decoder import Completion, Decoder
from toolformer.decoding.lm_eval_model import ToolformerLM
from toolformer.decoding.recording import AnswerFile
from toolformer.errors import UserError
from toolformer.lm.language_model import LanguageModel
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
    assert prompts == ["a"] * 3 and [document.date.day for document in documents] == [1, 2, 3]
    assert options["max_new_tokens"] == 8 and options["stop"] == () and options["allowed"] == ["calendar"]
    assert [(r.task, r.doc_id, r.completion.text if r.completion else "") for r in model.records][2] == (
        "dateset", 2, " [Calendar() -> 2021-03-03] It is 5.",
    )  # fmt: skip


def test_tools_are_switched_off_by_task(scripted: Scripted) -> None:
    model = ToolformerLM(scripted, progress=False)
    model.switched_off = {"moons_quiz": ["calendar", "abacus"]}
    answers = model.generate_until(
        [instance("a", "moons_quiz"), instance("a"), instance("b", max_gen_toks=3)]
    )
    assert answers == [" none", " It is 5.", " It is 5."]
    assert [options["allowed"] for _, _, options in scripted.asked] == [[], ["calendar"], ["calendar"]]


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


def test_the_gold_answer_is_scored_behind_the_result_of_the_call(
    tiny_gpt2: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ApiCall("Calendar", "").with_result("Today is Monday.")
    written = {
        "a": Completion(
            f" So{linearise(call)} it [Calendar() -> x] 5.", " So it [Calendar() -> x] 5.", (call,)
        ),
        "b": Completion(" none", " none", failed="no result"),
    }

    class Answers(Decoder):
        def complete(
            self, prompts: Sequence[str], *_: Any, on_batch: Any, **options: Any
        ) -> list[Completion]:
            found = [written[prompt] for prompt in prompts]
            on_batch(range(len(prompts)), found)
            return found

    requests = [instance("a"), instance("b", doc_id=1), instance("b", "svamp", 2)]
    expected = tiny_gpt2.log_likelihoods([(f"a So{linearise(call)}", " Monday"), ("b", " Monday")])
    scored: list[tuple[str, str]] = []
    original = tiny_gpt2.log_likelihoods

    def score(pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        scored.extend(pairs)
        return original(pairs)

    monkeypatch.setattr(tiny_gpt2, "log_likelihoods", score)
    for again in (False, True):
        with AnswerFile(tmp_path / "answers.jsonl") as file:
            model = ToolformerLM(Answers(tiny_gpt2, {}), file, progress=False)
            model.gold = {"dateset": lambda document: "Monday"}
            model.generate_until(requests)
        nats = [record.gold_nats for record in model.records]
        assert nats == [pytest.approx(-expected[0][0]), pytest.approx(-expected[1][0]), None]
        assert len(scored) == 2, "recorded" if again else "of the task that asks for it"


def test_nats_of_the_gold_answer_are_a_column_and_a_figure(tiny_gpt2: LanguageModel, tmp_path: Path) -> None:
    write(tmp_path, "svamp/svamp", [{**SVAMP, "id": str(n), "question": f"Is it {n}?"} for n in range(4)])
    lm = ToolformerLM(Decoder(tiny_gpt2, mode="plain"), progress=False)
    found = suite.run(lm, ["svamp"], {"data_dir": str(tmp_path)}, bootstrap_iters=50, gold_nats=True)["svamp"]
    assert {sample["target"][0][-2:] for sample in found.samples} == {".0"}, "as it is published"
    pairs = [(sample["prompt"], f" {sample['target'][0][:-2]}") for sample in found.samples]
    expected = [-value for value, _ in tiny_gpt2.log_likelihoods(pairs)]
    assert [sample["gold_nats"] for sample in found.samples] == pytest.approx(expected)
    figure = figures(found)
    assert figure["gold_nats"] == pytest.approx(sum(expected) / 4)
    assert figure["gold_nats/ci_low"] < figure["gold_nats"] < figure["gold_nats/ci_high"]


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


def test_a_tools_fault_is_asked_again_and_its_refusal_is_not(
    tiny_gpt2: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(monkeypatch, tiny_gpt2, "Joe", ' [QA("Where?") ->')

    def asked(result: Result) -> tuple[int, Completion]:
        tool = talker(result)
        with AnswerFile(tmp_path / "answers.jsonl") as file:
            model = ToolformerLM(Decoder(tiny_gpt2, {"qa": tool}, k=1), file, progress=False)
            model.generate_until([instance("Joe")])
        (record,) = model.records
        assert record.completion is not None and record.seconds is not None
        return len(tool.batches), record.completion

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
    batches: list[list[str]] = []
    read = tiny_gpt2.rolling_log_likelihoods

    def interrupted(batch: list[str]) -> list[tuple[float, int]]:
        batches.append(batch)
        if len(batches) == 3:
            raise KeyboardInterrupt
        return read(batch)

    scripted = Scripted(tiny_gpt2, {})
    requests = [rolling(text, n) for n, text in enumerate(texts)]
    with monkeypatch.context() as patch, AnswerFile(path) as file:
        model = ToolformerLM(scripted, file, progress=False)
        patch.setattr(model.language_model, "rolling_log_likelihoods", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.loglikelihood_rolling(requests)
    assert batches == [texts[:2], texts[2:3], texts[3:]]
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("change", ["k", "name", "identity", "date", "prompt", "settings", "off"])
def test_an_answer_is_only_used_for_what_it_answered(
    tiny_gpt2: LanguageModel, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "answers.jsonl"
    first = Scripted(tiny_gpt2, {"calendar": Diary()})
    with AnswerFile(path) as file:
        ToolformerLM(first, file, progress=False).generate_until([instance("a")])
    changed = {"k": {"k": 3}, "name": {"constrain_tool_name": False}}.get(change, {})
    second = Scripted(tiny_gpt2, {"calendar": Diary()}, **changed)  # type: ignore[arg-type]
    asked = {
        "date": instance("a", doc_id=1),
        "prompt": instance("b"),
        "settings": instance("a", until=["\n"]),
    }.get(change, instance("a"))
    identity = {"checkpoint": "other"} if change == "identity" else None
    model = ToolformerLM(second, path, identity, progress=False)
    model.switched_off = {"dateset": ["qa"]} if change == "off" else {}
    model.generate_until([asked])
    assert len(second.asked) == 1


def test_answer_files_survive_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
        assert "5 damaged lines" in caplog.text
        found.add({"a": [1.5, True]})
    with AnswerFile(path) as found:
        assert found["a"] == [1.5, True] and found["b"] == answers["b"]
        assert (found.seconds("a"), found.seconds("z")) == (None, None)
    with pytest.raises(ValueError, match="closed"):
        found.add({"d": 1})
    assert "d" not in AnswerFile(None)


def test_one_process_at_a_time_writes_answers(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    code = f"from toolformer.decoding.recording import AnswerFile as A; a = A({str(path)!r}); print('open', flush=True); input()"
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


@pytest.mark.parametrize("settings", [{"do_sample": True}, {"temperature": 0.7}, {"num_beams": 4}])
def test_sampling_is_refused(scripted: Scripted, settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="decoding is greedy"):
        ToolformerLM(scripted, progress=False).generate_until([instance("a", **settings)])


def test_texts_are_scored_by_the_language_model(tiny_gpt2: LanguageModel, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    texts = ["The population is 658,893 people.", "", "Joe Biden was born in Scranton. " * 60] * 4
    requests = [rolling(text, n) for n, text in enumerate(texts)]
    expected = tiny_gpt2.rolling_log_likelihoods(texts)
    for _ in range(2):
        with AnswerFile(path) as file:
            model = ToolformerLM(Decoder(tiny_gpt2), file, progress=False)
            found = model.loglikelihood_rolling(requests)
        assert found == pytest.approx([total for total, _ in expected], rel=1e-5)
        assert [record.tokens for record in model.records] == [tokens for _, tokens in expected]
    assert len(path.read_text().splitlines()) == 3
    pairs = [Instance("loglikelihood", {}, ("Joe Biden was", " born in"), 0, ("t", 0, 1))]
    [(total, greedy)] = ToolformerLM(Decoder(tiny_gpt2), path, progress=False).loglikelihood(pairs)
    assert (total, greedy) == pytest.approx(tiny_gpt2.log_likelihoods([("Joe Biden was", " born in")])[0])
