"""Tools of the user's own, by configuration: several at once, named, checked, part of what decides a run."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from toolformer import build
from toolformer.calls import ApiCall, linearise, parse
from toolformer.cli import main
from toolformer.config import compose, validate
from toolformer.documents import Document
from toolformer.errors import UserError

DOCUMENT = Document("d", "a text")

TOOLS = '''
class Tools:
    def dragon_fire(self, value: int) -> str:
        """Tell how hot so many dragons are together.

        :param value: how many dragons
        """
        return f"dragon fire {value * value}"

    def shout(self, text: str, times: int = 1) -> dict:
        """Say a text aloud.

        >>> shout("hey", times=2)
        {'said': 'HEY HEY'}
        """
        return {"said": " ".join([text.upper()] * times)}

    def untyped(self, value):
        """Has no hint."""

    def météo(self) -> str:
        """Has a name that fits no call."""
        return "x"
'''


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLFORMER_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text(TOOLS, encoding="utf-8")
    return tmp_path


@cache
def base() -> DictConfig:
    return compose("generate", ["+tool@tool.dragon_fire=user", "+tool@tool.nothing=user"])


def configured(sources: Any, *tools: str, **dragon_fire: Any) -> build.Config:
    """A valid configuration with these sources, tools in use, and keys of tool.dragon_fire; quicker than composing."""
    config = deepcopy(base())
    config.tool_sources = sources
    if tools:
        config.tools = list(tools)
    for key, value in dragon_fire.items():
        OmegaConf.update(config, f"tool.dragon_fire.{key}", value)
    return validate(config)


def composed(*words: str) -> build.Config:
    return validate(compose("generate", words))


def test_a_file_gives_all_of_its_tools(place: Path) -> None:
    config = configured(["tools.py"], "calculator", "dragon_fire", "shout")
    made = build.tools(config)
    assert list(made) == ["calculator", "dragon_fire", "shout"]
    assert [
        made["shout"].run(['"hey", 2', "times=1, text='a [b]'"], [DOCUMENT] * 2)[n].text for n in (0, 1)
    ] == [
        '{"said": "HEY HEY"}',
        '{"said": "A (B)"}',
    ]
    prompt = build.tool_settings(config, "shout").prompt
    assert prompt.fill("x").endswith(
        'Input: Say a text aloud: "hey", times=2 gives {"said": "HEY HEY"}.\n'
        'Output: Say a text aloud: "hey", times=2 gives [shout("hey", times=2)] {"said": "HEY HEY"}.\n\n'
        "Input: x\nOutput:"
    )


def test_one_function_a_prefix_and_a_choice(place: Path) -> None:
    sources = ["tools.py:Tools.shout", {"python": "tools.py", "prefix": "my_", "only": ["dragon_fire"]}]
    config = configured(sources, "shout", "my_dragon_fire")
    assert {"shout", "my_dragon_fire"} <= set(config.tool) and "untyped" not in config.tool
    assert build.tools(config)["my_dragon_fire"].name == "my_dragon_fire"
    assert build.tools(config)["my_dragon_fire"].run(["343"], [DOCUMENT])[0].text == "dragon fire 117649"


def test_a_tools_keys_are_set_as_those_of_any_other(place: Path) -> None:
    config = composed(
        "tool_sources=[tools.py]", "tools=[dragon_fire]", "+tool@tool.dragon_fire=user", "tool.dragon_fire.name=Dragon",
        "tool.dragon_fire.filter_threshold=0.25", "tool.dragon_fire.example='Dragon(3) -> dragon fire 9'",
    )  # fmt: skip
    settings = build.tool_settings(config, "dragon_fire")
    assert (settings.name, settings.filter_threshold) == ("Dragon", 0.25)
    assert build.tools(config)["dragon_fire"].name == "Dragon"
    assert settings.prompt.examples[0][1].endswith(
        "how hot so many dragons are together: 3 gives [Dragon(3)] dragon fire 9."
    )


def test_a_file_in_a_folder_of_ones_own(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "conf" / "experiment").mkdir(parents=True)
    (place / "conf" / "experiment" / "dragons.yaml").write_text(
        "# @package _global_\ntool_sources: [tools.py]\ntools: [dragon_fire]\n"
        "tool:\n  dragon_fire:\n    filter_threshold: 0.5\n    instruction: 'Add calls:'\n    demonstrations:\n"
        "    - text: It is dragon fire 9.\n      annotated: It is [dragon_fire(3)] dragon fire 9.\n"
    )
    words = ("hydra.searchpath=[conf]", "experiment=dragons")
    config = composed(*words, "tool.dragon_fire.samples=7")
    assert (config.tool["dragon_fire"].filter_threshold, config.tool["dragon_fire"].samples) == (0.5, 7)
    assert build.tool_settings(config, "dragon_fire").prompt.instruction == "Add calls:"
    assert main(["tool", "dragon_fire", "343", *words]) == 0
    assert capsys.readouterr().out == "dragon fire 117649\n"


def test_a_folders_file_goes_before_the_drafted_prompt(place: Path) -> None:
    (place / "shout.txt").write_text("Shout:\n\nInput: A\nOutput: [shout(a)] A\n\nInput: {text}\nOutput:")
    config = composed("tool_sources=[tools.py]", "tools=[shout]", "prompts=.")
    assert build.tool_settings(config, "shout").prompt.instruction == "Shout:"


def test_what_decides_an_answer_is_in_the_identity(place: Path) -> None:
    tool = configured(["tools.py"], "shout").tool["shout"]
    before = build.tool_identity(tool)
    (place / "tools.py").write_text(TOOLS.replace("upper", "title"), encoding="utf-8")
    assert build.tool_identity(tool) != before
    (place / "tools.py").write_text(TOOLS, encoding="utf-8")
    assert build.tool_identity(tool) == before, "the content counts, not the time"


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["dragon_fire", "343"], 0, "dragon fire 117649\n", ""),
        (["shout", '"hey", "2"'], 0, '{"said": "HEY HEY"}\n', ""),
        (["dragon_fire"], 1, "\n", "toolformer: dragon_fire gave no result: argument value is missing\n"),
    ],
)
def test_a_tool_of_ones_own_by_hand(
    arguments: list[str], code: int, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tool", *arguments, "tool_sources=[tools.py]"]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (out, err)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["tool_sources=[nope.py]"], "tool_sources[0]: there is no file"),
        (["tool_sources=[tools.py]", "tools=[dragon_fire]"], "tool.dragon_fire.example is missing: give a call with its"),
        (["tool.dragn.samples=3"], "for one of your own put +tool@tool.dragn=user before"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_before_a_model_loads(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", *words, "model=/no/such/model"]) == 2
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("toolformer:")]
    assert reason in line


@pytest.mark.parametrize(
    ("source", "tool", "reason"),
    [
        ("no_such_module_here", None, "tool_sources[0]: there is no module no_such_module_here"),
        ("tools.py:nope", None, "tool_sources[0]: tools.py:nope: there is no nope in it"),
        ("tools.py", "dragonfire", "did you mean dragon_fire?"),
        ("tools.py", "nothing", "tools: there is no tool 'nothing'"),
        ("tools.py", "untyped", "argument value has no type hint"),
        ("tools.py", "météo", "tool.météo.name is 'météo'; a name has letters (a-z)"),
        ({"python": "tools.py", "only": ["dragonfire"]}, None, "only: there is no tool 'dragonfire' (did you mean dragon_fire?)"),
        ({"file": "tools.py"}, None, "tool_sources[0]: there is no key 'file'"),
        ({"python": "tools.py", "url": "http://x"}, None, "name exactly one of python, command and url"),
        ({"python": "tools.py", "timeout": "soon"}, None, "'soon'"),
        ({"python": "tools.py", "timeout": 0}, None, "timeout is 0.0; it must be more than 0 seconds"),
        ({"python": "tools.py", "prefix": "a b"}, None, "prefix is 'a b'"),
        ("http://me:hunter2@127.0.0.1:9/mcp", None, "tool_sources[0]: url holds a name and a password"),
        (7, None, "it is neither a text nor a mapping"),
        ({"command": "no-such-program-here"}, None, "there is no command 'no-such-program-here'"),
    ],
)  # fmt: skip
def test_a_wrong_source_is_refused_in_a_line(source: Any, tool: str | None, reason: str) -> None:
    with pytest.raises(UserError) as error:
        configured([source], *([tool] if tool else []))
    assert reason in str(error.value) and "\n" not in str(error.value)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(
        UserError, match=r"tool_sources\[1\]: it has a tool dragon_fire, and so has tool_sources\[0\]"
    ):
        configured(["tools.py", "tools.py"])
    with pytest.raises(UserError, match="two tools are called shout"):
        configured(["tools.py"], "shout", "dragon_fire", name="shout", example="shout(1) -> 1")


def test_an_example_that_the_tool_refuses_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"tool.dragon_fire.example is 'dragon_fire\(much\) -> x': argument value"
    ):
        configured(["tools.py"], "dragon_fire", example="dragon_fire(much) -> x")


def test_several_arguments_and_json_results_stand_in_a_text() -> None:
    text = ' [weather("Seoul", "today") -> {"temperature": "25°C", "condition": "Sunny"}]'
    assert linearise(parse(text)) == text
    assert parse(text) == ApiCall(
        "weather", '"Seoul", "today"', '{"temperature": "25°C", "condition": "Sunny"}'
    )
