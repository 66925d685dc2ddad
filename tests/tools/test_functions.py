"""Python functions and Open WebUI classes as tools, and what is wrong with them in one line."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer.calls import ApiCall, linearise, parse
from toolformer.errors import UserError
from toolformer.tools import calculator
from toolformer.tools.base import Result, Tool
from toolformer.tools.describe import Description, check_example, draft
from toolformer.tools.functions import MOST_CHARACTERS, FunctionTool, show, source_file, tools_of

DRAGON = '''
"""
title: Dragons
"""
import asyncio
from typing import Optional

from pydantic import BaseModel

SEEN = []


class Tools:
    class Valves(BaseModel):
        unit: str = ""
        key: str = ""

    def __init__(self):
        self.valves = self.Valves()

    def dragon_fire(self, value: int, __event_emitter__: Optional[object] = None) -> str:
        """
        Tell how hot so many dragons are together.

        Args:
            value: How many dragons there are.
            __event_emitter__: Hears what goes on.

        Returns:
            A few words.
        """
        if __event_emitter__:
            __event_emitter__({"type": "status", "data": {"description": f"counting {value}", "done": False}})
        return f"dragon fire {value * value}{self.valves.unit}"

    async def weather(self, city: str, day: str = "today", *, __event_emitter__=None, __user__: dict = {}) -> dict:
        """The weather in a city.

        :param city: the city
        """
        await __event_emitter__({"type": "status", "data": {"description": "looking out"}})
        SEEN.append(city)
        for _ in range(100):  # until the others of the batch have begun
            await asyncio.sleep(0.01)
            if len(SEEN) > 1:
                break
        return {"city": city, "day": day, "sky": ["blue"]}

    def untyped(self, value) -> str:
        """Has no hint."""

    def silent(self, value: int) -> str:
        return "x"

    def _helper(self):
        """Is no tool."""
'''

FUNCTIONS = '''
import sys
from math import sqrt

def square(number: float) -> float:
    """Multiply a number with itself.

    >>> square(3)
    9.0
    >>> square([1, 2])
    Traceback (most recent call last):
    TypeError
    """
    return number * number

def root(number: float, digits: int = 2) -> dict[str, float]:
    """The square root of a number.

    Args:
        number: the Number
        digits (int): digits behind the point

    >>> root(2, digits=1)
    {'root': 1.4}
    """
    return {"root": round(sqrt(number), digits)}

def leave() -> str:
    """Ends the program."""
    sys.exit(3)

def nothing(query: str) -> None:
    """Returns nothing."""

def later(number: int):
    """Returns something to wait for."""
    async def made() -> int:
        return number + 1
    return made()

def many(*numbers: int) -> int:
    """Takes any number of numbers."""

def odd(number: "Nonsense") -> int:
    """Has a hint that means nothing."""

def strange(stream: type(sys.stdout)) -> int:
    """Has a hint that no text can become."""

def hidden(number: int, __request__) -> int:
    """Takes what only Open WebUI has."""

def _private() -> str:
    """Is no tool."""
'''


@pytest.fixture
def dragons(tmp_path: Path) -> str:
    (tmp_path / "dragons.py").write_text(DRAGON, encoding="utf-8")
    return str(tmp_path / "dragons.py")


@pytest.fixture
def functions(tmp_path: Path) -> str:
    (tmp_path / "functions.py").write_text(FUNCTIONS, encoding="utf-8")
    return str(tmp_path / "functions.py")


def answers(tool: Tool, *inputs: str) -> list[str | None]:
    return [result.text or result.reason for result in tool.run(inputs, [])]


def test_the_walkthroughs_tool(dragons: str, caplog: pytest.LogCaptureFixture) -> None:
    assert set(tools_of(dragons)) == {"dragon_fire", "weather", "untyped", "silent"}
    tool = FunctionTool(tools_of(dragons)["dragon_fire"])
    assert isinstance(tool, Tool) and tool.name == "dragon_fire"
    with caplog.at_level(logging.INFO, "toolformer"):
        assert answers(tool, "343", "value=2") == ["dragon fire 117649", "dragon fire 4"]
    assert "dragon_fire: counting 343" in caplog.messages
    assert tool.description == Description(
        "Tell how hot so many dragons are together", (("value", "How many dragons there are"),)
    )


def test_an_asynchronous_method_answers_side_by_side(dragons: str, caplog: pytest.LogCaptureFixture) -> None:
    tool = FunctionTool(tools_of(dragons)["weather"], name="Weather")
    with caplog.at_level(logging.INFO, "toolformer"):
        first, second, third = tool.run(['"Seoul", "tomorrow"', "Oslo", "city=3, dya=2"], [])
    assert first.text == '{"city": "Seoul", "day": "tomorrow", "sky": ("blue")}'
    assert second.text == '{"city": "Oslo", "day": "today", "sky": ("blue")}'
    assert third.reason == "unknown argument"
    assert caplog.messages.count("Weather: looking out") == 2

    async def inside() -> list[Result]:
        return tool.run(["Rome"], [])

    assert asyncio.run(inside())[0].text, "a caller may have an event loop of its own"


def test_valves_come_from_configuration_and_the_environment(
    dragons: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tools_of(dragons)["dragon_fire"]
    monkeypatch.setenv("DRAGON_UNIT", "C")
    assert answers(FunctionTool(place, valves={"unit": " °$DRAGON_UNIT"}), "2") == ["dragon fire 4 °C"]
    with pytest.raises(UserError, match="the environment variable NO_SUCH_KEY is not set"):
        FunctionTool(place, valves={"key": "$NO_SUCH_KEY"})
    with pytest.raises(UserError, match=r"Tools cannot be made \(unit: "):
        FunctionTool(place, valves={"unit": {"a": 1}})


STRICT = '''
from pydantic import BaseModel


class Tools:
    class Valves(BaseModel):
        limit: int = 3

    def halve(self, number: float) -> float:
        """Half of a number.

        :param number: any
        """
        return number / 2
'''


def test_a_secret_that_does_not_fit_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strict.py").write_text(STRICT, encoding="utf-8")
    monkeypatch.setenv("TESTS_KEY", "hunter2")
    place = tools_of(str(tmp_path / "strict.py"))["halve"]
    with pytest.raises(UserError, match="limit: Input should be a valid integer") as error:
        FunctionTool(place, valves={"limit": "$TESTS_KEY"})
    assert "hunter2" not in str(error.value)


def test_faults_are_faults(functions: str) -> None:
    """So that they may be tried again, are counted, and are kept by no cache; wrong arguments are no faults."""
    (failed,) = FunctionTool(f"{functions}:root").run(["-1"], [])
    (wrong,) = FunctionTool(f"{functions}:root").run(["x, y, z"], [])
    (left,) = FunctionTool(f"{functions}:leave").run([""], [])
    assert (failed.fault, wrong.fault, left.fault) == (True, False, True)


def test_functions(functions: str) -> None:
    assert answers(FunctionTool(f"{functions}:square"), "3", "-1.5", "x")[:2] == ["9.0", "2.25"]
    assert answers(FunctionTool(f"{functions}:root"), "2", "2, digits=4", "-1") == [
        '{"root": 1.41}',
        '{"root": 1.4142}',
        "tool failed (ValueError)",
    ]
    assert answers(FunctionTool(f"{functions}:leave"), "") == ["tool failed (SystemExit)"]
    assert answers(FunctionTool(f"{functions}:nothing"), "x") == ["no answer"]
    assert answers(FunctionTool(f"{functions}:later"), "1") == ["2"]
    assert "sqrt" not in tools_of(functions) and "_private" not in tools_of(functions)
    assert tools_of(f"{functions}:root") == {"root": f"{functions}:root"}


def test_a_function_by_module(functions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers(FunctionTool("toolformer.tools.calculator:calculate"), "723 / 252") == ["2.87"]
    assert source_file("toolformer.tools.calculator:calculate") == Path(calculator.__file__)
    monkeypatch.chdir(Path(functions).parent)
    (Path(functions).parent / "only_in_this_folder.py").write_text(FUNCTIONS, encoding="utf-8")
    assert answers(FunctionTool("only_in_this_folder:square"), "2") == ["4.0"]
    assert source_file("only_in_this_folder:square") == Path("only_in_this_folder.py")
    assert source_file(f"{functions}:square") == Path(functions)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("no_such_module_at_all:f", "there is no module no_such_module_at_all; name one, or a file"),
        ("/no/such/tools.py:f", "there is no file /no/such/tools.py"),
        ("textwrap:nope", "textwrap:nope: there is no nope in it"),
        ("textwrap", "textwrap: write module:function or file.py:function"),
        ("{functions}:sys", "sys is no function"),
        ("{functions}:many", "argument numbers has no name in a call"),
        ("{functions}:odd", "its type hints cannot be read (NameError"),
        ("{functions}:strange", "argument stream has a type that no text can be converted to"),
        ("{functions}:hidden", "it takes __request__, which only Open WebUI has"),
        ("{dragons}:Tools.untyped", "argument value has no type hint; write for example value: str"),
        ("{dragons}:Tools.silent", "it has no docstring"),
        ("{broken}:f", "cannot be imported (SyntaxError"),
        ("{missing}:f", "cannot be imported (ModuleNotFoundError: No module named 'no_such_dependency')"),
    ],
)
def test_what_is_no_tool_is_refused_in_a_line(
    function: str, words: str, functions: str, dragons: str, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "missing.py").write_text("import no_such_dependency\n")
    places = {name: str(tmp_path / f"{name}.py") for name in ("functions", "dragons", "broken", "missing")}
    with pytest.raises(UserError) as error:
        FunctionTool(function.format(**places))
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_file_without_tools_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(UserError, match="no class Tools with public methods, and no public function"):
        tools_of(str(tmp_path / "empty.py"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@given(
    json_values
    | st.sets(st.integers())
    | st.dates()
    | st.binary(max_size=9)
    | st.text(alphabet="[]->\n\ud800 a", max_size=3000)
)
def test_any_returned_value_fits_into_a_text(value: Any) -> None:
    result = show(value)
    if result.text is None:
        assert result.reason in ("no answer", "empty result", "result is not JSON")
        return
    assert result.text and len(result.text) <= MOST_CHARACTERS
    result.text.encode("utf-8")
    call = ApiCall("Tool", "x").with_result(result.text)
    assert call.result == result.text, "it is clean already"
    assert parse(linearise(call)) == call


def test_a_prompt_is_drafted_from_the_docstring_and_examples(functions: str, dragons: str) -> None:
    root = FunctionTool(f"{functions}:root")
    assert root.description.examples == ('[root(2, digits=1) -> {"root": 1.4}]',)
    instruction, demonstrations = draft("Root", root.description, root.description.examples, "place")
    assert instruction == (
        "Your task is to add calls to a Root API to a piece of text. What the API does: The square root of a number. You "
        'can call the API by writing "[Root(number, digits)]" where "number" is the Number and "digits" is digits behind '
        "the point. Here are some examples of API calls:"
    )
    assert demonstrations == [
        (
            'The square root of a number: 2, digits=1 gives {"root": 1.4}.',
            'The square root of a number: 2, digits=1 gives [Root(2, digits=1)] {"root": 1.4}.',
        )
    ]
    square = FunctionTool(f"{functions}:square")
    assert square.description.examples == ("[square(3) -> 9.0]",), "one that raises is none"
    fire = FunctionTool(tools_of(dragons)["dragon_fire"])
    (pair,) = draft("dragon_fire", fire.description, ["dragon_fire(343) -> dragon fire 117649"], "place")[1]
    assert pair[1].endswith("343 gives [dragon_fire(343)] dragon fire 117649.")


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ("343", "tool.x.example is '343' (no tool name"),
        ("dragon_fire(343)", "write its result behind it"),
        ("dragon_fire(much) -> x", "argument value: input should be a valid integer"),
    ],
)
def test_an_example_that_the_tool_would_refuse_is_refused(example: str, words: str, dragons: str) -> None:
    tool = FunctionTool(tools_of(dragons)["dragon_fire"])
    with pytest.raises(UserError) as error:
        check_example(example, tool.parameters, "tool.x.example")
    assert words in str(error.value)
