"""No key is shown: in addresses, in settings, on command lines, or where a variable's name belongs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from toolformer.credentials import is_variable, shown_address, with_masks, without_credentials
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.provenance import masked
from toolformer.tools.base import Result, run_safely
from toolformer.tools.endpoint import EndpointGenerator
from toolformer.tools.functions import FunctionTool

SECRET = "hunter2swordfish"
ADDRESS = f"http://me:{SECRET}@127.0.0.1:9/v1/completions?api_key={SECRET}&api-version=2#{SECRET}"


def test_an_address_is_shown_without_what_may_be_a_key() -> None:
    assert shown_address(ADDRESS) == "http://127.0.0.1:9/v1/completions"
    assert shown_address("http://h/a") == "http://h/a" and shown_address(f"http://h?{SECRET}") == "http://h"
    assert without_credentials(f"401 for '{ADDRESS}'") == (
        "401 for 'http://127.0.0.1:9/v1/completions?api_key=***&api-version=***#***'"
    )
    assert shown_address(f"http://me:p@{SECRET}@h/x?y") == "http://h/x"
    assert without_credentials(f"no http://me:p@{SECRET}@h/x@y here") == "no http://h/x@y here"
    assert with_masks(f"http://me:p@{SECRET}@h/x#token={SECRET}") == "http://***@h/x#***"
    assert without_credentials(f"Max retries exceeded with url: /w?q=x&appid={SECRET} (Caused by x)") == (
        "Max retries exceeded with url: /w?q=***&appid=*** (Caused by x)"
    )
    assert without_credentials(f"see https://h/?{SECRET} (why?)") == "see https://h/?*** (why?)"


def test_settings_are_masked() -> None:
    hexadecimal = "0123456789abcdef" * 2
    config = {
        "url": f"http://h/mcp?api_key={SECRET}",
        "args": ["server.py", "--token", SECRET, "--api-key", "5", "--port", "80", f"--password={SECRET}"],
        "valves": {"owm": hexadecimal, "unit": "C", "key": SECRET, "days": 3, "named": "$OWM"},
        "revision": hexadecimal,
        "overrides": [
            f"tool_sources=[{{command: x, args: [--token, {SECRET}], valves: {{owm: {hexadecimal}}}}}]"
        ],
    }
    assert masked(config) == {
        "url": "http://h/mcp?api_key=***",
        "args": ["server.py", "--token", "***", "--api-key", "***", "--port", "80", "--password=***"],
        "valves": {"owm": "***", "unit": "C", "key": "***", "days": 3, "named": "$OWM"},
        "revision": hexadecimal,
        "overrides": ["tool_sources=[{command: x, args: [--token, ***], valves: {owm: ***}}]"],
    }


@pytest.mark.parametrize("key", ["AbC0123deadbeef", "0" * 8, "sk_x", "hf_x", "DEADBEEF01234567", "a b", "é"])
def test_a_key_is_no_variable(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_variable(key)
    with pytest.raises(ValueError, match="must be the name of an environment variable") as error:
        EndpointGenerator("http://127.0.0.1:9/v1", "m", key_variable=key)
    assert key not in str(error.value)


def test_a_variable_that_is_there_may_have_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "MY_KEY_2024", "key2", "Azure_Key_20240501"[:14]):
        assert is_variable(name)
    monkeypatch.setenv("AbC0123deadbeef", "x")
    assert is_variable("AbC0123deadbeef")


def test_the_query_of_an_endpoint_is_in_no_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ask = EndpointGenerator(f"http://127.0.0.1:9/v1?api_key={SECRET}", "m", key_variable="MY_KEY", tries=1)
    with caplog.at_level(logging.DEBUG):
        (answer,) = ask(["x"], 1)
    monkeypatch.setenv("MY_KEY", "a b")
    with pytest.raises(UserError, match="key of http://127.0.0.1:9/v1: ") as error:
        ask(["x"], 1)
    assert not any(SECRET in text for text in (repr(answer), caplog.text, str(error.value)))


TOOL = """
def weather(city: str) -> str:
    \"\"\"Tell the weather.\"\"\"
    raise ValueError("401 Client Error for url: https://me:{0}@127.0.0.1/w?q=x&appid={0}")
"""


class Broken:
    """A tool that raises, against its promise, what a library for HTTP says."""

    name = "Broken"

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        raise ValueError(f"401 Client Error for url: https://127.0.0.1/w?appid={SECRET}")


def test_what_a_tool_raises_is_logged_without_its_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "weather.py").write_text(TOOL.format(SECRET))
    for tool in (FunctionTool(f"{tmp_path / 'weather.py'}:weather"), Broken()):
        (found,) = run_safely(tool, ["'x'"], [Document("d", "a text")])
        assert found.reason == "tool failed (ValueError)"
    assert "401 Client Error" in caplog.text and SECRET not in caplog.text
    (tmp_path / "ends.py").write_text(f"raise ValueError('https://h/?key={SECRET}')")
    with pytest.raises(UserError, match="cannot be imported") as error:
        FunctionTool(f"{tmp_path / 'ends.py'}:weather")
    assert SECRET not in str(error.value)
