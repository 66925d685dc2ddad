"""Arguments are read from a call's input as literals, and converted by types; whatever a model writes, nothing runs."""

import datetime
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from toolformer.tools.user.arguments import MOST_CHARACTERS, ArgumentError, Parameter, bind


def parameters(**types: Any) -> list[Parameter]:
    """An argument of each type; those whose name ends with an underscore may be left out."""
    return [Parameter(name, TypeAdapter(one), not name.endswith("_")) for name, one in types.items()]


@pytest.mark.parametrize(
    ("text", "types", "expected"),
    [
        ("343", {"value": int}, {"value": 343}),
        (" -3 ", {"value": int}, {"value": -3}),
        ("value=3", {"value": int}, {"value": 3}),
        ("a, b (c) = d", {"query": str}, {"query": "a, b (c) = d"}),
        ("1, 2", {"query": str}, {"query": "1, 2"}),
        ("007", {"code": str}, {"code": "007"}),
        ("none", {"query": str}, {"query": "none"}),
        ("x = 5", {"query": str}, {"query": "x = 5"}),
        ("'it\\'s', 2", {"city": str, "days": int}, {"city": "it's", "days": 2}),
        ('day="today", city="Seoul"', {"city": str, "day": str}, {"city": "Seoul", "day": "today"}),
        ('"Seoul", day="today"', {"city": str, "day": str}, {"city": "Seoul", "day": "today"}),
        ("Seoul", {"city": str, "day_": str}, {"city": "Seoul"}),
        ("(1, 2, 3), true", {"values": list[int], "up": bool}, {"values": [1, 2, 3], "up": True}),
        ('[[1], []], {"a": null}', {"rows": list[list[int]], "more": dict[str, Any]},
         {"rows": [[1], []], "more": {"a": None}}),
        ("2023-01-30", {"day": datetime.date}, {"day": datetime.date(2023, 1, 30)}),
        ('"\\ud83d\\ude42"', {"text": str}, {"text": "🙂"}),
        ('"a\\nb", "\\d"', {"one": str, "two": str}, {"one": "a\nb", "two": "\\d"}),
        ("", {}, {}),
        ("", {"day_": str}, {}),
    ],
)  # fmt: skip
def test_what_is_read(text: str, types: dict[str, Any], expected: dict[str, Any]) -> None:
    assert bind(text, parameters(**types)) == expected


@pytest.mark.parametrize(
    ("text", "types", "reason"),
    [
        ("", {"value": int}, "argument value is missing"),
        ("much", {"value": int}, "argument value: input should be a valid integer, unable to parse string as an integer"),
        ("1.5", {"value": int}, "argument value: input should be a valid integer, got a number with a fractional part"),
        ("3", {}, "takes no input"),
        ('"a", "b", "c"', {"one": str, "two": str}, "too many arguments"),
        ('"a", three=1', {"one": str, "two": str}, "unknown argument"),
        ('"a", one="b"', {"one": str, "two": str}, "argument one is given twice"),
        ('one="a", one="b"', {"one": str, "two": str}, "argument one is given twice"),
        ('one="a", "b"', {"one": str, "two": str}, "arguments cannot be read"),
        ("Seoul, today", {"city": str, "day": str}, "argument day is missing"),
        ("city=Seoul", {"city": str, "day_": str}, "arguments cannot be read"),
        ('"Seoul", today', {"city": str, "day_": str}, "arguments cannot be read"),
        ("cold", {"kind": Literal["hot"]}, "argument kind: input should be 'hot'"),
        ("[" * 10 + "]" * 10, {"value": list}, "arguments too deep"),
        ("9" * (MOST_CHARACTERS + 1), {"value": int}, "arguments too long"),
        ("__import__('os').system('ls')", {"value": int},
         "argument value: input should be a valid integer, unable to parse string as an integer"),
        ("٣", {"value": float}, "argument value: input should be a valid number, unable to parse string as a number"),
        *((text, {"value": kind}, "argument value: number out of bounds") for kind, texts in (
            (int, ["9" * 31]), (float, ["1e999"]), (list[int], ["[1, " + "9" * 31 + "]", '["' + "9" * 31 + '"]']),
            (Decimal, ["9" * 31, '"1e999999"', "1e-300", '"-1e30"']),
            (list[Decimal] | float, ["[1, " + "9" * 31 + "]", '"1e4000"', '"nan"', '"inf"']),
        ) for text in texts),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, types: dict[str, Any], reason: str) -> None:
    with pytest.raises(ArgumentError) as error:
        bind(text, parameters(**types))
    assert str(error.value) == reason


@given(st.text(max_size=60) | st.text(alphabet="\"'\\,=()[]{}: \n-+.eE019truefalsn_a", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for taken in (
        parameters(value=int),
        parameters(city=str, day_=str),
        parameters(a=list[Any], b_=dict[str, Any]),
    ):
        try:
            bound = bind(text, taken)
        except ArgumentError as error:
            assert str(error) and "\n" not in str(error)
        else:
            assert set(bound) <= {one.name for one in taken}
