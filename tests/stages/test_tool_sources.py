"""Tools of the user's own, by configuration: several at once, named, checked, part of what decides a run."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from tests.conftest import Patch, Refused
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.stages import instantiate
from toolformer.stages.config import Config, compose, validate
from toolformer.stages.identity import tool_identity

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

    def météo(self) -> str:
        """Has a name that fits no call."""
        return "x"
'''


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("TOOLFORMER_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text(TOOLS, encoding="utf-8")
    return tmp_path


@cache
def base() -> DictConfig:
    return compose("generate", ["+tool@tool.dragon_fire=user", "+tool@tool.nothing=user"])


def configured(sources: Any, *tools: str) -> Config:
    """A valid configuration with these sources and tools in use; quicker than composing."""
    config = deepcopy(base())
    config.tool_sources = sources
    config.tools = list(tools) or config.tools
    return validate(config)


def composed(*words: str) -> Config:
    return validate(compose("generate", words))


def test_a_file_gives_all_of_its_tools() -> None:
    sources = ["tools.py", {"python": "tools.py", "prefix": "my_", "only": ["dragon_fire"]}]
    config = configured(sources, "calculator", "dragon_fire", "shout", "my_dragon_fire")
    made = instantiate.tools(config)
    assert [*made] == ["calculator", "dragon_fire", "shout", "my_dragon_fire"]
    results = made["shout"].run(['"hey", 2', "times=1, text='a [b]'"], [Document("d", "a text")] * 2)
    assert [result.text for result in results] == ['{"said": "HEY HEY"}', '{"said": "A (B)"}']
    assert made["my_dragon_fire"].name == "my_dragon_fire"
    assert made["my_dragon_fire"].run(["343"], [Document("d", "a text")])[0].text == "dragon fire 117649"
    assert instantiate.tool_settings(config, "shout").prompt.fill("x").endswith(
        'Input: Say a text aloud: "hey", times=2 gives {"said": "HEY HEY"}.\n'
        'Output: Say a text aloud: "hey", times=2 gives [shout("hey", times=2)] {"said": "HEY HEY"}.\n\n'
        "Input: x\nOutput:"
    )  # fmt: skip
    assert set(configured(["tools.py:Tools.shout"]).tool) & {"shout", "météo"} == {"shout"}


def test_its_keys_are_set_as_those_of_any_other_and_begin_with_the_settings(place: Path) -> None:
    own = ("tool_sources=[tools.py]", "+tool@tool.dragon_fire=user")
    config = composed(
        *own, "tools=[dragon_fire]", "tool.dragon_fire.name=Dragon", "tool.dragon_fire.filter_threshold=0.25",
        "tool.dragon_fire.example='Dragon(3) -> dragon fire 9'", "tool_default.places=number",
        "tool_default.selector=calculator",
    )  # fmt: skip
    settings = instantiate.tool_settings(config, "dragon_fire")
    assert (settings.name, settings.filter_threshold) == ("Dragon", 0.25)
    assert instantiate.tools(config)["dragon_fire"].name == "Dragon"
    assert settings.prompt.examples[0][1].endswith("together: 3 gives [Dragon(3)] dragon fire 9.")
    for key in ("shout", "dragon_fire"):
        assert (config.tool[key].places, config.tool[key].selector) == ("number", "calculator")
    (place / "shout.txt").write_text("Shout:\n\nInput: A\nOutput: [shout(a)] A\n\nInput: {text}\nOutput:")
    words = ("tools=[shout]", "corpus=demo", "heldout=demo", "toolset=default", "prompts=.")
    for setting, expected in (("default", (0.0, 4, 2, 0.3)), ("paper", (0.05, 5, 5, 1.0))):
        config = composed(f"setting={setting}", *words, *own, "tools=[shout]")
        for tool in (config.tool["shout"], config.tool["dragon_fire"]):
            assert (tool.start_threshold, tool.max_positions, tool.samples) == expected[:3]
            assert tool.filter_threshold is None and config.filter_threshold == expected[3]
        assert instantiate.tool_settings(config, "shout").prompt.instruction == "Shout:", "not a drafted one"


def test_what_decides_an_answer_is_in_the_identity(place: Path) -> None:
    tool = configured(["tools.py"], "shout").tool["shout"]
    before = tool_identity(tool)
    (place / "tools.py").write_text(TOOLS.replace("upper", "title"), encoding="utf-8")
    assert tool_identity(tool) != before
    (place / "tools.py").write_text(TOOLS, encoding="utf-8")
    assert tool_identity(tool) == before, "the content counts, not the time"


def test_bad_input_is_one_line_before_a_model_loads(refused: Refused) -> None:
    for words, reason in (
        ("tool_sources=[nope.py]", "tool_sources[0]: nope.py cannot be imported (FileNotFoundError"),
        (
            "tool_sources=[tools.py] tools=[dragon_fire]",
            "tool.dragon_fire.example is missing: give a call with its",
        ),
        ("tool.dragn.samples=3", "for one of your own put +tool@tool.dragn=user before"),
    ):
        assert reason in refused("generate", *words.split(), "model=/no/such/model")


@pytest.mark.parametrize(
    ("sources", "tool", "reason"),
    [
        (["tools.py"], "dragonfire", "did you mean dragon_fire?"),
        (["tools.py"], "nothing", "tools: there is no tool 'nothing'"),
        (["tools.py"], "météo", "tool.météo.name is 'météo'; it must have letters (a-z)"),
        ([{"python": "tools.py", "only": ["dragonfire"]}], "", "there is no tool 'dragonfire' (did you mean dragon_fire?)"),
        ([{"file": "tools.py"}], "", "tool_sources[0]: there is no key 'file'"),
        ([{"python": "tools.py", "url": "http://x"}], "", "name exactly one of python, command and url"),
        ([{"python": "tools.py", "timeout": 0}], "", "timeout is 0; Input should be greater than 0"),
        ([{"python": "tools.py", "prefix": "a b"}], "", "prefix is 'a b'"),
        (["http://me:hunter2@127.0.0.1:9/mcp"], "", "tool_sources[0]: url holds a name and a password"),
        ([{"command": "x", "env": {"KEY": ["hunter2"]}}], "", "tool_sources[0]: env.KEY is ***; Input should be"),
        ([7], "", "it is neither a text nor a mapping"),
        (["tools.py"] * 2, "", "tool_sources[1]: it has a tool dragon_fire, and so has tool_sources[0]"),
    ],
)  # fmt: skip
def test_a_wrong_source_is_refused_in_a_line(sources: Any, tool: str, reason: str) -> None:
    with pytest.raises(UserError) as error:
        configured(sources, *filter(None, [tool]))
    assert reason in str(error.value) and "\n" not in str(error.value)
