"""Tools of real MCP servers, that the tests start: over standard input and output and HTTP, also ones that die or hang."""

import asyncio
import contextlib
import gzip
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.build import OTHER_DOCUMENT, answers, free_port, wait_for
from tests.tools.user import raw_mcp_server
from toolformer.errors import UserError
from toolformer.jobs import instantiate
from toolformer.jobs.config import compose, validate
from toolformer.tools.base import Result, Tool
from toolformer.tools.runtime import Limits, ToolRuntime
from toolformer.tools.user.mcp import ENDED, Connection, McpServer, McpTool, _list, _result, schemas

SERVER = str(Path(__file__).with_name("mcp_server.py"))
PATIENCE = 300.0  # seconds until a test gives up on a server's start


def stdio(*words: str, **more: Any) -> dict[str, Any]:
    patience = {"start_timeout": PATIENCE, "timeout": PATIENCE}
    return {"command": sys.executable, "args": [SERVER, *words], **patience, **more}


@pytest.fixture(scope="module")
def http() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen([sys.executable, SERVER, str(port)], stderr=subprocess.DEVNULL)

    def is_up() -> bool:
        assert process.poll() is None
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(is_up, PATIENCE)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("by", ["stdio", "http"])
def test_over_standard_input_and_output_and_http(by: str, http: str) -> None:
    server = stdio() if by == "stdio" else {"url": http, "start_timeout": PATIENCE, "timeout": PATIENCE}
    assert {*schemas(McpServer(**server))} == {"add", "get-weather", "refuse", "fragile", "slow", "secret"}
    add = McpTool("add", **server)
    assert isinstance(add, Tool) and add.description.summary == "Add two numbers"
    assert answers(add, "1, 2", "4", "b=3, a=1", "1, x")[:3] == ["3", "5", "4"]
    weather = McpTool("get-weather", name="Weather", **server)
    shown = '{"city": "Seoul", "days": (2, 3), "sky": "blue\\n(so far) → grey"}'
    assert answers(weather, '"Seoul", days=(2, 3)') == [shown]
    assert answers(McpTool("refuse", **server), "x") == ["tool answered with an error"]
    with pytest.raises(UserError, match=r"has no tool 'nope'; it has add, "):
        McpTool("nope", **server)


@pytest.mark.chaos
def test_a_server_that_is_killed_costs_the_call_that_killed_it() -> None:
    """The next call starts it again."""
    tool = McpTool("fragile", **stdio())
    first, killed, second = answers(tool, "1", "13", "2")
    assert killed == "tool server ended"
    assert str(first).startswith("1 is fine, says ") and str(second).startswith("2 is fine, says ")
    assert str(first)[1:] != str(second)[1:], "another process"


@pytest.mark.chaos
@pytest.mark.parametrize("limits", [Limits(), Limits(timeout=2.0)])
def test_a_call_that_hangs_ends_in_time_and_costs_only_itself(limits: Limits) -> None:
    slow = McpTool("slow", **stdio(timeout=PATIENCE if limits.timeout else 2.0))
    assert ToolRuntime(slow).run(["1"], [OTHER_DOCUMENT]) == [Result("1 is fine")]
    (late,) = ToolRuntime(slow, limits).run(["13"], [OTHER_DOCUMENT])
    assert late.fault and late.reason == ("no answer within 2 s a call" if limits.timeout else "timeout")
    add = McpTool("add", **stdio())
    assert ToolRuntime(add, limits).run(["1"], [OTHER_DOCUMENT]) == [Result("2")]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"args": ["-c", "print(1)"], "start_timeout": 20}, "does not answer"),  # sends no message
        ({"args": [SERVER, "stdio", "dies"]}, "its last words: no key for the weather"),
        ({"command": None, "url": "http://127.0.0.1:9/mcp"}, "the MCP server http://127.0.0.1:9/mcp does not answer ("),
        ({"command": "no-such-program-here"}, "no-such-program-here does not answer"),
        ({"env": {"KEY": "$NO_SUCH_VARIABLE"}}, "variable NO_SUCH_VARIABLE is not set"),
        ({"args": ["--key=$NO_SUCH_KEY"]}, "variable NO_SUCH_KEY is not set"),
    ],
)  # fmt: skip
def test_a_server_that_does_not_start_is_named_in_a_line(server: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        schemas(McpServer(**{"command": sys.executable, "start_timeout": PATIENCE, **server}))
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_server_that_did_not_start_is_not_tried_per_call(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    program = f"open({str(starts)!r}, 'a').write('once ')"
    server = Connection(McpServer(command=sys.executable, args=["-c", program], start_timeout=PATIENCE))
    assert [server.call("weather", {}).reason for _ in range(3)] == [ENDED] * 3
    assert starts.read_text() == "once "


@pytest.mark.chaos
def test_a_server_that_hangs_at_its_start_is_ended() -> None:
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(UserError, match="nothing within 1 s"):
        schemas(McpServer(command=sys.executable, args=[SERVER, "stdio", "hangs"], start_timeout=1.0))
    assert set(psutil.Process().children(recursive=True)) <= before


def test_secrets_are_named_and_never_stand_in_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TESTS_KEY", "hunter2")
    monkeypatch.setenv("TESTS_OTHER", "not for the server")
    monkeypatch.setenv("TOOLFORMER_RUNS", str(tmp_path))
    words = f"tool_sources=[{{command: {sys.executable}, args: [{SERVER}, stdio, '', $TESTS_KEY], env: {{TESTS_SECRET: $TESTS_KEY}}, start_timeout: 300}}]"
    config = validate(compose("generate", [words, "tools=[add,secret]"]))
    assert "hunter2" not in str(config)
    tools = instantiate.tools(config)
    assert answers(tools["secret"], "") == ["hunter2 None hunter2"]
    assert answers(tools["add"], "2") == ["3"]
    assert {"get_weather", "slow"} <= set(config.tool), "names are made to fit calls"


RAW = str(Path(__file__).with_name("raw_mcp_server.py"))


def raw(mode: str, timeout: float = 60.0) -> McpTool:
    return McpTool(
        "lookup", command=sys.executable, args=[RAW, mode], start_timeout=PATIENCE, timeout=timeout
    )


def test_an_answer_that_does_not_fit_its_schema_counts(caplog: pytest.LogCaptureFixture) -> None:
    """With a warning, once. The server's standard error is a pipe, which fills no disk."""
    assert answers(raw("plain"), "skiff", "boat") == ["pipe True"] * 2
    assert caplog.text.count("output schema but did not return structured content; the answer counts") == 1


def test_the_text_of_an_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert answers(raw("error"), "skiff") == ["tool answered with an error"]
    assert f"the MCP server {sys.executable}: lookup: API key missing: set GLOSS_KEY" in caplog.text


def test_a_servers_endless_log_is_read_and_forgotten() -> None:
    assert answers(raw("noisy"), "skiff") == ["pipe True"]


def test_a_huge_line_is_not_kept() -> None:
    assert answers(raw("huge", timeout=3.0), "skiff") == ["timeout"]


class Web(BaseHTTPRequestHandler):
    """The raw server over HTTP; its mode is the path, and some paths do not speak the protocol."""

    def do_GET(self) -> None:
        is_sse = self.path == "/sse"
        self.answer(
            200 if is_sse else 405,
            b"event: endpoint\ndata: /messages\n\n",
            "text/event-stream" if is_sse else "text/plain",
        )

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = {"/sse": 405, "/locked": 401, "/moved": 307, "/gone": 404}.get(self.path)
        if status:
            self.answer(status, b'{"detail": "no"}', "application/json")
        elif self.path == "/page":
            self.answer(200, b"<html>Welcome</html>", "text/html")
        elif reply := raw_mcp_server.reply(request, self.path.rpartition("-")[2].strip("/")):
            body = json.dumps(reply).encode()
            is_packed = self.path.startswith("/packed") and request["method"] == "tools/call"
            if self.path.startswith("/events"):
                self.answer(200, b"event: message\ndata: " + body + b"\n\n", "text/event-stream")
            else:
                self.answer(200, gzip.compress(body) if is_packed else body, "application/json", is_packed)
        else:
            self.answer(202, b"", "application/json")

    def answer(self, status: int, body: bytes, kind: str, is_packed: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if is_packed:
            self.send_header("Content-Encoding", "gzip")
        if status == 307:
            self.send_header("Location", "http://127.0.0.1:9/")
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("sse", r"HTTP 405; its transport is SSE, .*Streamable HTTP"), ("locked", r"\(HTTP 401\)"), ("moved", r"\(HTTP 307\)"),
        ("gone", r"\(HTTP 404\)"), ("page", "Unexpected content type: text/html"),
    ],
)  # fmt: skip
def test_what_an_address_answers_is_named(web: str, path: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason) as error:
        schemas(McpServer(url=f"{web}/{path}", start_timeout=PATIENCE))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("path", ["huge", "packed-huge", "events-huge"])
def test_a_huge_body_is_a_failure(web: str, path: str) -> None:
    (text,) = answers(McpTool("lookup", url=f"{web}/{path}", start_timeout=PATIENCE, timeout=60.0), "skiff")
    assert text is not None and text.startswith("tool server")


@pytest.mark.parametrize("path", ["plain", "events-plain"])
def test_a_small_body_is_read(web: str, path: str) -> None:
    (text,) = answers(McpTool("lookup", url=f"{web}/{path}", start_timeout=PATIENCE), "skiff")
    assert text is not None and text.startswith("pipe")


def test_the_server_of_the_page_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "tools.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^`server.py`:\n\n```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "server.py").write_text(code)
    server = {"command": sys.executable, "args": [str(tmp_path / "server.py")], "start_timeout": PATIENCE}
    assert answers(McpTool("tally", **server), "4") == ["||||"]


def answer(*content: Any, structured: Any = None) -> Result:
    from mcp.types import CallToolResult

    return _result(CallToolResult.model_validate({"content": content, "structuredContent": structured}))


def test_the_text_of_an_embedded_resource_counts() -> None:
    resource = {"type": "resource", "resource": {"uri": "gloss://skiff", "text": "a small boat"}}
    found = {"type": "text", "text": "entry found"}
    picture = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    assert answer(resource) == Result("a small boat")
    assert answer(found, resource, picture) == Result("entry found a small boat")
    assert answer(picture) == Result(reason="no text in the answer")


class Listing:
    """A server whose listing of tools has these cursors, page by page."""

    def __init__(self, cursors: list[str | None]) -> None:
        self.cursors = cursors
        self.asked = 0

    async def list_tools(self, cursor: str | None = None) -> Any:
        page = SimpleNamespace(tools=[SimpleNamespace(name=f"tool{self.asked}")])
        page.next_cursor = self.cursors[min(self.asked, len(self.cursors) - 1)]
        self.asked += 1
        return page


@pytest.mark.parametrize(("cursors", "pages"), [([None], 1), ([""], 1), (["0"], 2), (["a", "b", None], 3)])
def test_a_listing_ends_at_an_empty_or_repeated_cursor(cursors: list[str | None], pages: int) -> None:
    server = Listing(cursors)
    tools = asyncio.run(_list(server))  # type: ignore[arg-type]
    assert (server.asked, len(tools)) == (pages, pages)
