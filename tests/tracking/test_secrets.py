"""What holds a secret reaches no store."""

from __future__ import annotations

import json

import pytest

from tests.tracking.conftest import run
from toolformer.descriptions import command_of, describe
from toolformer.provenance import is_secret, masked
from toolformer.tracking import Tracker

SECRET = "hunter2-correct-horse"


@pytest.mark.parametrize(
    "key",
    [
        "api_key",
        "apiKey",
        "OPENAI_API_KEY",
        "token",
        "hf_token",
        "auth_token",
        "password",
        "db_password",
        "secret",
    ]
    + ["client_secret", "credentials", "private-key", "Authorization", "tool.qa.api_key", "access_tokens"],
)
def test_keys_that_hold_secrets(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "max_new_tokens",
        "pad_token",
        "eos_token",
        "tokenizer",
        "token_position",
        "max_call_tokens",
        "keyboard",
        "sort_key",
    ]
    + ["key_value_cache", "monkey", "cache_key"],
)
def test_keys_that_do_not(key: str) -> None:
    assert masked({key: 40}) == {key: 40}


def test_secrets_reach_neither_the_database_nor_the_artifacts(store: Tracker) -> None:
    config = {
        "qa": {"api_key": SECRET, "api_key_env": "NAME", "max_new_tokens": 40, "retries": 3},
        "credentials": {"user": "u", "value": SECRET},
        "passwords": 1,
        "password": 1234,
        "keys": [SECRET],
        "uri": f"https://me:{SECRET}@example.org/x",
        "overrides": [f"qa.api_key={SECRET}", "seed=1", f"+a.token={SECRET}"],
        "bare": "sk-abcdefghijklmnopqrstuv",
        "unset_token": None,
    }
    with run(store, "secret", config=config, tags={"endpoint": f"http://u:{SECRET}@h/"}) as active:
        active.tag("their_password", SECRET)
    found = store.get(active.run_id)
    assert found.params["qa.api_key"] == "***" and found.params["qa.max_new_tokens"] == "40"
    assert found.params["password"] == "***" and found.params["unset_token"] == "null"
    assert found.params["uri"] == "https://***@example.org/x"
    assert json.loads(found.params["overrides"]) == ["qa.api_key=***", "seed=1", "+a.token=***"]
    stored = b"".join(path.read_bytes() for path in store.root.rglob("*") if path.is_file())
    assert SECRET.encode() not in stored and b"sk-abcdefghijkl" not in stored


def test_secrets_reach_no_name_and_no_description(store: Tracker) -> None:
    words = ["seed=0,1", f"tracking.uri=http://me:{SECRET}@host", f"endpoint.api_key={SECRET}"]
    words += [f"+tool.x={{api_key: {SECRET}, a: 1}}", f"++tool.y={{'token':'{SECRET} {SECRET}',b:2}}"]
    command = command_of("evaluate", words, "-m")
    assert SECRET not in command and "a: 1}" in command and "seed=0,1" in command
    name = " ".join(words[:3])
    parent = store.get(store.parent_run("secret", f"{name} {'x' * 9000}", description=describe(command, {})))
    assert len(parent.name) <= 250 and parent.name.startswith("seed=0,1 tracking.uri=http://***@host")
    with store.run(
        stage="named", name=name, fingerprint="f", config={}, description=f"```\n{name}\n```"
    ) as active:
        pass
    stored = b"".join(path.read_bytes() for path in store.root.rglob("*") if path.is_file())
    assert SECRET.encode() not in stored
    assert store.get(active.run_id).tags["mlflow.note.content"].startswith("```\nseed=0,1")
