"""No key is shown: in addresses, in settings, on command lines, or where a variable's name belongs."""

from __future__ import annotations

import logging

import pytest

from toolformer.credentials import is_variable, shown_address, without_credentials
from toolformer.errors import UserError
from toolformer.provenance import masked
from toolformer.tools.endpoint import EndpointGenerator

SECRET = "hunter2swordfish"
ADDRESS = f"http://me:{SECRET}@127.0.0.1:9/v1/completions?api_key={SECRET}&api-version=2#{SECRET}"


def test_an_address_is_shown_without_what_may_be_a_key() -> None:
    assert shown_address(ADDRESS) == "http://127.0.0.1:9/v1/completions"
    assert shown_address("http://h/a") == "http://h/a" and shown_address(f"http://h?{SECRET}") == "http://h"
    assert without_credentials(f"401 for '{ADDRESS}'") == (
        f"401 for 'http://127.0.0.1:9/v1/completions?api_key=***&api-version=***#{SECRET}'"
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
