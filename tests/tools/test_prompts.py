"""The paper's prompts, to the letter."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer.calls import END, START, parse
from toolformer.tools.calculator import Calculator
from toolformer.tools.prompts import CALCULATOR, PROMPTS, Prompt

NAMES = {
    "calculator": "Calculator",
    "calendar": "Calendar",
    "search": "WikiSearch",
    "qa": "QA",
    "translation": "MT",
}
CALL = re.compile(r"\[(?:QA|Calculator|WikiSearch|MT|Calendar)\([^\[\]]*\)\]")

CALENDAR_PROMPT = """\
Your task is to add calls to a Calendar API to a piece of text. The API calls should help you get information required to complete the text. You can call the API by writing "[Calendar()]" Here are some examples of API calls:

Input: Today is the first Friday of the year.
Output: Today is the first [Calendar()] Friday of the year.

Input: The president of the United States is Joe Biden.
Output: The president of the United States is [Calendar()] Joe Biden.

Input: The current day of the week is Wednesday.
Output: The current day of the week is [Calendar()] Wednesday.

Input: The number of days from now until Christmas is 30.
Output: The number of days from now until Christmas is [Calendar()] 30.

Input: The store is never open on the weekend, so today it is closed.
Output: The store is never open on the weekend, so today [Calendar()] it is closed.

Input: x
Output:"""

# Of fill("x"); each prompt was compared word for word with appendix A.2 when its hash was taken.
SHA256 = {
    "qa": "849cbf42662f7948ebc9ab6bd40ba580b4a57da2dccf78014fda5cc125805f92",
    "calculator": "11ad778cb9b12bd45e75f432e35d4151f3210398bbebe53ce68dfcbda242ac40",
    "search": "ec153a944a13ae0a49420100aea8459cee8951aa537fd3d6ea559041a10dd8eb",
    "translation": "c4a804e7384db19ba9966b68f040f14ca9455382d6a8a43fee4082ff73166b12",
    "calendar": "b6e2ff150e36dc983e60e18db9492bb776b2959e214b220a322c71467068827c",
}


def test_the_calendar_prompt_in_full() -> None:
    assert PROMPTS["calendar"].fill("x") == CALENDAR_PROMPT


@pytest.mark.parametrize("key", SHA256)
def test_no_character_changes(key: str) -> None:
    assert hashlib.sha256(PROMPTS[key].fill("x").encode()).hexdigest() == SHA256[key]


@pytest.mark.parametrize("key", NAMES)
def test_the_form(key: str) -> None:
    prompt = PROMPTS[key]
    text = prompt.fill("some text")
    blocks = text.split("\n\n")
    assert blocks[0] == prompt.instruction and "\n" not in prompt.instruction
    assert prompt.instruction.endswith(":") and f"[{NAMES[key]}(" in prompt.instruction
    assert len(blocks) == len(prompt.examples) + 2
    for block in blocks[1:-1]:
        assert re.fullmatch(r"Input: [^\n]+\nOutput: [^\n]+", block)
    assert blocks[-1] == "Input: some text\nOutput:"
    assert not re.search("[“”„‘’«»]", text), "quotes and apostrophes are ASCII"
    assert "  " not in text


@pytest.mark.parametrize("key", NAMES)
def test_a_demonstration_is_its_text_with_calls_that_parse(key: str) -> None:
    for text, annotated in PROMPTS[key].examples:
        calls = CALL.findall(annotated)
        assert calls and all(parse(f"{START[0]}{call}").tool == NAMES[key] for call in calls)
        assert all(call.endswith(END) for call in calls)
        plain = re.sub(rf" ?{CALL.pattern}", "", annotated).strip()
        # The paper itself rewords the one, and leaves the foreign words out of the other.
        if not text.startswith(("A total of 252", "南京")):
            assert plain == text


def test_the_calculator_examples_compute() -> None:
    """The percent sign that a conversion of the paper lost is there."""
    inputs = [parse(call).input for _, annotated in CALCULATOR.examples for call in CALL.findall(annotated)]
    assert "658,893 / 11.4%" in inputs
    assert [one.text for one in Calculator().run(inputs, [])] == [
        "54",
        "5779763.16",
        "2.87",
        "703",
        "17",
        "120",
    ]


@given(st.text())
def test_fill_is_prefix_text_and_output(text: str) -> None:
    prompt = Prompt("Do it:", (("a", "b"), ("c", "d")))
    assert prompt.prefix() == "Do it:\n\nInput: a\nOutput: b\n\nInput: c\nOutput: d\n\nInput: "
    for one in (prompt, *PROMPTS.values()):
        assert one.fill(text) == f"{one.prefix()}{text}\nOutput:"
