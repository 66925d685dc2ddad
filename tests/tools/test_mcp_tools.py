"""Tools of real MCP servers, that the tests start: over standard input and output and HTTP, also ones that die or hang."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer import build
from toolformer.cli import main
from toolformer.config import compose, validate
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.tools import mcp_connection, mcp_tools
from toolformer.tools.base import Result, Tool
from toolformer.tools.mcp_connection import McpServer, connection
from toolformer.tools.mcp_tools import McpTool, versions
from toolformer.tools.runtime import Limits, ToolRuntime

SERVER = str(Path(__file__).with_name("mcp_server.py"))
PATIENCE = 300.0  # seconds until a test gives up on a server's start


def stdio(*words: str, **more: Any) -> dict[str, Any]:
    return {
        "command": sys.executable,
        "args": [SERVER, *words],
        "start_timeout": PATIENCE,
        "timeout": PATIENCE,
        **more,
    }


@pytest.fixture(autouse=True, scope="module")
def no_server_is_left() -> Iterator[None]:
    yield
    for made in mcp_connection.OPEN:
        made.close()


@pytest.fixture(scope="module")
def http() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, SERVER, str(port)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def answers(tool: Tool, *inputs: str) -> list[str | None]:
    documents = [Document("d", "a text")] * len(inputs)
    return [result.text or result.reason for result in tool.run(inputs, documents)]


def check_all(server: dict[str, Any]) -> None:
    assert set(versions(McpServer.of(**server))) == {
        "add",
        "get-weather",
        "refuse",
        "fragile",
        "slow",
        "secret",
    }
    add = McpTool("add", **server)
    assert isinstance(add, Tool) and add.description.summary == "Add two numbers"
    assert answers(add, "1, 2", "4", "b=3, a=1", "one") == [
        "3",
        "5",
        "4",
        "argument a: input should be a valid integer, unable to parse string as an integer",
    ]
    weather = McpTool("get-weather", name="Weather", **server)
    assert answers(weather, "Seoul", '"Seoul", days=(2, 3)') == [
        '{"city": "Seoul", "days": (1), "sky": "blue\\n(so far) → grey"}',
        '{"city": "Seoul", "days": (2, 3), "sky": "blue\\n(so far) → grey"}',
    ]
    assert answers(McpTool("refuse", **server), "x") == ["tool answered with an error"]
    with pytest.raises(UserError, match=r"has no tool 'nope'; it has add, "):
        McpTool("nope", **server)


def test_over_standard_input_and_output() -> None:
    check_all(stdio())


def test_over_http(http: str) -> None:
    check_all({"url": http, "start_timeout": PATIENCE, "timeout": PATIENCE})


def test_a_server_that_dies_costs_the_call_that_killed_it() -> None:
    tool = McpTool("fragile", **stdio())
    found = answers(tool, "1", "13", "2", "3")
    assert found[1] == "tool server ended"
    assert [str(one).partition(" ")[0] for one in found] == ["1", "tool", "2", "3"]
    assert str(answers(tool, "4")[0]).startswith("4 is fine"), "it is started again"
    assert answers(tool, "13") == ["tool server ended"]
    here = connection(tool.server)
    assert here._left.wait(PATIENCE) and here._closing is None, "a start that fails next is not waited for"


def test_a_server_that_hangs_costs_a_timeout() -> None:
    tool = McpTool("slow", **stdio(timeout=2.0))
    (late,) = tool.run(["13"], [Document("d", "a text")])
    assert (late.reason, late.fault) == ("timeout", True)
    assert connection(tool.server)._task is None, "it is not asked again as it is"


def test_a_call_that_hangs_ends_in_the_tools_time_and_costs_only_itself() -> None:
    """Though the server would have more; it is started again for the next call, and for another of its tools."""
    slow, add = (McpTool(name, **stdio()) for name in ("slow", "add"))
    late = Result(reason="no answer within 5 s a call", fault=True, final=True)
    asked = ToolRuntime(slow, Limits(timeout=5.0)).run(["1", "13", "2"], [Document("d", "a text")] * 3)
    assert asked == [Result("1 is fine"), late, Result("2 is fine")]
    assert connection(slow.server)._task is None, "it is not asked again as it is"
    assert ToolRuntime(add, Limits(timeout=5.0)).run(["1"], [Document("d", "a text")]) == [Result("2")]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (
            {"command": sys.executable, "args": [SERVER, "stdio", "dies"]},
            "its last words: no key for the weather",
        ),
        (
            {"command": sys.executable, "args": [SERVER, "stdio", "hangs"], "start_timeout": 1.0},
            "does not answer (nothing within 1 s)",
        ),
        ({"command": sys.executable, "args": ["-c", "print('hello')"]}, "does not answer ("),
        ({"url": "http://127.0.0.1:9/mcp"}, "the MCP server http://127.0.0.1:9/mcp does not answer ("),
        ({"command": "no-such-program-here"}, "there is no command 'no-such-program-here'"),
        (
            {"command": sys.executable, "env": {"KEY": "$NO_SUCH_VARIABLE"}},
            "variable NO_SUCH_VARIABLE is not set",
        ),
    ],
)
def test_a_server_that_does_not_start_is_named_in_a_line(server: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        versions(McpServer.of(**{"start_timeout": PATIENCE, **server}))
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_server_that_hangs_at_its_start_is_ended() -> None:
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(UserError, match="nothing within 1 s"):
        versions(McpServer.of(command=sys.executable, args=[SERVER, "stdio", "hangs"], start_timeout=1.0))
    assert set(psutil.Process().children(recursive=True)) <= before


def test_secrets_are_named_and_never_stand_in_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TESTS_KEY", "hunter2")
    monkeypatch.setenv("TESTS_OTHER", "not for the server")
    monkeypatch.setenv("TOOLFORMER_RUNS", str(tmp_path))
    words = f"tool_sources=[{{command: {sys.executable}, args: [{SERVER}], env: {{TESTS_SECRET: $TESTS_KEY}}, start_timeout: 300}}]"
    config = validate(compose("generate", [words, "tools=[add,secret]"]))
    assert "hunter2" not in str(config)
    tools = build.tools(config)
    assert answers(tools["secret"], "") == ["hunter2 None"]
    assert answers(tools["add"], "2") == ["3"]
    assert {"get_weather", "slow"} <= set(config.tool), "names are made to fit calls"


def test_from_the_command_line(
    http: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("TOOLFORMER_RUNS", str(tmp_path))
    assert main(["tool", "get_weather", '"Oslo", days=(1, 2)', f"tool_sources=[{http}]"]) == 0
    assert capsys.readouterr().out == '{"city": "Oslo", "days": (1, 2), "sky": "blue\\n(so far) → grey"}\n'
    assert main(["tool", "add", "1", "tool_sources=[{command: no-such-program-here}]"]) == 2
    assert "tool_sources[0]: there is no command 'no-such-program-here'" in capsys.readouterr().err


schemas = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["string", "integer", "object"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["type", "anyOf", "properties", "required", "description", "a", "b"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["type", "properties", "required"]), schemas, max_size=3))
def test_any_schema_of_a_server_is_understood_somehow(schema: dict[str, Any]) -> None:
    for one in mcp_tools._parameters(schema):
        assert one.name in mcp_tools._properties(schema)


def test_a_server_that_prints_what_is_no_message_is_told_in_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOOLFORMER_RUNS", str(tmp_path))
    source = f"{{command: {sys.executable}, args: [-c, 'print(1)'], start_timeout: 20}}"
    assert main(["tool", "big", "3", f"tool_sources=[{source}]"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("toolformer: tool_sources[0]: the MCP server ") and "does not answer" in line
