"""The prompts of the paper and of the Vietnamese appendix, to the letter; folders in their layout, and what is refused."""

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build import Recorder
from toolformer.errors import UserError
from toolformer.jobs import instantiate
from toolformer.jobs.config import Config, compose, validate
from toolformer.jobs.config.schema import DemonstrationConfig
from toolformer.tools.prompt_sets import OURS, PLACE, SETS, Prompt, check_prompt, find_prompt, read_prompt
from toolformer.tools.user.describe import Description

# Of fill("x"); each prompt was compared word for word with an appendix when its hash was taken: A.2 of the paper, and
# the Vietnamese one.
SHA256 = {
    "paper/qa": "849cbf42662f7948ebc9ab6bd40ba580b4a57da2dccf78014fda5cc125805f92",
    "paper/calculator": "11ad778cb9b12bd45e75f432e35d4151f3210398bbebe53ce68dfcbda242ac40",
    "paper/search": "ec153a944a13ae0a49420100aea8459cee8951aa537fd3d6ea559041a10dd8eb",
    "paper/translation": "c4a804e7384db19ba9966b68f040f14ca9455382d6a8a43fee4082ff73166b12",
    "paper/calendar": "b6e2ff150e36dc983e60e18db9492bb776b2959e214b220a322c71467068827c",
    "paper-vi/search": "fea22c8433dd301cfe77ceb5243eb401c9d055f01f929bf3796f1bf337acfde4",
    "paper-vi/translation": "03a66e2ed5174d43e0bf235c50ab3438064d0a11edd8ee31070f8e9f0aac1b2a",
    "paper-vi/calendar": "78d4d17cd9b6adba07967b25b851877b626bf72300f4be9b44daf1e2ff128f7e",
}


@pytest.mark.parametrize("name", SHA256)
def test_no_character_changes(name: str) -> None:
    prompt = read_prompt(OURS / f"{name}.txt")
    assert hashlib.sha256(prompt.fill("x").encode()).hexdigest() == SHA256[name]
    assert prompt.fill("x") == f"{prompt.prefix()}x\n{prompt.output_label}"


@pytest.fixture(scope="module")
def config() -> Config:
    return validate(compose("generate", []))


GOOD = "Add calls:\n\nInput: 1 + 2 is 3.\nOutput: 1 + 2 is [Calculator(1 + 2)] 3.\n\nInput: {text}\nOutput:\n"


@pytest.mark.parametrize("prompts", SETS)
def test_every_prompt_of_a_set_shows_calls_of_its_tool(prompts: str, config: Config) -> None:
    keys = {path.stem for path in (OURS / prompts).glob("*.txt")}
    assert keys == {"calculator", "calendar", "search", "qa", "translation"}, "the paper's tools alone"
    for key in keys:
        prompt = find_prompt(prompts, key)
        assert prompt is not None and check_prompt(prompt, config.tool[key].name) is None


def test_every_bundled_tool_has_a_prompt(config: Config) -> None:
    assert all(instantiate.tool_settings(config, key).prompt.examples for key in config.tool)


class Dice(Recorder):
    """A tool that no set of prompts knows."""

    name = "Dice"
    description = Description("Roll dice", (("count", "The number of dice"),))
    examples = ("Three dice showed [Dice(3) -> 11] 11 points.",)


def test_a_class_has_a_prompt_of_its_description_and_examples(config: Config) -> None:
    target = f"{__name__}.Dice"
    tool = replace(config.tool["calculator"], name="Roll", prompt=None, implementation={"_target_": target})
    prompt = instantiate.tool_settings(replace(config, tool={"dice": tool}), "dice").prompt
    assert prompt.examples == (("Three dice showed 11 points.", "Three dice showed [Roll(3)] 11 points."),)
    assert '"[Roll(count)]" where "count" is the number of dice' in prompt.instruction
    shown = [DemonstrationConfig("It is 3.", "It is [Roll(1)] 3.")]
    tool = replace(tool, instruction="Add dice:", demonstrations=shown)
    assert instantiate.tool_settings(replace(config, tool={"dice": tool}), "dice").prompt.examples == (
        ("It is 3.", "It is [Roll(1)] 3."),
    )


lines = st.text(alphabet="ab c.,()ü北[]:\"'", min_size=1, max_size=20).map(str.strip).filter(bool)


@given(lines.filter(lambda line: not line.startswith("Q:")), st.lists(st.tuples(lines, lines), max_size=3))
def test_a_file_has_the_form_of_a_filled_prompt(instruction: str, pairs: list[tuple[str, str]]) -> None:
    prompt = Prompt(instruction, tuple(pairs), "Q:", "A:")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prompt.txt"
        for text in (prompt.fill(PLACE), f"{prompt.fill(PLACE)}\n".replace("\n", "\r\n")):
            path.write_bytes(text.encode())
            assert read_prompt(path) == prompt


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (GOOD.replace("{text}", "x"), "it has no {text} for the text"),
        (GOOD.replace("Add", "Add {text}"), "with {text} nowhere else"),
        ("Add calls:\n\nInput: {text}\nOutput:", "it has no example; show a text with a call, such as [Calculator(...)]"),
        (GOOD.replace("Add calls:\n\n", ""), "it is not an instruction in one line and pairs"),
        (GOOD.replace("\nOutput: 1", "\nAnswer: 1"), "it is not an instruction in one line and pairs"),
        (GOOD.replace("[Calculator(1 + 2)] ", ""), "example 1 has no call of Calculator"),
        (GOOD.replace("[Calculator(1 + 2)]", "[Calc(1 + 2)]"), "has '[Calc(1 + 2)]', which is not a call of Calculator"),
        ("\xff\xfe\x00", "write it as UTF-8 text"),
        (GOOD.replace("1 + 2)]", "1 + 2) -> 3]"), "which is not a call of Calculator without its result"),
    ],
)  # fmt: skip
def test_a_file_that_teaches_nothing_is_refused(
    text: str, reason: str, config: Config, tmp_path: Path
) -> None:
    file = tmp_path / "calculator.txt"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError) as error:
        instantiate.tool_settings(replace(config, prompts=str(tmp_path)), "calculator")
    assert str(error.value).startswith(f"{file}: ") and reason in str(error.value)


def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path: Path) -> None:
    (tmp_path / "sums.txt").write_text(GOOD, encoding="utf-8-sig")
    assert read_prompt(tmp_path / "sums.txt").instruction == "Add calls:"


def test_configuration_chooses_the_set(config: Config, tmp_path: Path) -> None:
    (tmp_path / "sums.txt").write_text(GOOD, encoding="utf-8")
    assert instantiate.tool_settings(config, "calculator").prompt == find_prompt("paper", "calculator")
    vietnamese = instantiate.tool_settings(replace(config, prompts="paper-vi"), "calculator")
    assert vietnamese.prompt == find_prompt("paper-vi", "calculator")
    own = validate(compose("generate", [f"prompts={tmp_path}", "tool.calculator.prompt=sums"]))
    assert instantiate.tool_settings(own, "calculator").prompt.instruction == "Add calls:"
    with pytest.raises(UserError, match=r"tool.qa.prompt: there is no .*qa.txt; give one"):
        instantiate.tool_settings(replace(config, prompts=str(tmp_path)), "qa")
    with pytest.raises(UserError, match="prompts: there is no set and no folder 'papr'; use paper, paper-vi"):
        validate(compose("generate", ["prompts=papr"]))


def test_a_demonstration_in_configuration_goes_before_the_set(config: Config) -> None:
    def prompt(instruction: str | None, *annotated: str) -> Prompt:
        shown = [DemonstrationConfig("It is 3.", text) for text in annotated]
        tool = replace(config.tool["calculator"], instruction=instruction, demonstrations=shown)
        return instantiate.tool_settings(replace(config, tool={"calculator": tool}), "calculator").prompt

    right, wrong = "It is [Calculator(1 + 2)] 3.", "It is [Sum(1 + 2)] 3."
    assert prompt("Add sums:", right) == Prompt("Add sums:", (("It is 3.", right),))
    with pytest.raises(UserError, match="tool.calculator.example is missing"):
        prompt("Add sums:")
    with pytest.raises(UserError, match="tool.calculator.demonstrations: it has no instruction"):
        prompt(None, right)
    with pytest.raises(UserError, match="which is not a call of Calculator"):
        prompt("Add sums:", wrong)
