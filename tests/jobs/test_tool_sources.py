"""Tools in the stages: the user's own by configuration, part of what decides a run; the cache changes no byte."""

import json
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from tests.build import Capture, Patch, Refused
from tests.processes import SHARDS, Place, config, run_stage, trained, who_did
from toolformer.cli import main
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.jobs import instantiate
from toolformer.jobs.config import Config, compose, validate
from toolformer.tools.base import Result, Tool

TOOLS = '''
def dragon_fire(value: int) -> str:
    """Tell how hot so many dragons are together.

    :param value: how many dragons
    """
    return f"dragon fire {value * value}"

def shout(text: str, times: int = 1) -> dict:
    """Say a text aloud.

    >>> shout("hey", times=2)
    {'said': 'HEY HEY'}
    """
    return {"said": " ".join([text.upper()] * times)}

def météo() -> str:
    """Has a name that fits no call."""
    return "x"
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
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
    assert set(configured(["tools.py:shout"]).tool) & {"shout", "météo"} == {"shout"}
    with pytest.raises(UserError, match="tool.dragon_fire.example is missing: give a call with its"):
        instantiate.tool_settings(config, "dragon_fire")


def test_keys_of_a_users_tool_are_set_as_any_others(folder: Path) -> None:
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
    (folder / "shout.txt").write_text("Shout:\n\nInput: A\nOutput: [shout(a)] A\n\nInput: {text}\nOutput:")
    words = ("tools=[shout]", "corpus=demo", "corpus@heldout=demo", "toolset=default", "prompts=.")
    config = composed("setting=paper", *words, *own, "tools=[shout]")
    for tool in (config.tool["shout"], config.tool["dragon_fire"]):
        assert (tool.start_threshold, tool.max_positions, tool.samples) == (0.05, 5, 5)
        assert tool.filter_threshold is None and config.filter_threshold == 1.0
    assert instantiate.tool_settings(config, "shout").prompt.instruction == "Shout:", "not a drafted one"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ("lift", 0.5, 12)),
        (
            ["+tool@tool.shout=user", "tool.shout.temperature=1", "tool.shout.result_ahead=0"],
            ("lift", 1.0, 0),
        ),
        (["tool_default.rank=null", "tool_default.temperature=null"], ("probability", 1.0, 12)),
        (["setting=large", "propose.temperature=0.7"], ("probability", 0.7, None)),
        (["prompts=none"], ("probability", 0.5, 12)),
    ],
    ids=str,
)
def test_how_calls_of_a_users_tool_are_tried_by_default(words: list[str], expected: Any) -> None:
    config = validate(compose("generate", ["tools=[shout,calendar]", "tool_sources=[tools.py]", *words]))
    settings = instantiate.tool_settings(config, "shout")
    assert (settings.rank, settings.temperature, settings.result_ahead) == expected
    calendar = instantiate.tool_settings(config, "calendar")
    assert (calendar.rank, calendar.result_ahead) == ("probability", None)


@pytest.mark.parametrize(
    ("sources", "tool", "reason"),
    [
        (["tools.py"], "dragonfire", "did you mean dragon_fire?"),
        (["tools.py"], "météo", "tool.météo.name is 'météo'; it must have letters (a-z)"),
        ([{"python": "tools.py", "only": ["dragonfire"]}], "", "there is no tool 'dragonfire' (did you mean dragon_fire?)"),
        ([{"file": "tools.py"}], "", "tool_sources[0]: there is no key 'file'"),
        ([{"python": "tools.py", "url": "http://x"}], "", "name exactly one of python, command and url"),
        ([{"python": "tools.py", "timeout": 0}], "", "timeout is 0; Input should be greater than 0"),
        (["http://me:hunter2@127.0.0.1:9/mcp"], "", "tool_sources[0]: url holds a name and a password"),
        ([{"command": "x", "env": {"KEY": ["hunter2"]}}], "", "tool_sources[0]: env.KEY is ***; Input should be"),
        (["tools.py"] * 2, "", "tool_sources[1]: its tool dragon_fire is also in tool_sources[0]"),
    ],
)  # fmt: skip
def test_a_wrong_source_is_refused_in_a_line(sources: Any, tool: str, reason: str) -> None:
    with pytest.raises(UserError) as error:
        configured(sources, *filter(None, [tool]))
    assert reason in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "sources",
    [
        "[{command: x, env: {KEY: hunter2}]",
        "{command: x, env: {KEY: hunter2}}",
        '[{command: x, headers: {"A": "hunter2"}}}]',
        "hunter2(",
        "'npx server --key hunter2'",
        "['npx server --key hunter2']",
        "[{command: npx --token hunter2}]",
        '["server\\t--key\\thunter2"]',
    ],
)
def test_a_broken_value_is_not_shown(sources: str, refused: Refused) -> None:
    assert "hunter2" not in refused("tool", "calculator", "1+1", f"tool_sources={sources}")


DOCUMENTS = 2 * SHARDS


class AwayCalendar(Tool):
    """A tool whose server is away."""

    name = "Calendar"

    def __init__(self, **_: object) -> None:
        """Takes what the real one takes."""

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        return [Result(reason="server is away", fault=True) for _ in inputs]


def generate(place: Place, root: Path, *more: str, name: str = "default") -> dict[str, float]:
    """The metrics of a run of the annotation."""
    assert main(place.words(root, *more, f"name={name}", pause=0)) == 0
    (run,) = [run for run in place.runs(root) if name in run.experiments]
    return dict(run.metrics)


def test_the_same_bytes_with_and_without_the_cache(place: Place, tmp_path: Path) -> None:
    """And a later run, of other samples, finds the results of the earlier one."""
    plain = generate(place, tmp_path / "plain")
    assert plain["tools/calendar/calls"] == plain["tools/calendar/executed"] == DOCUMENTS
    assert plain["tools/calendar/faults"] == plain["tools/calendar/hit_rate"] == 0
    assert plain["tools/calendar/calls_per_second"] > 0
    assert not (tmp_path / "plain" / "tools").exists()
    place.log.unlink()
    cached = tmp_path / "cached"
    assert generate(place, cached, "tool.calendar.cache=true")["tools/calendar/hit_rate"] == 0
    assert place.candidates(cached) == place.candidates(tmp_path / "plain")
    asked = who_did(place.log)
    again = generate(place, cached, "tool.calendar.cache=true", "seed=1", name="again")
    assert again["tools/calendar/calls"] == DOCUMENTS and again["tools/calendar/executed"] == 0
    assert again["tools/calendar/hit_rate"] == 1
    assert who_did(place.log) == asked, "the tool itself was asked again"


def test_a_tool_that_is_away_ends_no_run(place: Place, tmp_path: Path, capsys: Capture) -> None:
    target = "tool.calendar.implementation._target_=tests.jobs.test_tool_sources.AwayCalendar"
    metrics = generate(place, tmp_path, target, "tool.calendar.cache=true")
    assert metrics["tools/calendar/faults"] == metrics["tools/calendar/calls"] == DOCUMENTS
    assert metrics["calls_kept"] == 0
    (funnel,) = tmp_path.glob("generate/*/funnel.json")
    assert json.loads(funnel.read_text())["calendar"]["drop_reasons"]["server is away"] > 0
    line = f"calendar: {DOCUMENTS} of {DOCUMENTS} calls failed: {DOCUMENTS} server is away"
    assert line in " ".join(capsys.readouterr().err.split())


def test_an_evaluation_counts_its_calls(tmp_path: Path, answering_model: Path) -> None:
    """A model that writes the calendar's call whatever it is asked; dated examples, the real calendar, its cache."""
    trained(tmp_path, answering_model)
    more = ["evaluation.limit=12", "tools=[calendar]", "tool.calendar.cache=true", "decoding.k=400"]
    run = run_stage("evaluate", config(tmp_path, *more))
    assert run.metrics["tools/calendar/calls"] == 12 * run.tasks["dateset"]["call_share"] > 0
    assert run.metrics["tools/calendar/faults"] == 0
    assert 0 < run.metrics["tools/calendar/executed"] <= run.metrics["tools/calendar/calls"]
