"""The project's task files: all load and are listed, pin their data, and ask in every wording; real data is whole."""

import datetime
import os
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_eval.tasks import TaskManager

from tests.benchmarks.build import task
from tests.build import Log, task_config
from toolformer.benchmarks import GROUPS, TASKS, TASKS_DIR, WORDINGS, tasks
from toolformer.benchmarks.declared import declared, is_perplexity
from toolformer.benchmarks.loaders.published import CONVERSIONS
from toolformer.benchmarks.wordings import TEMPLATES, reworded
from toolformer.errors import UserError

GENERATED = {"arithmetic", "dateset", "heldout_perplexity"}
"""Tasks that need neither a data folder nor the hub."""


def test_every_task_file_loads_and_is_listed() -> None:
    found = TaskManager(include_path=TASKS_DIR, include_defaults=False)
    assert sorted(found.all_subtasks) == sorted(TASKS)
    assert sorted(found.all_groups) == sorted(GROUPS)
    assert len(TASKS) == len(set(TASKS))


@pytest.mark.parametrize("day", ["0001-01-01", "0987-12-03", datetime.datetime(2021, 3, 4, 5)])
def test_a_day_has_four_digits_of_a_year(day: object) -> None:
    assert tasks.day_of({"current_date": day}) == str(day)[:10]


@given(st.text(), st.text(min_size=1), st.sampled_from([*TEMPLATES]))
def test_every_wording_asks_the_same_in_other_words(context: str, text: str, kind: str) -> None:
    doc = {"context": context, "question": text, "text": text}
    prompts = {wording: reworded(kind, getattr(tasks, kind, ""), wording)(doc) for wording in WORDINGS[1:]}
    assert len(set(prompts.values())) == 4
    for prompt in prompts.values():
        assert text.strip() in prompt
        assert context.strip() in prompt or kind not in ("math_prompt", "passage_prompt")


@pytest.mark.parametrize(
    ("score", "doc", "reason"),
    [
        (tasks.answer_in_5_words, {"id": "7", "answers": [["Paris"]]}, r"the row '7': field `answers` is \[\['Paris'\]\]; it must be"),
        (tasks.answer_in_20_words, {"id": "7", "answers": [True]}, "the row '7': field `answers` is"),
        (tasks.answer_in_5_words, {"id": "7", "answers": "('Paris', 'City of Paris')"}, "the row '7': field `answers` is a list written as a text"),
        (tasks.answer_in_5_words, {"id": "7", "answers": "array(['Paris'], dtype=object)"}, "field `answers` is a list written as a text"),
        (tasks.math_score, {"id": "7", "answer": "five"}, "the row '7': the answer 'five' is not a number; fix the row"),
        (tasks.math_score, {"id": "7", "answer": "3-5"}, "the answer '3-5' is not a number"),
    ],
)  # fmt: skip
def test_a_row_without_a_right_answer_is_one_line(score: Any, doc: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        score(doc, [" Paris"])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (1e22, "1" + 22 * "0"),
        (1e-7, "0.0000001"),
        (-2.5e16, "-25000000000000000"),
        (["[1, 2]"], "[1, 2]"),
        ("{x", "{x"),
        ("(1, 2)", "(1, 2)"),
        (10**400, f"1{400 * '0'}"),
        (-0.0, "0"),
    ],
)
def test_an_answer_is_as_people_write_it(answer: Any, text: str) -> None:
    assert tasks.answers_of({"answers": answer}) == [text]


def test_a_task_file_declares_its_data() -> None:
    assert {name for name in TASKS if is_perplexity(name)} == {*GROUPS["perplexity"]}
    assert not is_perplexity("my_own_perplexity")
    for name in sorted({*TASKS} - GENERATED):
        benchmark = declared(name)
        assert benchmark.file or benchmark.reads, name
        if benchmark.file:
            assert benchmark.fields and benchmark.licence and benchmark.hub["path"]
            assert benchmark.hub.get("convert", "unchanged") in CONVERSIONS
        assert all(declared(other).file for other in benchmark.reads)


def test_a_task_pins_its_data_and_reads_enough_words() -> None:
    for name in TASKS:
        found = task_config(name)
        if found["output_type"] == "generate_until":
            settings = found["generation_kwargs"]
            assert settings["until"] == [] and not settings["do_sample"] and settings["max_gen_toks"] >= 24
        if name not in GENERATED and not name.startswith("mlqa_all_en"):  # which reads others' files
            metadata = found["metadata"]
            hub = metadata["hub"]
            assert metadata["published_rows"] > 0 and hub["path"] and hub["split"]
            # A commit, or the reason why there is none beside it in the file.
            [path] = TASKS_DIR.glob(f"*/{name}.yaml")
            pinned = re.fullmatch(r"[0-9a-f]{40}", str(hub.get("revision", "")))
            assert pinned or "No commit" in path.read_text() or "no versions to pin" in path.read_text()
    words_of = {"lama": 5, "temporal": 5, "qa": 20, "mlqa": 10, "mlqa_all_en": 10, "xquad": 10}
    for group, words in words_of.items():
        for score in (task_config(name)["process_results"] for name in GROUPS[group]):
            for before in (words - 1, words):
                assert score({"answers": ["x"]}, ["w " * before + "x"]) == {"score": 100.0 * (before < words)}


@pytest.mark.real
@pytest.mark.skipif(not os.environ.get("TOOLFORMER_DATA_DIR"), reason="TOOLFORMER_DATA_DIR is not set")
@pytest.mark.parametrize(
    ("name", "kept", "out_of_reach"),
    [
        ("lama_squad", 213, 0), ("lama_trex", 28764, 0), ("svamp", 1000, 0), ("mawps", 2373, 0), ("webqs", 2032, 10),
        ("nq", 3610, 2), ("triviaqa", 11313, 7), ("xquad_es", 1190, 35), ("xquad_zh", 1190, 35), ("xquad_en", 1190, 35),
        ("wikitext_perplexity", 60, None),
    ],
)  # fmt: skip
def test_real_benchmarks_are_whole_and_their_answers_are_right(
    name: str, kept: int, out_of_reach: int | None, caplog: Log
) -> None:
    """Rows left after the filters, and how many have no answer that the score can see (longer than it reads)."""
    made = task(name)
    rows = [dict(row) for row in made.test_docs()]
    assert len(rows) == kept and "but the published set" not in caplog.text
    if out_of_reach is not None:
        scores = [
            max(made.process_results(row, [f" {text}."])["score"] for text in row.get("answers", [row.get("answer")]))
            for row in rows
        ]  # fmt: skip
        assert scores.count(0.0) == out_of_reach
