"""The answers of Dateset and arithmetic recomputed from the question's text alone, by other means than the generator's."""

import calendar
import datetime
import hashlib
import json
import re
from collections import Counter
from typing import Any

import pytest
from dateutil.relativedelta import relativedelta

from tests.build import Parrot
from toolformer.benchmarks import arithmetic
from toolformer.benchmarks.dateset import HOLIDAYS, NEAR_DAYS, SIZES, generate, subset
from toolformer.evaluation import suite
from toolformer.evaluation.metrics import task_metrics

Row = dict[str, Any]
SHA256_OF_SEED_0 = "9c9e9dfc55ab949df4c9b89eb78e7c18d1faa6a6f3354ae7899769c8f011e7aa"
MONTHS = list(calendar.month_name)
DATE = r"(?P<month>[A-Z][a-z]+) (?P<day>\d+), (?P<year>\d{4})"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return generate(0)


def holiday(name: str, year: int) -> datetime.date:
    """The federal holidays as the law words them (5 U.S.C. 6103)."""

    def nth(month: int, weekday: int, n: int) -> datetime.date:
        days = calendar.Calendar().itermonthdates(year, month)
        return [day for day in days if day.month == month and day.weekday() == weekday][n]

    return {
        "New Year's Day": datetime.date(year, 1, 1),
        "Martin Luther King Jr. Day": nth(1, 0, 2),
        "Washington's Birthday": nth(2, 0, 2),
        "Memorial Day": nth(5, 0, -1),
        "Juneteenth National Independence Day": datetime.date(year, 6, 19),
        "Independence Day": datetime.date(year, 7, 4),
        "Labor Day": nth(9, 0, 0),
        "Columbus Day": nth(10, 0, 1),
        "Veterans Day": datetime.date(year, 11, 11),
        "Thanksgiving Day": nth(11, 3, 3),
        "Christmas Day": datetime.date(year, 12, 25),
    }[name]


def part_of(part: str, day: datetime.date) -> str:
    return {
        "day of the week": calendar.day_name[day.weekday()],
        "day of the month": str(day.day),
        "month": MONTHS[day.month],
        "year": str(day.year),
    }[part]


def whole_units(unit: str, first: datetime.date, last: datetime.date) -> int:
    apart = relativedelta(last, first)
    days = (last - first).days
    return {
        "days": days,
        "weeks": days // 7,
        "months": 12 * apart.years + apart.months,
        "years": apart.years,
    }[unit]


def written(match: re.Match[str]) -> datetime.date:
    return datetime.date(int(match["year"]), MONTHS.index(match["month"]), int(match["day"]))


def solve(row: Row) -> str:
    """The answer, from the question and the current date."""
    question, today = row["question"], datetime.date.fromisoformat(row["current_date"])
    names = "|".join(re.escape(name) for name in HOLIDAYS)
    if match := re.fullmatch(rf"How many days (ago was|are there until) {DATE}\?", question):
        days = (written(match) - today).days
        assert (days < 0) == (match[1] == "ago was")
        return str(abs(days))
    if match := re.fullmatch(r"What ([a-z ]+) was it (\d+) (day|week|month|year)(s?) ago\?", question):
        assert (match[4] == "s") == (match[2] != "1")
        day = today - relativedelta(**{f"{match[3]}s": int(match[2])})
        assert day.day == today.day or match[3] in ("day", "week"), "no library's clamping decides"
        assert today - datetime.timedelta(days=4 * 365 + 1) <= day < today
        return part_of(match[1], day)
    if match := re.fullmatch(r"What ([a-z ]+) will it be in (\d+) day(s?)\?", question):
        assert (match[3] == "s") == (match[2] != "1")
        return part_of(match[1], today + datetime.timedelta(days=int(match[2])))
    if match := re.fullmatch(rf"What day of the week (is|was) it on {DATE}\?", question):
        assert (written(match) < today) == (match[1] == "was")
        return part_of("day of the week", written(match))
    if match := re.fullmatch(rf"What ([a-z ]+) (is|was) it ({'|'.join(NEAR_DAYS)})\?", question):
        assert (match[2] == "was") == ("yesterday" in match[3])
        return part_of(match[1], today + relativedelta(days=list(NEAR_DAYS).index(match[3]) - 2))
    if match := re.fullmatch(rf"What ([a-z ]+) (is|was) ({names}) this year\?", question):
        day = holiday(match[3], today.year)
        assert (day < today) == (match[2] == "was")
        return part_of(match[1], day)
    match = re.fullmatch(rf"How many ([a-z]+) (ago was|are there until) ({names}) this year\?", question)
    assert match, question
    day = holiday(match[3], today.year)
    assert day != today and (day < today) == (match[2] == "ago was")
    return str(whole_units(match[1], min(day, today), max(day, today)))


def test_every_answer_follows_from_its_question(rows: list[Row]) -> None:
    for row in [*rows, *generate(7)]:
        assert row["answers"][0] == solve(row), row


def test_sizes_are_the_papers_and_the_bytes_are_pinned(rows: list[Row]) -> None:
    assert list(SIZES.values()) == [400, 800, 800, 400, 4000, 1800, 1200]
    assert Counter(row["family"] for row in rows) == SIZES
    assert len({row["current_date"] for row in rows}) == 500
    assert len({row["id"] for row in rows}) == len(rows) == 9400
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    assert hashlib.sha256(lines.encode()).hexdigest() == SHA256_OF_SEED_0


def test_a_subset_keeps_the_families_in_proportion(rows: list[Row]) -> None:
    for size, off in ((7, 3), (47, 1), (941, 1)):
        chosen = subset(rows, size, 0, "family")
        assert len(chosen) == size and all(row in rows for row in chosen[:50])
        counts = Counter(row["family"] for row in chosen)
        for family, full in SIZES.items():
            assert counts[family] >= 1 and abs(counts[family] - full * size / 9400) <= off


def test_a_larger_subset_holds_most_of_a_smaller_one() -> None:
    """As docs/benchmarks.md tells; published figures rest on these draws, which must stay what they are."""
    plain = [{"id": str(n)} for n in range(1190)]
    small, large = ({row["id"] for row in subset(plain, size, 0)} for size in (200, 400))
    assert len(small & large) == 170
    assert sorted(map(int, small))[:8] == [2, 5, 7, 17, 23, 27, 31, 32]
    assert subset(plain, 1190, 1) == subset(plain, 9999, 1) == plain and subset(plain, 0, 1) == []


def test_every_sum_follows_from_its_question_in_ten_families() -> None:
    rows = arithmetic.generate(0)
    largest: Counter[str] = Counter()
    words = {"a": "plus", "s": "minus", "m": "times"}
    for row in rows:
        expression = row["question"].removeprefix("What is ").removesuffix("?")
        kind = row["family"][-1]
        assert re.fullmatch(
            rf"\d+ {words[kind]} \d+" if kind in words else r"\(\d [-+*] \d\) [-+*] \d", expression
        )
        largest[row["family"]] = max(largest[row["family"]], *map(int, re.findall(r"\d+", expression)))
        for sign, word in ("+", "plus"), ("-", "minus"), ("*", "times"):
            expression = expression.replace(word, sign)
        assert row["answer"] == str(eval(expression)), row
    for family in arithmetic.FAMILIES:
        limit = 10 ** int(family[0])
        assert 0.9 * limit <= largest[family] < limit
    assert sorted(arithmetic.FAMILIES) == "1dc 2da 2dm 2ds 3da 3ds 4da 4ds 5da 5ds".split()
    assert Counter(row["family"] for row in rows) == dict.fromkeys(arithmetic.FAMILIES, 2000)
    assert Counter(row["family"] for row in rows[:30]) == dict.fromkeys(arithmetic.FAMILIES, 3)
    assert (
        len({(row["family"], row["question"]) for row in rows}) == len({row["id"] for row in rows}) == 20_000
    )
    assert arithmetic.generate(0) == rows and arithmetic.generate(1) != rows


def test_the_score_is_the_mean_of_the_families() -> None:
    lm = Parrot(lambda doc: f" {doc['answer']}" if doc["family"] in ("2da", "1dc") else " unknown")
    result = suite.evaluate_tasks(lm, ["arithmetic"], {"subset": 40, "seed": 0})["arithmetic"]
    assert result.interval.value == 20 and result.interval.n == 40
    scores = {family: 100.0 * (family in ("2da", "1dc")) for family in arithmetic.FAMILIES}
    assert {f"score/{family}": score for family, score in scores.items()}.items() <= task_metrics(
        result
    ).items()
    assert re.fullmatch(r"Question: What is \d+ plus \d+\?\nAnswer:", result.samples[0]["prompt"])
