"""Python functions as tools; their arguments, of which nothing runs; and what is wrong in one line."""

import asyncio
import datetime
import enum
import itertools
import os
import subprocess
import sys
import tracemalloc
import uuid
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.build import Refused, answers
from toolformer.calls import ApiCall, linearise, parse
from toolformer.cli import main
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.tools.base import Result
from toolformer.tools.runtime import ToolRuntime
from toolformer.tools.user import arguments
from toolformer.tools.user.arguments import ArgumentError, Parameter, bind
from toolformer.tools.user.describe import draft
from toolformer.tools.user.functions import MOST_CHARACTERS, FunctionTool, to_result, tools_of

WEATHER = '''
import asyncio

SEEN = []

async def weather(city: str, day: str = "today") -> dict:
    """The weather in a city."""
    SEEN.append(city)
    for _ in range(100):  # until the others of the batch have begun
        await asyncio.sleep(0.01)
        if len(SEEN) > 1:
            break
    return {"city": city, "day": day, "sky": ["blue"]}
'''

FUNCTIONS = '''
import os, sys
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
    os.chdir("/")
    sys.exit(3)

def nothing(query: str) -> None:
    """Returns nothing."""

def later(number: int):
    """Returns something to wait for."""
    async def made() -> int:
        return number + 1
    return made()

def _private() -> str:
    """Is no tool."""

os.chdir("/")
'''


def test_an_asynchronous_function_takes_calls_in_parallel(tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text(WEATHER)
    tool = ToolRuntime(FunctionTool(f"{tmp_path}/weather.py:weather", name="Weather"))
    inputs = ['"Seoul", "tomorrow"', "Oslo", "city=3, dya=2"]
    first, second, third = tool.run(inputs, [Document("d", "")] * 3)
    assert first.text == '{"city": "Seoul", "day": "tomorrow", "sky": ("blue")}'
    assert second.text == '{"city": "Oslo", "day": "today", "sky": ("blue")}'
    assert third.reason == "unknown argument"

    async def inside() -> list[Result]:
        return tool.run(["Rome"], [Document("d", "")])

    assert asyncio.run(inside())[0].text, "a caller may have an event loop of its own"


def test_a_full_gpu_is_no_fault_of_a_function(tmp_path: Path) -> None:
    (tmp_path / "classify.py").write_text(
        'import torch\n\ndef classify(text: str) -> str:\n    """Run a model."""\n'
        '    raise torch.OutOfMemoryError("CUDA out of memory")\n'
    )
    tool = ToolRuntime(FunctionTool(f"{tmp_path}/classify.py:classify"))
    with pytest.raises(UserError, match="full in the tool's own model, with one call"):
        tool.run(["a", "b"], [Document("d", "")] * 2)


def test_functions(tmp_path: Path) -> None:
    """Whatever they do, the folder is the same afterwards."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    functions = str(tmp_path / "functions.py")
    before = Path.cwd()
    assert answers(FunctionTool(f"{functions}:square"), "3", "-1.5", "x")[:2] == ["9.0", "2.25"]
    root = FunctionTool(f"{functions}:root")
    assert answers(root, "2, digits=4", "-1") == ['{"root": 1.4142}', "tool failed (ValueError)"]
    for name, text, answer in (
        ("leave", "", "tool failed (SystemExit)"), ("nothing", "x", "no answer"), ("later", "1", "2"),
    ):  # fmt: skip
        assert answers(FunctionTool(f"{functions}:{name}"), text) == [answer]
    assert Path.cwd() == before
    assert not {"sqrt", "_private"} & set(tools_of(functions))
    assert tools_of(f"{functions}:root") == {"root": f"{functions}:root"}
    assert answers(FunctionTool("toolformer.tools.calculator:calculate"), "723 / 252") == ["2.87"]
    assert root.description.examples == ('[root(2, digits=1) -> {"root": 1.4}]',)
    instruction, _ = draft("Root", root.description, root.parameters, root.description.examples, "place")
    assert instruction == (
        "Your task is to add calls to a Root API to a piece of text. What the API does: The square root of a number. You "
        'can call the API by writing "[Root(number, digits)]" where "number" is the Number and "digits" is digits behind '
        "the point. Here are some examples of API calls:"
    )
    square = FunctionTool(f"{functions}:square")
    assert square.description.examples == ("[square(3) -> 9.0]",), "one that raises is none"


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        ("textwrap", "", "textwrap: write module:function or file.py:function"),
        ("{file}:sys", "import sys", "there is no function sys in it"),
        ("{file}:f", "def f(*numbers: int): 'Adds.'", "argument numbers has no name in a call"),
        ("{file}:f", "def f(value: int): return 1", "it has no docstring"),
        ("{file}:f", "def f(:", "cannot be imported (SyntaxError"),
        ("{file}:f", "raise GeneratorExit", "cannot be imported (GeneratorExit"),
        ("{file}:f", "import no_such", "cannot be imported (ModuleNotFoundError: No module named 'no_such')"),
    ],
)
def test_what_is_no_tool_is_refused_in_a_line(function: str, code: str, words: str, tmp_path: Path) -> None:
    """`tests/jobs/test_tool_sources.py` has the mistakes of a configuration."""
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(UserError) as error:
        FunctionTool(function.format(file=tmp_path / "mine.py"))
    assert words in str(error.value) and "\n" not in str(error.value)


OBJECT = '''
import subprocess
from pathlib import Path

class StructuredTool:
    def __init__(self, func):
        self.{inner} = func

def tool(function):
    return StructuredTool(function)


@tool
def search(query: str) -> str:
    """Search."""
    return query
'''


@pytest.mark.parametrize("inner", ["func", "fn", "forward"])
@pytest.mark.parametrize("of_file", [True, False])
def test_a_tool_object_of_another_framework_is_named(tmp_path: Path, inner: str, of_file: bool) -> None:
    code = OBJECT.replace("{inner}", inner)
    (tmp_path / "theirs.py").write_text(code + ("\ndel tool\n" if of_file else ""))
    with pytest.raises(
        UserError,
        match=rf"search is a StructuredTool \(of \w+\), not a function; give its function.*search.{inner}\(",
    ):
        tools_of(f"{tmp_path}/theirs.py") if of_file else FunctionTool(f"{tmp_path}/theirs.py:search")


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(9_000_000, np.int8),
        {"rows": np.zeros((3_000, 3_000), np.int8)},
        [0] * 3_000_000,
        "0 " * 9_000_000,
    ],
)
def test_a_large_value_is_cut_before_it_becomes_text(value: Any) -> None:
    """Ten bytes of memory per byte of the value would be the text alone."""
    tracemalloc.start()
    text = to_result(value).text
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert text is not None and text.lstrip('({"rows: ').startswith("0") and len(text) <= 1000
    assert peak < 5_000_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("0.75"), "0.75"), (Fraction(1, 3), "1/3"), (datetime.date(2020, 1, 4), "2020-01-04"), (Colour.RED, "red"),
        (uuid.UUID(int=3), "00000000-0000-0000-0000-000000000003"), (np.int64(6), "6"), (np.float64(0.75), "0.75"),
        (np.float32(1) / 3, "0.33333334"), (np.bool_(True), "true"), (np.str_("seven"), "seven"), (np.array(3), "3"),
        (np.arange(3), "(0, 1, 2)"), (np.ones((2, 1), np.float32), "((1.0), (1.0))"), (torch.tensor([1, 2]), "(1, 2)"),
        ({"mean": np.float32(0.1)}, '{"mean": 0.1}'), (b"caf\xc3\xa9", "café"), (0, "0"), (False, "false"),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_returned_value_becomes(value: Any, text: str) -> None:
    assert to_result(value) == Result(text)


def test_an_endless_generator_is_cut() -> None:
    text = to_result(0 for _ in itertools.count()).text
    assert text is not None and text.startswith("(0, 0, ") and len(text) <= 1000


@pytest.mark.parametrize(
    "value",
    [float("nan"), np.float64("inf"), object(), pandas.DataFrame({"shelf": ["A1"]})],
    ids=["nan", "inf", "object", "frame"],
)
def test_a_returned_value_that_is_not_json(value: Any) -> None:
    assert to_result(value) == Result(reason="result is not JSON")


DOCSTRINGS = '''
def wrapped(city: str) -> str:
    """Tell the weather in a city,
    as far as it is known. It may rain.

    Note:
        Only in Europe.
    """

def short(city: str) -> str:
    """Tell the weather.
    Only in Europe.

    >>> short("Oslo")
    Decimal('1.00')
    >>> short("Rome")
    datetime.date(2020, 1, 4)
    >>> short("Bern")
    <Colour.RED: 'red'>
    >>> short("Kyiv")
    np.float64(0.75)
    >>> short("Riga")
    Fraction(1, 3)
    """

def examples(a: int) -> int:
    """Double a number
    >>> examples(3)
    6
    """
'''


def test_the_first_sentence_of_a_docstring_may_span_lines(tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text(DOCSTRINGS)
    wrapped, short, examples = (
        FunctionTool(f"{tmp_path}/weather.py:{name}").description for name in ("wrapped", "short", "examples")
    )
    assert wrapped.summary == "Tell the weather in a city, as far as it is known"
    assert (short.summary, examples.summary) == ("Tell the weather", "Double a number")
    results = [example.partition("-> ")[2].rstrip("]") for example in short.examples]
    assert results == ["1.00", "2020-01-04", "red", "0.75", "1/3"], "as the tool would answer"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@given(json_values | st.sets(st.integers()) | st.dates() | st.text(alphabet="[]->\n\ud800 a", max_size=3000))
def test_any_returned_value_fits_into_a_text(value: Any) -> None:
    result = to_result(value)
    if result.text is None:
        assert result.reason in ("no answer", "empty result", "result is not JSON")
        return
    assert result.text and len(result.text) <= MOST_CHARACTERS
    result.text.encode("utf-8")
    call = ApiCall("Tool", "x").with_result(result.text)
    assert call.result == result.text, "it is clean already"
    assert parse(linearise(call)) == call


def test_a_tool_by_hand_takes_its_arguments_as_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = 'def trip(city: str, days: int = 1, name: str = "nobody"):\n    "A trip."\n    return f"{name}: {days} in {city}"'
    (tmp_path / "trips.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for words, answer in {
        ("New York", "days=2", "name=Ada"): "Ada: 2 in New York",  # a key is called name too
        ("city=007",): "nobody: 1 in 007",
    }.items():
        assert main(["tool", "trip", *words, "tool_sources=[trips.py]"]) == 0
        assert capsys.readouterr().out == f"{answer}\n"
    assert main(["tool", "trip", "Seoul", "day=2", "tool_sources=[trips.py]"]) == 2
    assert "did you mean days?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "answer"),
    [(["-5+3"], "-2"), (["--5+3"], "8"), (["--", "-5+3"], "-2"), (["-5+3", "seed=1"], "-2")],
)
def test_an_input_may_begin_with_a_minus(
    words: list[str],
    answer: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["tool", "calculator", *words]) == 0
    assert capsys.readouterr().out == f"{answer}\n"


def test_an_input_after_two_dashes_is_no_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text('def echo(text: str) -> str:\n    "Echo."\n    return text')
    source = f"tool_sources=[{tmp_path}/echo.py]"
    for text in ("seed=5", "--help", "tool.x=1"):
        assert main(["tool", "echo", source, "--", text]) == 0
        assert capsys.readouterr().out == f"{text}\n"


def test_a_name_beyond_a_to_z_is_refused(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "size.py").write_text('def größe(n: int) -> int:\n    "Tell the size."\n    return n')
    message = refused("tool", "größe", "1", f"tool_sources=[{tmp_path}/size.py]")
    assert "has letters (a-z), digits and underscores; rename the function" in message


def test_a_console_without_a_letter_shows_its_escape(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text('def echo(text: str) -> str:\n    "Echo."\n    return "caf\\u00e9"')
    command = [sys.executable, "-m", "toolformer.cli", "tool", "echo", "x", "tool_sources=[echo.py]"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "caf\\xe9\n", "")


def test_a_deleted_working_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    command = f"cd gone && rmdir ../gone && {sys.executable} -m toolformer.cli tool calculator 1+1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert done.stderr.startswith("toolformer: the working directory has been deleted; cd to an existing one")


def test_a_working_directory_that_is_not_utf_8_is_one_line(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    command = [sys.executable, "-m", "toolformer.cli", "tool", "calculator", "1+1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert done.stderr.startswith("toolformer: the working directory's name is not UTF-8; rename the folder")


STAYS = '''
import atexit
import multiprocessing
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

def stays(number: int) -> int:
    """Leaves threads and processes behind that do not end."""
    subprocess.Popen(["sleep", "10000"])
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(10_000,)).start()
    ProcessPoolExecutor(1, multiprocessing.get_context("fork")).submit(time.sleep, 10_000)
    Thread(target=time.sleep, args=(10_000,), daemon=False).start()
    queue = multiprocessing.get_context("fork").Queue()
    queue.put(b"x" * 10_000_000)
    atexit.register(time.sleep, 10_000)
    ThreadPoolExecutor().submit(time.sleep, 10_000)
    return number
'''


def test_a_tools_threads_and_processes_keep_no_command_alive(
    tmp_path: Path,
) -> None:
    (tmp_path / "tools.py").write_text(STAYS, encoding="utf-8")
    words = ["tool", "stays", "3", "tool_sources=[tools.py]"]
    command = [sys.executable, "-m", "toolformer.cli", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("3\n", 0)


def parameters(**types: Any) -> list[Parameter]:
    """An argument of each type; those whose name ends with an underscore may be left out."""
    return [Parameter(name, TypeAdapter(one), not name.endswith("_")) for name, one in types.items()]


@pytest.mark.parametrize(
    ("text", "types", "expected"),
    [
        (" -3 ", {"value": int}, {"value": -3}), ("value=3", {"value": int}, {"value": 3}),
        *((text, {"query": str}, {"query": text}) for text in ("a, b (c) = d", "1, 2", "007", "none", "x = 5")),
        ("'it\\'s', 2", {"city": str, "days": int}, {"city": "it's", "days": 2}),
        ('"Seoul", day="today"', {"city": str, "day": str}, {"city": "Seoul", "day": "today"}),
        ("Seoul", {"city": str, "day_": str}, {"city": "Seoul"}),
        ("(1, 2, 3), true", {"values": list[int], "up": bool}, {"values": [1, 2, 3], "up": True}),
        ('[[1], []], {"a": null}', {"rows": list[list[int]], "more": dict[str, Any]},
         {"rows": [[1], []], "more": {"a": None}}),
        ("2023-01-30", {"day": datetime.date}, {"day": datetime.date(2023, 1, 30)}),
        ('"\\ud83d\\ude42"', {"text": str}, {"text": "🙂"}),
        ('"a\\nb", "\\d"', {"one": str, "two": str}, {"one": "a\nb", "two": "\\d"}),
        ("", {}, {}), ("", {"day_": str}, {}),
    ],
)  # fmt: skip
def test_what_is_read(text: str, types: dict[str, Any], expected: dict[str, Any]) -> None:
    assert bind(text, parameters(**types)) == expected


@pytest.mark.parametrize(
    ("text", "types", "reason"),
    [
        ("", {"value": int}, "argument value is missing"),
        ("1.5", {"value": int}, "argument value: input should be a valid integer, got a number with a fractional part"),
        ("3", {}, "takes no input"),
        ('"a", "b", "c"', {"one": str, "two": str}, "too many arguments"),
        ('"a", three=1', {"one": str, "two": str}, "unknown argument"),
        ('"a", one="b"', {"one": str, "two": str}, "argument one is given twice"),
        ('one="a", "b"', {"one": str, "two": str}, "arguments cannot be read"),
        ("Seoul, today", {"city": str, "day": str}, "argument day is missing"),
        ('"Seoul", today', {"city": str, "day_": str}, "arguments cannot be read"),
        ("cold", {"kind": Literal["hot"]}, "argument kind: input should be 'hot'"),
        ("[" * 10 + "]" * 10, {"value": list}, "arguments too deep"),
        ("9" * (arguments.MOST_CHARACTERS + 1), {"value": int}, "arguments too long"),
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
