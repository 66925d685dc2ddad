"""The made-up texts with worked sums, and the rounds of texts with them in place of GSM8K."""

import json
import re
import subprocess
import sys
from fractions import Fraction
from itertools import islice
from pathlib import Path

import pytest

from scripts import sums

TEXTS = list(islice(sums.texts(1), 1300))
NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?"
SIGNS = {"*": "*", "x": "*", "×": "*", "/": "/", "÷": "/", "+": "+", "-": "-"}
SYMBOLS = re.compile(rf"(?<![\d.])({NUMBER}) ?([-+*/x×÷]) ?[$£€]?({NUMBER})(%?) ?= ?[$£€]?({NUMBER})")


def number(shown: str) -> Fraction:
    return Fraction(shown.replace(",", ""))


def value(left: Fraction, sign: str, right: Fraction) -> Fraction:
    return {"+": left + right, "-": left - right, "*": left * right, "/": left / right}[sign]


def test_a_seed_names_its_texts() -> None:
    assert list(islice(sums.texts(1), 100)) == TEXTS[:100] != list(islice(sums.texts(2), 100))


def test_every_sum_is_right_and_its_result_comes_last() -> None:
    for each in TEXTS:
        for one in each.sums:
            left, right = map(Fraction, one.operands)
            special = {"%": left * right / 100, "m": (left + right) / 2}
            right_answer = (
                special[one.operator] if one.operator in special else value(left, one.operator, right)
            )
            assert number(one.result) == right_answer, each
            before, after = each.text[: one.position], each.text[one.position :]
            assert after.startswith(one.result) and not re.match(r"[\d]|[.,]\d", after[len(one.result) :]), (
                each
            )
            shown = [number(found) for found in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", before)]
            later = {left, right} - {number(other.result) for other in each.sums if other is not one}
            assert later <= set(shown), each
            assert abs(number(one.result)) not in shown, each


def test_every_written_equation_is_right() -> None:
    found = [match.groups() for each in TEXTS for match in SYMBOLS.finditer(each.text)]
    assert len(found) > 500
    for left, sign, right, percent, result in found:
        operand = number(right) / (100 if percent else 1)
        assert value(number(left), SIGNS[sign], operand) == number(result), (left, sign, right, result)


def test_texts_are_many_short_and_of_many_forms() -> None:
    assert len({each.text for each in TEXTS}) == len(TEXTS)
    assert all(15 <= len(each.text.split()) <= 70 for each in TEXTS)
    assert len({each.pattern for each in TEXTS}) >= 60 and len({each.family for each in TEXTS}) >= 12
    equals = [any(re.search(r"= ?[$£€]?$", each.text[: one.position]) for one in each.sums) for each in TEXTS]
    assert 0.4 < sum(equals) / len(TEXTS) < 0.6, "half of the results follow no equals sign"
    assert {one.operator for each in TEXTS for one in each.sums} == {*"+-*/%m"}


def test_the_open_texts_lack_other_sums_and_keep_the_rest(tmp_path: Path) -> None:
    dated = {"id": "web", "text": "It was Monday.", "date": "2019-06-03"}
    pairs = [{"id": f"a/{n}", "source_id": "a", "text": "A is in Rome."} for n in range(3)]
    other = {"id": "gsm", "text": "2 + 2 = 4"}
    first, second = sums.open_texts([other, dated, pairs[0]], [other, pairs[1], other, pairs[2]])
    assert first[1:3] == [dated, pairs[0]] and second[1:4:2] == pairs[1:]
    assert [row["id"] for row in first[3:]][-462:] == [f"forms/{n}" for n in range(462)]
    assert len(first) == 138 + 462 + 2 and len(second) == 700 + 2
    assert [row["text"] for row in second if row not in pairs] == [each.text for each in TEXTS[462:1162]]
    for name, rows in (("1", [dated]), ("2", pairs)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    sums.main(tmp_path)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before.items() <= after.items(), "what was there stays as it was"
    assert set(after) - set(before) == {"1_open.jsonl", "2_open.jsonl"}


@pytest.mark.parametrize("words", [(), ("missing",)])
def test_bad_words_are_told_in_a_line(words: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, str(Path(sums.__file__)), *words]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert answer.returncode == 2 and len(answer.stderr.splitlines()) == 1
