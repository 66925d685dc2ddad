"""The ladder of oracles: gold calls of the published formats, the classes, and a scripted model's planted failures."""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build import SVAMP, Patch, Recorder, steer, write
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.lm_eval_model import ToolformerLM
from toolformer.decoding.recording import AnswerFile
from toolformer.decoding.row import Row
from toolformer.decoding.settings import ANY_RANK
from toolformer.evaluation import suite
from toolformer.evaluation.ladder.classes import CLASSES, Rungs, classify
from toolformer.evaluation.ladder.gold import golds
from toolformer.evaluation.ladder.rungs import Ladder
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result, Tool
from toolformer.tools.calculator import Calculator
from toolformer.tools.calendar import Calendar
from toolformer.tools.limits import Calling

FACTS = st.builds(
    Rungs,
    **dict.fromkeys(("own", "free", "called", "rolled_back", "forced", "gold_result"), st.booleans()),
    **dict.fromkeys(("gold_input", "gold_passage"), st.sampled_from((None, False, True))),
    **dict.fromkeys(("other_tool", "right_input", "used", "answered"), st.booleans()),
)


@given(FACTS)
def test_every_example_has_exactly_one_class(rungs: Rungs) -> None:
    """The table of `classify`, each class by itself and without an order."""
    wrong = not rungs.own and not rungs.free
    helps = rungs.gold_result or bool(rungs.gold_passage)
    reached = rungs.forced or bool(rungs.gold_input) or helps
    silent = rungs.forced and not rungs.called
    better_call = rungs.forced or bool(rungs.gold_input) or (rungs.gold_input is None and rungs.gold_result)
    by_call = wrong and better_call and not silent
    unused = by_call and not rungs.other_tool and not rungs.used
    by_result = wrong and helps and not better_call
    conditions = {
        "right_without_need": rungs.own and rungs.free,
        "helped": rungs.own and not rungs.free,
        "harmed": not rungs.own and rungs.free,
        "out_of_reach": wrong and not reached,
        "did_not_call": wrong and silent and not rungs.rolled_back,
        "wrong_tool": by_call and rungs.other_tool,
        "wrong_input": (wrong and silent and rungs.rolled_back) or (unused and not rungs.right_input),
        "result_unused": (by_call and not rungs.other_tool and rungs.used)
        or (by_result and (rungs.used or rungs.answered)),
        "tool_failed": (unused and rungs.right_input)
        or (by_result and not rungs.used and not rungs.answered),
    }
    assert conditions.keys() == CLASSES.keys()
    assert [name for name, holds in conditions.items() if holds] == [classify(rungs)]


def test_the_right_calls_of_the_published_formats(tmp_path: Path) -> None:
    fact = {"relation": "P19", "template": "[X] was born in [Y] .", "relation_label": "place of birth"}
    fact |= {"uuid": "u1", "sub_label": "Ada", "obj_label": "London"}
    write(tmp_path, "svamp/svamp", [{**SVAMP, "equation": "( 8.0 - 3.0 )", "answer": 5.0}])
    write(tmp_path, "lama/trex", [fact])
    evidence = {"relation": "P19", "uuid": "u1", "evidences": [{"masked_sentence": "Ada of [MASK] wrote."}]}
    write(tmp_path, "lama/trex_evidences", [evidence])
    found = {}
    for name in ("svamp", "lama_trex", "dateset", "arithmetic"):
        task = suite.load_tasks([name], {"data_dir": str(tmp_path), "subset": 40, "seed": 0}).tasks["tasks"][
            name
        ]
        found[name] = golds(name, list(task.dataset["test"]), task.config.metadata)
    assert [(gold.input, gold.answer) for gold in found["svamp"]] == [("8 - 3", "5")]
    (gold,) = found["lama_trex"]
    assert (gold.input, gold.answer) == ("What is the place of birth of Ada?", "London")
    assert gold.passage == "Ada of London wrote."
    assert {gold.input for gold in found["dateset"]} == {""}
    assert len(found["arithmetic"]) == 40 and all(gold.input for gold in found["arithmetic"])


@dataclass(frozen=True)
class Plan:
    """How the scripted model deals with an example."""

    expected: str
    free: str  # what it writes without a call
    call: str | None = None  # the call that it makes of its own
    forced: str = ""  # the call that it makes where it must
    before: str = ""  # what it writes before its own call
    reads: Callable[[str], str] = lambda result: f" {result}."  # what it makes of a result


def sums(n: int, doc: Mapping[str, Any], right: str) -> Plan:
    """Plans for arithmetic, in turn."""
    yes, no = f" {doc['answer']}.", " 7777777."
    good, bad, other = f"Calculator({right})", "Calculator(5 * 1111111)", "Calendar()"
    return [
        Plan("right_without_need", yes),
        Plan("right_without_need", yes, call=good),
        Plan("helped", no, call=good, forced=good),
        Plan("harmed", yes, call=bad, forced=good),
        Plan("did_not_call", no, forced=good),
        Plan("wrong_tool", no, call=other, forced=other),
        Plan("wrong_tool", no, forced=other),
        Plan("wrong_input", no, call=bad, forced=bad),
        Plan("wrong_input", no, forced="Calculator(one)"),
        Plan("wrong_input", no, call="Calculator(one)", forced="Calculator(one) x"),
        Plan("wrong_input", no, call="Calculator(one)", forced=good),
        Plan("result_unused", no, call=good, forced=good, before=no[:-1]),
        Plan("out_of_reach", no, call=good, forced=good, reads=lambda result: no),
    ][n % 13]


def questions(n: int, doc: Mapping[str, Any], right: str) -> Plan:
    """Plans for questions, in turn; the search gives a good answer where the question's number is even."""
    answer = doc["answers"][0]
    yes, no, good = f" {answer}.", " nobody.", f'WikiSearch("{right}")'
    bad = 'WikiSearch("who?")'
    return [
        Plan("did_not_call", no, forced=good),
        Plan("tool_failed", no, call=good, forced=good),
        Plan("result_unused", no, call=good, forced=good, reads=lambda read: yes if read == answer else no),
        Plan("tool_failed", no, call=bad, forced=good),
        Plan("wrong_input", no, call=bad, forced=bad),
        Plan("tool_failed", no, forced=good, reads=lambda result: yes if answer in result != answer else no),
        Plan("out_of_reach", no, reads=lambda result: no),
        Plan("right_without_need", yes),
    ][n % 8]


def scripted(monkeypatch: Patch, model: LanguageModel, plans: Mapping[str, Plan]) -> None:
    """Makes a model write what the plans say, whatever rung it is asked on."""

    def wanted(row: Row, text: str, forced: bool) -> str:
        prompt = next(prompt for prompt in plans if text.startswith(prompt))
        plan, said = plans[prompt], text[len(prompt) :]
        _, start, call = said.rpartition(" [")
        if start and "]" in call:
            result, _, read = call.partition("-> ")[2].partition("]")
            return plan.reads(result)[len(read) :]
        if start and row.call is not None:
            return f"{plan.forced if forced else plan.call} ->"[len(call) :]
        if row.may_call and plan.call:
            return f"{plan.before} ["[len(said) :]
        return plan.free[len(said) :]

    def following(decoder: Decoder, row: Row) -> int:
        rest = wanted(row, model.decode(row.ids), forced=decoder.k == ANY_RANK)
        return model.encode(rest)[0] if rest else 0

    steer(monkeypatch, following)


def climb(decoder: Decoder, loaded: suite.Loaded, answers: AnswerFile) -> dict[str, list[dict[str, Any]]]:
    day = datetime.date(2026, 3, 1)

    def make_lm(decoder: Decoder, more: Mapping[str, str]) -> ToolformerLM:
        return ToolformerLM(decoder, answers, more, progress=False, clocks=["calendar"], day=day)

    results = suite.evaluate_tasks(make_lm(decoder, {}), loaded)
    ladder = Ladder(decoder, make_lm, day)
    return {
        name: ladder.climb(name, loaded.tasks["tasks"][name], loaded.switched_off[name], result.samples)
        for name, result in results.items()
    }


def classes(
    folder: Path,
    monkeypatch: Patch,
    model: LanguageModel,
    calls: Mapping[str, tuple[str | None, str]],
    **more: Any,
) -> list[str]:
    """Of questions for kings, by the calls made freely and where one must be; the search knows, QA does not."""
    rows = [{"id": name, "question": f"who is {name}", "answers": ["King"]} for name in calls]
    write(folder, "nq_open/dev", rows)
    loaded = replace(suite.load_tasks(["nq"], {"data_dir": str(folder)}), switched_off={"nq": frozenset()})
    scripted(monkeypatch, model, {
        f"Answer the following question: who is {name}?": Plan(
            "", " nobody.", free, forced, reads=lambda read: " King." if "King" in read else " nobody."
        ) for name, (free, forced) in calls.items()
    })  # fmt: skip
    search = Recorder(lambda _: Result("It was King"), "WikiSearch")
    tools: dict[str, Tool] = {"search": search, "qa": Recorder(lambda _: Result("nobody"), "QA")}
    decoder = Decoder(model, tools, k=1, constrain_tool_name=False, **more)
    (climbed,) = climb(decoder, loaded, AnswerFile(folder / "answers.jsonl")).values()
    return [row["class"] for row in climbed]


def test_the_right_input_to_another_fit_tool_is_right(
    tmp_path: Path, monkeypatch: Patch, tiny_gpt2: LanguageModel
) -> None:
    """The model asks QA: the question itself, or another."""
    calls: dict[str, tuple[str | None, str]] = {"0": ('QA("who is 0?")',) * 2, "1": ('QA("who?")',) * 2}
    assert classes(tmp_path, monkeypatch, tiny_gpt2, calls) == ["tool_failed", "wrong_input"]


def test_a_call_is_forced_whatever_k_its_tool_has(
    tmp_path: Path, monkeypatch: Patch, tiny_gpt2: LanguageModel
) -> None:
    """It was started and taken back for ever."""
    calls: dict[str, tuple[str | None, str]] = {"he": (None, 'WikiSearch("who is he?")')}
    assert classes(tmp_path, monkeypatch, tiny_gpt2, calls, calling={"search": Calling(k=0)}) == [
        "did_not_call"
    ]


def test_a_foreign_questions_right_result_is_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_gpt2: LanguageModel
) -> None:
    """The translator knows the first of two questions; the model answers what it is shown in English."""
    row = {"context": "King Ada rules.", "answers": [{"text": "Ada", "answer_start": 5}]}
    for language, asked in (("es", ("quién reina", "quién manda ")), ("en", ("who rules?", "who commands?"))):
        rows = [{"id": f"q{n}", "question": question, **row} for n, question in enumerate(asked)]
        write(tmp_path, f"xquad/{language}", rows)
    loaded = suite.load_tasks(["xquad_es"], {"data_dir": str(tmp_path)})
    translator = Recorder(lambda said: Result("who rules?" if "reina" in said else "hm"), "MT")
    task = loaded.tasks["tasks"]["xquad_es"]
    plans = {
        task.doc_to_text(doc): Plan(
            "", " nobody.", forced=f"MT({doc['question'].strip()})", reads=lambda read: " Ada." if "who" in read else " no."
        )
        for doc in task.dataset["test"]
    }  # fmt: skip
    scripted(monkeypatch, tiny_gpt2, plans)
    decoder = Decoder(tiny_gpt2, {"translation": translator}, k=1, constrain_tool_name=False)
    (rows,) = climb(decoder, loaded, AnswerFile(tmp_path / "answers.jsonl")).values()
    assert [(row["id"], row["class"], row["call"]) for row in rows] == [
        ("q0", "did_not_call", "[MT(quién reina)]"), ("q1", "tool_failed", "[MT(quién manda)]"),
    ]  # fmt: skip


def test_a_hundred_planted_failures_are_classed_right(
    tmp_path: Path, monkeypatch: Patch, tiny_gpt2: LanguageModel
) -> None:
    names = [f"p{n}" for n in range(40)]
    rows = [{"id": name, "question": f"who is {name}", "answers": [f"King {name}"]} for name in names]
    write(tmp_path, "nq_open/dev", rows)
    of_king = "It was King {} there"
    passages = [
        {"question": f"who is {name}", "passages": [{"title": "Kings", "text": of_king.format(name)}]}
        for name in names[5::8]
    ]
    write(tmp_path, "nq_open/oracle_passages", passages)
    loaded = suite.load_tasks(["arithmetic", "nq"], {"data_dir": str(tmp_path), "subset": 60, "seed": 0})
    known = {f"who is {name}?": f"Peerage > King {name} is" for name in names[::2]}
    search = Recorder(lambda text: Result(known.get(text, "Peerage > Nothing")), "WikiSearch")
    tools: dict[str, Tool] = {"calculator": Calculator(), "calendar": Calendar(), "search": search}
    plans: dict[str, Plan] = {}
    expected: dict[str, list[str]] = {}
    for name, make in (("arithmetic", sums), ("nq", questions)):
        task = loaded.tasks["tasks"][name]
        docs = list(task.dataset["test"])
        right = [gold.input or "" for gold in golds(name, docs, task.config.metadata)]
        of_task = [make(n, doc, right[n]) for n, doc in enumerate(docs)]
        plans |= {task.doc_to_text(doc): plan for doc, plan in zip(docs, of_task, strict=True)}
        expected[name] = [plan.expected for plan in of_task]
    scripted(monkeypatch, tiny_gpt2, plans)
    calling = dict.fromkeys(tools, Calling(max_call_tokens=90))
    decoder = Decoder(tiny_gpt2, tools, calling, k=1, constrain_tool_name=False)
    answers = AnswerFile(tmp_path / "answers.jsonl")
    climbed = climb(decoder, loaded, answers)
    classed = {name: [row["class"] for row in rows] for name, rows in climbed.items()}
    assert classed == expected
    every = [name for of_task in classed.values() for name in of_task]
    assert len(every) == 100 and set(every) == set(CLASSES)
    size = (tmp_path / "answers.jsonl").stat().st_size
    assert (
        climb(decoder, loaded, answers) == climbed and (tmp_path / "answers.jsonl").stat().st_size == size
    ), "answered once"
