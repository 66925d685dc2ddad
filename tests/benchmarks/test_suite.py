"""Tasks run through lm-eval: prompts as the paper words them, scores, samples, intervals."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from benchmarks import GROUPS, TASKS, TASKS_DIR, suite, switches
from benchmarks.metrics import percent_interval
from benchmarks.tasks import detokenized, math_prompt, math_score, perplexity_results, question_prompt
from tests.benchmarks.test_loaders import ASDIV, MAWPS, SVAMP, write
from toolformer.errors import UserError


class Parrot(LM):
    """Answers each document by a function; a text has log-likelihood -2 a character."""

    def __init__(self, answer: Callable[[dict[str, Any]], str]) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[Instance] = []

    def generate_until(self, requests: list[Instance]) -> list[str]:
        self.asked += requests
        return [self.answer(request.doc) for request in requests]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return [(-1.0, False) for _ in requests]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        self.asked += requests
        return [-2.0 * len(request.args[0]) for request in requests]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write(tmp_path, "svamp/svamp", [{**SVAMP, "id": str(n), "answer": float(n)} for n in range(6)])
    write(tmp_path, "asdiv/asdiv", ASDIV)
    write(tmp_path, "mawps/mawps_full", MAWPS)
    write(tmp_path, "wikitext2/test_raw", [{"text": " \n = Du Fu = \n \n A poet @-@ king , dead . \n"}])
    return tmp_path


def test_every_task_file_loads_and_is_listed() -> None:
    found = TaskManager(include_path=TASKS_DIR, include_defaults=False)
    assert sorted(found.all_subtasks) == sorted(TASKS)
    assert sorted(found.all_groups) == sorted(GROUPS)
    for group, members in GROUPS.items():
        assert tuple(yaml.safe_load((TASKS_DIR / f"{group}.yaml").read_text())["task"]) == members


def test_the_prompts_are_the_papers() -> None:
    assert (
        math_prompt({"context": "Tom has 2 pens.", "question": "How many?"})
        == "Tom has 2 pens. How many? The answer is"
    )
    assert math_prompt({"context": "", "question": "How many?"}) == "How many? The answer is"
    assert question_prompt({"question": "Who?"}) == "Answer the following question: Who?"
    assert question_prompt({"question": "Who "}) == "Answer the following question: Who?"


def test_a_right_model_is_right(data_dir: Path) -> None:
    lm = Parrot(
        lambda doc: f" It is {doc['answers'][-1]}." if "answers" in doc else f" 1 + 1 = {doc['answer']}"
    )
    found = suite.run(lm, ["dateset", "math"], {"data_dir": str(data_dir), "subset": 30}, bootstrap_iters=50)
    assert list(found) == ["dateset", "asdiv", "svamp", "mawps"]
    assert {name: (result.interval.value, result.interval.n) for name, result in found.items()} == {
        "dateset": (100.0, 30),
        "asdiv": (100.0, 2),
        "svamp": (100.0, 6),
        "mawps": (100.0, 2),
    }
    prompts = {request.args[0] for request in lm.asked if request.task_name == "svamp"}
    assert prompts == {"Each pack costs 76 dollars. How much? The answer is"}
    assert all(request.args[1]["until"] == [] for request in lm.asked)


def test_scores_samples_and_interval_belong_together(data_dir: Path) -> None:
    lm = Parrot(lambda doc: f" {doc['answer']}" if int(doc["id"]) % 3 == 0 else " unknown")
    result = suite.run(lm, ["svamp"], {"data_dir": str(data_dir)}, bootstrap_iters=100, seed=5)["svamp"]
    assert result.scores == [100.0, 0.0, 0.0, 100.0, 0.0, 0.0] and not result.is_perplexity
    assert result.interval == percent_interval([1, 0, 0, 1, 0, 0], seed=5, resamples=100)
    assert [sample["doc_id"] for sample in result.samples] == list(range(6))
    assert result.samples[3]["prediction"] == " 3.0" and result.samples[3]["target"] == ["3.0"]
    json.dumps(result.samples)
    assert len(suite.run(lm, ["svamp"], {"data_dir": str(data_dir)}, limit=2)["svamp"].samples) == 2


def test_perplexity_by_words_where_tokens_are_unknown(data_dir: Path, tmp_path: Path) -> None:
    texts = tmp_path / "held.jsonl"
    texts.write_text('{"text": "two words"}\n{"text": "three little words"}\n')
    metadata = {"data_dir": str(data_dir), "heldout_path": str(texts)}
    found = suite.run(Parrot(str), ["perplexity"], metadata, bootstrap_iters=50)
    held = found["heldout_perplexity"]
    assert held.is_perplexity and set(held.others) == {"word_perplexity"}
    assert held.interval.value == pytest.approx(math.exp(2 * (9 + 18) / 5))
    assert held.scores == [-18.0, -36.0]
    assert found["wikitext_perplexity"].samples[0]["words"] == 13


def test_wikitext_is_detokenized_but_its_words_are_counted_as_published() -> None:
    document = {"page": " \n = Du Fu = \n \n A poet @-@ king , dead . \n", "text": " = Du Fu = "}
    assert detokenized(document) == "\n= Du Fu =\n\nA poet-king, dead.\n"
    assert perplexity_results(document, [-3.0]) == {
        "word_perplexity": (-3.0, 6),
        "byte_perplexity": (-3.0, 11),
    }


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        (" 5.", 100.0),
        ("\n\n5", 100.0),
        (" 2 + 3 = 5", 100.0),
        ("\n\n6\n\n5", 0.0),
        (" 3 apples.\n 2 + 3 = 5", 100.0),
        (" 5.\n\nTom has 3. 3 + 4 = 7", 0.0),
        (" 2 + 3 = ?\n\n5", 100.0),
        (" 2 + 3\n= 5", 100.0),
        (" 2 + 3 =", 0.0),
        (" 5\n\n== References ==", 100.0),
        (" 5\n=====\n3 and 4", 100.0),
        (" B12 has\n\n5", 100.0),
        ("", 0.0),
    ],
)
def test_the_first_number_counts_or_that_behind_an_equation(completion: str, score: float) -> None:
    """Anywhere in the answer, as the paper says it (section 4.2.2, note 7)."""
    assert math_score({"answer": "5"}, [completion]) == {"score": score}


def test_tools_that_a_task_may_not_use() -> None:
    """Section 4.2 of the paper; perplexity is scored, and so never meets a tool."""
    off = {name: set(switches.of_task(name)) for name in TASKS if switches.of_task(name)}
    assert off == {
        **dict.fromkeys(GROUPS["lama"], {"search"}),
        **dict.fromkeys(GROUPS["qa"], {"qa"}),
    }
    assert switches.of_task(None) == switches.of_task("nq_open") == frozenset()
    loaded = suite.load(["dateset"], {"subset": 2})
    assert loaded.switched_off == {"dateset": frozenset()}


def test_names_that_are_no_tasks() -> None:
    with pytest.raises(UserError, match="no task or group 'svmap'; did you mean svamp"):
        suite.task_names(["svmap"])
    with pytest.raises(UserError, match="the list is empty"):
        suite.task_names([])
    with pytest.raises(UserError, match="limit is 0"):
        suite.run(Parrot(str), ["svamp"], limit=0)
    assert suite.task_names(["svamp", "math", "svamp"]) == ["svamp", "asdiv", "mawps"]


def test_missing_data_passes_through_as_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected the file"):
        suite.run(Parrot(str), ["asdiv"], {"data_dir": str(tmp_path)})


def test_nothing_of_the_callers_is_changed(data_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("lm_eval")
    before = (logger.level, suite.lm_eval.api.task.tqdm, os.environ.get("DISABLE_MULTIPROC"))
    suite.run(Parrot(lambda doc: " 1"), ["svamp"], {"data_dir": str(data_dir)})
    assert before == (logger.level, suite.lm_eval.api.task.tqdm, os.environ.get("DISABLE_MULTIPROC"))
    assert capfd.readouterr().out == ""


def test_documents_by_id(data_dir: Path) -> None:
    lm = Parrot(lambda doc: f" {doc['answer']}")
    found = suite.run(lm, ["svamp"], {"data_dir": str(data_dir)}, ids=["4", "1"], bootstrap_iters=10)["svamp"]
    assert [sample["id"] for sample in found.samples] == ["1", "4"] and found.interval.value == 100
    by_task = {"svamp": ["5"], "asdiv": ["nluds-0001"]}
    with pytest.raises(UserError, match="samples: 'asdiv' is not among the benchmarks svamp"):
        suite.load(["svamp"], {"data_dir": str(data_dir)}, by_task)
    with pytest.raises(UserError, match="no ids are given for asdiv"):
        suite.load(["svamp", "asdiv"], {"data_dir": str(data_dir)}, {"svamp": ["5"]})
    with pytest.raises(UserError, match="svamp has no document 'x'; its 6 ids are like 0, 1, 2"):
        suite.load(["svamp"], {"data_dir": str(data_dir)}, ["x"])
    with pytest.raises(UserError, match="none of svamp has a document 'x'"):
        suite.load(["svamp"], {"data_dir": str(data_dir)}, ["1", "x"])
