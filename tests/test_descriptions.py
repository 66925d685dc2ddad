"""What runs are called, and how MLflow's pages describe them."""

from __future__ import annotations

import datetime
import shlex
from pathlib import Path

import pytest

from toolformer.descriptions import command_of, describe, model_name
from toolformer.tracking import Run


def a_run(name: str) -> Run:
    moment = datetime.datetime.now(datetime.UTC)
    return Run("a" * 32, name, "FINISHED", moment, tags={}, params={}, metrics={}, artifact_uri="")


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("gpt2", "gpt2"),
        ("EleutherAI/gpt-j-6b", "EleutherAI/gpt-j-6b"),
        ("/far/away/gpt2-xl", "gpt2-xl"),
        ("~/models/tiny", "tiny"),
        ("./tiny/", "tiny"),
    ],
)
def test_a_model_is_told_apart_by_its_name(model: str, shown: str) -> None:
    assert model_name(model) == shown


def test_a_folder_that_is_there_has_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert model_name("some/model") == "model"


def test_a_description_says_what_was_done_and_from_what() -> None:
    command = command_of("evaluate", ["system=toolformer", "endpoint.api_key=xyz"], "-m")
    text = describe(command, {"model": "gpt2", "k": 0, "corpus": ""}, [a_run("train gpt2 augmented"), None])
    assert text.splitlines() == [
        "- model: `gpt2`",
        "- k: `0`",
        f"- made from [train gpt2 augmented](#/runs/{'a' * 32})",
        "",
        "```",
        "toolformer evaluate -m system=toolformer 'endpoint.api_key=***'",
        "```",
    ]


def test_what_is_named_is_no_markup() -> None:
    odd = "a`b\n```\n[x](http://y) <img src=x>"
    *facts, fence, command, end = describe(odd, {"model": odd}, [a_run(odd)]).splitlines()
    assert "\n".join(facts).count("`") == 2 and not any("](http" in line or "<" in line for line in facts)
    assert "\n".join(facts).count("](#/runs/") == 1
    # Within fences that are longer than any in it nothing is markup.
    assert fence == end == "````" and command == "a`b ``` [x](http://y) <img src=x>"


def test_a_command_can_be_given_again_as_it_stands() -> None:
    words = ["benchmarks=[dateset,lama]", "model=/my models/x", 'checkpoint="5123e678"']
    *_, command, _ = describe(command_of("evaluate", words), {}).splitlines()
    assert shlex.split(command) == ["toolformer", "evaluate", *words]
