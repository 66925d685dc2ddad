"""Dateset: questions whose answer depends on the current date (paper, appendix D and Table 11).

`generate(seed)` draws 500 distinct current dates from 2010 to 2029, and for each a past and a future date at
most four years away. Every variant of a template (a cell) is filled from the 500 dates in random order, each
date at most once; a family takes entries from its cells in turn until it has its size, so that its cells
differ by one entry at most. Examples, as if today were 2020-11-20:

| family           | size  | cells                 | question and answer                               |
|------------------|-------|-----------------------|---------------------------------------------------|
| days_to_date     |   400 | 2 directions          | How many days ago was August 14, 2020? 98         |
| date_ago         |   800 | 4 parts x 4 units     | What month was it 3 weeks ago? October            |
| date_in_days     |   800 | 4 parts of a date     | What year will it be in 60 days? 2021             |
| weekday_of_date  |   400 | 2 directions          | What day of the week was it on May 1, 2020? Friday |
| near_day         | 4,000 | 4 parts x 5 days      | What day of the month was it yesterday? 19        |
| holiday_date     | 1,800 | 3 parts x 11 holidays | What month was Labor Day this year? September     |
| holiday_distance | 1,200 | 4 units x 11 holidays | How many weeks ago was Labor Day this year? 10    |

What the paper leaves open, and how it is settled here:
- "is" and "was" follow the direction: past dates and holidays "was"; today, future dates and holidays "is".
- Weeks, months and years ago (date_ago): the drawn past date is moved to the nearest later day that is a
  whole number of units back, at least one. Where there is no such day (a month before March 31, a year
  before February 29) the current date is left out of that cell: no answer depends on how a library clamps.
- Table 11 has lost its {holiday}: it goes before "this year". Federal holidays count on their own day, not
  on the day they are observed; Juneteenth from 2021 on. A distance to a holiday is counted in completed
  weeks, months or years. "Years" to a day of this year is always 0; the template names it, so it stays. A
  holiday that is today has no distance and is left out of holiday_distance.
- One unit is written in the singular ("1 day ago"). A day of the month may be answered "14" or "14th".

Rows are interleaved: every beginning of the list holds the families in proportion to their sizes.
"""

import datetime
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice, product, zip_longest
from operator import itemgetter
from typing import Any

import holidays

from toolformer.data.dates import DAYS, MONTHS

SIZES = {
    "days_to_date": 400,
    "date_ago": 800,
    "date_in_days": 800,
    "weekday_of_date": 400,
    "near_day": 4000,
    "holiday_date": 1800,
    "holiday_distance": 1200,
}
CURRENT_DATES = 500
FIRST, LAST = datetime.date(2010, 1, 1), datetime.date(2029, 12, 31)

PARTS = ("day of the week", "day of the month", "month", "year")
UNITS = ("days", "weeks", "months", "years")
DIRECTIONS = ("past", "future")
NEAR_DAYS = {
    "the day before yesterday": -2,
    "yesterday": -1,
    "today": 0,
    "tomorrow": 1,
    "the day after tomorrow": 2,
}
HOLIDAYS = (
    "New Year's Day",
    "Martin Luther King Jr. Day",
    "Washington's Birthday",
    "Memorial Day",
    "Juneteenth National Independence Day",
    "Independence Day",
    "Labor Day",
    "Columbus Day",
    "Veterans Day",
    "Thanksgiving Day",
    "Christmas Day",
)

Row = dict[str, Any]
"""`id, family, question, answers` (accepted texts)`, current_date` (ISO)."""


@dataclass(frozen=True)
class _Dates:
    current: datetime.date
    past: datetime.date
    future: datetime.date


Entry = tuple[str, list[str]]
"""A question and its accepted answers."""
Cell = Callable[[_Dates], Entry | None]
"""One variant of a template, filled with dates; None where they do not fit it."""


def generate(seed: int = 0) -> list[Row]:
    """Dateset for a seed: 9,400 rows."""
    dates = _draw_dates(seed)
    rows: list[tuple[float, Row]] = []
    for family, total in SIZES.items():
        pools = [_fill(cell, dates, f"{seed}/{family}/{n}") for n, cell in enumerate(CELLS[family])]
        random.Random(f"{seed}/{family}").shuffle(pools)
        # One entry of each pool, then the next of each, until there are enough.
        entries = (entry for turn in zip_longest(*pools) for entry in turn if entry)
        for n, (current, (question, answers)) in enumerate(islice(entries, total)):
            row: Row = {
                "id": f"{family}-{n + 1:04d}",
                "family": family,
                "question": question,
                "answers": answers,
                "current_date": current.isoformat(),
            }
            rows.append((n / total, row))
    return [row for _, row in sorted(rows, key=itemgetter(0))]


def subset(rows: Sequence[Row], size: int, seed: int, by: str | None = None) -> list[Row]:
    """`size` rows drawn without replacement, in their old order; `by` a field: in proportion to its values.

    Shares are rounded by largest remainder; every value keeps a row while there is room for all of them. A larger subset
    holds most of a smaller one of the same seed, and not always all of it.
    """
    if size >= len(rows):
        return list(rows)
    strata: dict[str, list[int]] = {}
    for n, row in enumerate(rows):
        strata.setdefault(str(row[by]) if by else "", []).append(n)
    counts = _shares({name: len(members) for name, members in strata.items()}, size)
    chosen: list[int] = []
    for name, members in strata.items():
        chosen += random.Random(f"{seed}/subset/{name}").sample(members, counts[name])
    return [rows[n] for n in sorted(chosen)]


@cache
def federal_holidays(year: int) -> dict[str, datetime.date]:
    """The US federal holidays of a year on their own days (not the days they are observed), by name."""
    days = {name: day for day, name in holidays.country_holidays("US", years=year, observed=False).items()}
    return {name: days[name] for name in HOLIDAYS if name in days}


def _draw_dates(seed: int) -> list[_Dates]:
    random_dates = random.Random(f"{seed}/dates")
    days = sorted(random_dates.sample(range((LAST - FIRST).days + 1), CURRENT_DATES))
    drawn: list[_Dates] = []
    for current in (FIRST + datetime.timedelta(days=n) for n in days):
        # Four years away from February 29 lies a February 29, from 1904 to 2096.
        back = (current - current.replace(year=current.year - 4)).days
        ahead = (current.replace(year=current.year + 4) - current).days
        past = current - datetime.timedelta(days=random_dates.randint(1, back))
        future = current + datetime.timedelta(days=random_dates.randint(1, ahead))
        drawn.append(_Dates(current, past, future))
    return drawn


def _fill(cell: Cell, dates: Sequence[_Dates], key: str) -> list[tuple[datetime.date, Entry]]:
    filled = [(date.current, entry) for date in dates if (entry := cell(date)) is not None]
    random.Random(key).shuffle(filled)
    return filled


def _shares(sizes: dict[str, int], total: int) -> dict[str, int]:
    everything = sum(sizes.values())
    exact = {name: size * total / everything for name, size in sizes.items()}
    counts = {name: int(share) for name, share in exact.items()}
    order = sorted(sizes, key=lambda name: counts[name] - exact[name])
    for name in order[: total - sum(counts.values())]:
        counts[name] += 1
    if total >= len(sizes):
        for name in sizes:
            if counts[name] == 0:
                counts[max(counts, key=lambda other: counts[other])] -= 1
                counts[name] = 1
    return counts


def _written(day: datetime.date) -> str:
    return f"{MONTHS[day.month - 1]} {day.day}, {day.year}"


def _part(part: str, day: datetime.date) -> list[str]:
    if part == "day of the week":
        return [DAYS[day.weekday()]]
    if part == "day of the month":
        ending = "th" if 11 <= day.day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
        return [str(day.day), f"{day.day}{ending}"]
    return [MONTHS[day.month - 1] if part == "month" else str(day.year)]


def _completed(unit: str, start: datetime.date, end: datetime.date) -> int:
    """Whole units from `start` to a later `end`; a month is over when its day of the month is reached."""
    days = (end - start).days
    if unit == "days":
        return days
    if unit == "weeks":
        return days // 7
    months = (end.year - start.year) * 12 + end.month - start.month - (end.day < start.day)
    return months if unit == "months" else months // 12


def _back(day: datetime.date, count: int, unit: str) -> datetime.date | None:
    """The day `count` units before `day`, or None where there is no such day."""
    if unit in ("days", "weeks"):
        return day - datetime.timedelta(days=count * (7 if unit == "weeks" else 1))
    months = day.year * 12 + day.month - 1 - count * (12 if unit == "years" else 1)
    try:
        return day.replace(year=months // 12, month=months % 12 + 1)
    except ValueError:
        return None


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit[:-1] if count == 1 else unit}"


def _days_to_date(direction: str, dates: _Dates) -> Entry:
    if direction == "past":
        return f"How many days ago was {_written(dates.past)}?", [str((dates.current - dates.past).days)]
    days = (dates.future - dates.current).days
    return f"How many days are there until {_written(dates.future)}?", [str(days)]


def _date_ago(part: str, unit: str, dates: _Dates) -> Entry | None:
    count = _completed(unit, dates.past, dates.current)
    day = _back(dates.current, count, unit)
    if count == 0 or day is None:
        return None
    return f"What {part} was it {_counted(count, unit)} ago?", _part(part, day)


def _date_in_days(part: str, dates: _Dates) -> Entry:
    days = _counted((dates.future - dates.current).days, "days")
    return f"What {part} will it be in {days}?", _part(part, dates.future)


def _weekday_of_date(direction: str, dates: _Dates) -> Entry:
    verb, day = ("was", dates.past) if direction == "past" else ("is", dates.future)
    return f"What day of the week {verb} it on {_written(day)}?", _part("day of the week", day)


def _near_day(part: str, name: str, dates: _Dates) -> Entry:
    offset = NEAR_DAYS[name]
    day = dates.current + datetime.timedelta(days=offset)
    return f"What {part} {'was' if offset < 0 else 'is'} it {name}?", _part(part, day)


def _holiday_date(part: str, holiday: str, dates: _Dates) -> Entry | None:
    day = federal_holidays(dates.current.year).get(holiday)
    if day is None:
        return None
    return f"What {part} {'was' if day < dates.current else 'is'} {holiday} this year?", _part(part, day)


def _holiday_distance(unit: str, holiday: str, dates: _Dates) -> Entry | None:
    day = federal_holidays(dates.current.year).get(holiday)
    if day is None or day == dates.current:
        return None
    count = str(_completed(unit, min(day, dates.current), max(day, dates.current)))
    direction = "ago was" if day < dates.current else "are there until"
    return f"How many {unit} {direction} {holiday} this year?", [count]


def _cells(template: Callable[..., Entry | None], *variants: Sequence[str]) -> list[Cell]:
    return [partial(template, *variant) for variant in product(*variants)]


CELLS: dict[str, list[Cell]] = {
    "days_to_date": _cells(_days_to_date, DIRECTIONS),
    "date_ago": _cells(_date_ago, PARTS, UNITS),
    "date_in_days": _cells(_date_in_days, PARTS),
    "weekday_of_date": _cells(_weekday_of_date, DIRECTIONS),
    "near_day": _cells(_near_day, PARTS, tuple(NEAR_DAYS)),
    "holiday_date": _cells(_holiday_date, PARTS[:3], HOLIDAYS),
    "holiday_distance": _cells(_holiday_distance, UNITS, HOLIDAYS),
}
