"""Arithmetic's questions are recomputed from their words, and each family has its range."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from benchmarks import suite
from benchmarks.arithmetic import FAMILIES, FAMILY_SIZE, generate
from benchmarks.figures import figures
from tests.benchmarks.test_suite import Parrot

WORDS = {"a": "plus", "s": "minus", "m": "times"}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return generate(0)


def test_every_answer_follows_from_its_question(rows: list[dict[str, Any]]) -> None:
    largest: Counter[str] = Counter()
    for row in rows:
        expression = row["question"].removeprefix("What is ").removesuffix("?")
        pattern = r"\(\d [-+*] \d\) [-+*] \d"
        if row["family"] != "1dc":
            pattern = rf"\d+ {WORDS[row['family'][-1]]} \d+"
        assert re.fullmatch(pattern, expression), row
        largest[row["family"]] = max(largest[row["family"]], *map(int, re.findall(r"\d+", expression)))
        for sign, word in ("+", "plus"), ("-", "minus"), ("*", "times"):
            expression = expression.replace(word, sign)
        assert row["answer"] == str(eval(expression)), row
    for family in FAMILIES:
        limit = 10 ** int(family[0])
        assert 0.9 * limit <= largest[family] < limit


def test_the_families_are_ten_of_one_size_and_seeded(rows: list[dict[str, Any]]) -> None:
    assert sorted(FAMILIES) == "1dc 2da 2dm 2ds 3da 3ds 4da 4ds 5da 5ds".split()
    assert Counter(row["family"] for row in rows) == dict.fromkeys(FAMILIES, FAMILY_SIZE)
    assert Counter(row["family"] for row in rows[:30]) == dict.fromkeys(FAMILIES, 3)
    asked = {(row["family"], row["question"]) for row in rows}
    assert len(asked) == len({row["id"] for row in rows}) == len(rows) == 20_000
    assert generate(0) == rows and generate(1) != rows


def test_the_score_is_the_mean_of_the_families() -> None:
    lm = Parrot(lambda doc: f" {doc['answer']}" if doc["family"] in ("2da", "1dc") else " unknown")
    result = suite.run(lm, ["arithmetic"], {"subset": 40, "seed": 0}, bootstrap_iters=20)["arithmetic"]
    assert result.interval.value == 20 and result.interval.n == 40
    found = figures(result)
    scores = {name.split("/")[1]: value for name, value in found.items() if name.startswith("score/")}
    assert scores == {family: 100.0 * (family in ("2da", "1dc")) for family in FAMILIES}
    prompt = result.samples[0]["prompt"]
    assert re.fullmatch(r"Question: What is \d+ plus \d+\?\nAnswer:", prompt)
