"""Few-shot prompting: the examples are read as the reference reads them, once, and cut a whole example at a time."""

import datetime
from pathlib import Path

import pytest

from tests import reference
from tests.build import CALLING, DOCUMENTS, PIECES, Refused, taught_model, tools
from tests.decoding.build import decoder_of
from tests.processes import config, run_stage, save_calling_model, words
from toolformer.calls import find_calls, strip
from toolformer.data import Document
from toolformer.decoding.prompted import SEPARATOR, PromptedDecoder
from toolformer.jobs.compare import compare
from toolformer.results import Results
from toolformer.tools import examples
from toolformer.tools.base import Tool
from toolformer.tools.calculator import Calculator
from toolformer.tools.calendar import Calendar
from toolformer.tools.question_answering import Reader
from toolformer.tools.search import WikiSearch
from toolformer.tools.translation import Translation

SHOWN = {
    "qa": ["The [QA(ab) -> AB 1] people", "is [QA(abcd) -> AB 2] The"],
    "calendar": ["is [Calendar() -> x] is"],
}
IN_TURN = ["The [QA(ab) -> AB 1] people", "is [Calendar() -> x] is", "is [QA(abcd) -> AB 2] The"]
LIMITS = {"k": 20, "max_call_tokens": 20}


@pytest.mark.parametrize("kind", [Calculator, Calendar, Reader, WikiSearch, Translation])
def test_every_tool_is_shown_by_four_sentences_with_a_call(kind: type[Tool]) -> None:
    own = examples.described("sq", "The square of a number", ["[square(3) -> 9]", "square(5) -> 25"])
    assert own == [f"The square of a number: {n} [sq({n}) -> {n * n}] {n * n}." for n in (3, 5)]
    sentences = examples.with_name(kind.examples, "Other")
    assert len(sentences) == 4
    for sentence in sentences:
        ((start, end, call),) = find_calls(sentence, {"Other"})
        assert call.tool == "Other" and call.result and 0 < start
        assert sentence[end] in " ,(" and strip(sentence, {"Other"}) != sentence
        if kind is Calculator:
            assert [answer.text for answer in Calculator().run([call.input], DOCUMENTS[:1])] == [call.result]
        if kind is Calendar:
            day = datetime.datetime.strptime(call.result, "Today is %A, %B %d, %Y.").date()
            assert Calendar().run([""], [Document("d", "", date=day)])[0].text == call.result


def test_prompts_behind_examples_decode_like_one_at_a_time() -> None:
    model, whole, fed = taught_model("gpt2", *PIECES), SEPARATOR.join(IN_TURN), []
    hook = model.model.register_forward_pre_hook(
        lambda _, __, named: fed.append(named["input_ids"].numel()), with_kwargs=True
    )
    silent = PromptedDecoder(model, tools(), examples=SHOWN, k=0)  # type: ignore[arg-type]
    silent.complete(CALLING, DOCUMENTS, max_new_tokens=1)
    hook.remove()
    assert len(model.encode(whole)) < sum(fed) < len(CALLING) * len(model.encode(whole))
    decoder = decoder_of(model, tools(), PromptedDecoder, examples=SHOWN, batch_size=3, **LIMITS)
    found = decoder.complete(CALLING, DOCUMENTS, max_new_tokens=12)
    for prompt, document, completion in zip(CALLING, DOCUMENTS, found, strict=True):
        expected, _ = reference.decode(model, whole + SEPARATOR + prompt, 12, tools(), document, **LIMITS)
        assert completion == expected
    assert any(completion.calls for completion in found)


def test_examples_are_left_out_before_a_prompt_is_cut(counted: list[str]) -> None:
    model = taught_model("gpt2", *PIECES)
    decoder = decoder_of(model, tools(), PromptedDecoder, examples=SHOWN, **LIMITS)
    room, red = decoder.room(4), len(model.encode(" red"))
    of_two = len(model.encode(SEPARATOR.join([*IN_TURN[1:], "red"])))
    prompts = ["red" + " red" * n for n in (2, (room - of_two) // red, 2 * room)]
    found = decoder.complete(prompts, max_new_tokens=4)
    shown = [[line in text for line in IN_TURN] for text in counted]
    assert shown == [[True] * 3, [False, True, True], [False] * 3]
    assert all(text.endswith(prompt) for text, prompt in zip(counted, prompts, strict=True))
    assert [completion.prompt_cut for completion in found] == [0, 0, len(model.encode(prompts[2])) - room]
    counted.clear()  # a question sees the examples of its tools only
    decoder.complete(["red"], max_new_tokens=2, allowed=["calendar"])
    decoder.complete(["red"], max_new_tokens=2, allowed=[])
    assert counted == [SEPARATOR.join([IN_TURN[1], "red"]), "red"]


def test_prompted_is_a_system_beside_the_others(tmp_path: Path, refused: Refused) -> None:
    save_calling_model(tmp_path / "model", "Today")
    more = [f"model={tmp_path}/model", "system=prompted", "tools=[calculator,calendar]", "evaluation.limit=6"]
    done = run_stage("evaluate", config(tmp_path, *more))
    assert (done.facts["baseline"], done.facts["k"]) == ("model, prompted, k = 10", 10)
    assert (
        done.name == "Prompted k=10 seed=0: model, tiny" and done.tasks["dateset"]["call_share/calendar"] > 0
    )
    assert run_stage("evaluate", config(tmp_path, *more)).id == done.id
    run_stage("evaluate", config(tmp_path, *more, "system=model"))
    (scores,) = compare(Results(tmp_path), "latest:model", "latest:prompted").benchmarks
    assert scores.comparison.n == 6
    # A tool without examples: a line, and no run.
    (tmp_path / "sums.py").write_text('def sums(text: str) -> str:\n    "Add numbers."')
    source = f"tool_sources=[{tmp_path}/sums.py]"
    unknown = words(tmp_path, *more, source, "+tool@tool.sums=user", "tools=[sums]", "tool.sums.name=Sums")
    assert "tool.sums.example is missing: give a call with its result" in refused("evaluate", *unknown)
    line = refused("evaluate", *unknown, "tool.sums.example='Sums(1)'")
    assert "tool.sums.example is 'Sums(1)' ('Sums(1)' has no result)" in line
    assert len(Results(tmp_path).runs("evaluate")) == 2
