"""Sets of prompts: the Vietnamese one, folders in the paper's layout, and what is refused with which reason."""

from __future__ import annotations

import hashlib
import tempfile
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer import build
from toolformer.calls import parse
from toolformer.cli import main
from toolformer.config import Config, compose, validate
from toolformer.config.schema import DemonstrationConfig
from toolformer.errors import UserError
from toolformer.tools.prompt_sets import FOLDERS, check, find, read, write
from toolformer.tools.prompts import PROMPTS, Prompt

NAMES = {
    "calculator": "Calculator",
    "calendar": "Calendar",
    "search": "WikiSearch",
    "qa": "QA",
    "translation": "MT",
}
VIETNAMESE_CALENDAR = """\
Nhiệm vụ của bạn là thêm các lời gọi đến API Lịch vào một đoạn văn bản. Các lời gọi API nên giúp bạn có được thông tin cần thiết để hoàn thành văn bản. Bạn có thể gọi API bằng cách viết "[Calendar()]" Dưới đây là một số ví dụ về lời gọi API:

Đầu vào: Hôm nay là thứ Sáu đầu tiên của năm.
Đầu ra: Hôm nay là [Calendar()] thứ Sáu đầu tiên của năm.

Đầu vào: Tổng thống Hoa Kỳ là Joe Biden.
Đầu ra: Tổng thống Hoa Kỳ là [Calendar()] Joe Biden.

Đầu vào: Ngày hiện tại trong tuần là thứ Tư.
Đầu ra: Ngày hiện tại trong tuần là [Calendar()] thứ Tư.

Đầu vào: Số ngày từ bây giờ đến Giáng sinh là 30.
Đầu ra: Số ngày từ bây giờ đến Giáng sinh là [Calendar()] 30.

Đầu vào: Cửa hàng không bao giờ mở vào cuối tuần, vì vậy hôm nay nó đóng cửa.
Đầu ra: Cửa hàng không bao giờ mở vào cuối tuần, vì vậy hôm nay [Calendar()] nó đóng cửa.

Đầu vào: x
Đầu ra:"""


def config() -> Config:
    return deepcopy(_default())


@cache
def _default() -> Config:
    return validate(compose("generate", []))


GOOD = "Add calls:\n\nInput: 1 + 2 is 3.\nOutput: 1 + 2 is [Calculator(1 + 2)] 3.\n\nInput: {text}\nOutput:\n"


@pytest.mark.parametrize("key", NAMES)
def test_every_set_teaches_every_tool_of_the_paper(key: str) -> None:
    for prompts in ("paper", *FOLDERS):
        prompt = find(prompts, key)
        assert prompt is not None and check(prompt, NAMES[key]) is None


@pytest.mark.parametrize("key", NAMES)
def test_the_vietnamese_prompts_show_as_much_as_the_papers(key: str) -> None:
    prompt = find("paper-vi", key)
    assert prompt is not None
    assert (prompt.input_label, prompt.output_label) == ("Đầu vào:", "Đầu ra:")
    assert len(prompt.examples) == len(PROMPTS[key].examples)
    for mine, papers in zip(prompt.examples, PROMPTS[key].examples, strict=True):
        assert mine[1].count(f"[{NAMES[key]}(") == papers[1].count(f"[{NAMES[key]}(")
        assert (
            mine[1].partition("[")[2].partition("]")[0] == papers[1].partition("[")[2].partition("]")[0]
            or "南京" in mine[0]
        )
        if key != "translation":
            assert mine[1].replace(f"[{NAMES[key]}", "\0").count("\0") and _plain(mine[1]) == mine[0]


def _plain(annotated: str) -> str:
    """The second line without its calls."""
    for piece in annotated.split("[")[1:]:
        call = f"[{piece[: piece.index(']') + 1]}"
        assert parse(call)
        annotated = annotated.replace(f"{call} ", "")
    return annotated


def test_the_vietnamese_calendar_in_full() -> None:
    prompt = find("paper-vi", "calendar")
    assert prompt is not None and prompt.fill("x") == VIETNAMESE_CALENDAR


# Of fill("x"); each was found word for word in the Vietnamese appendix when its hash was taken.
SHA256 = {
    "search": "fea22c8433dd301cfe77ceb5243eb401c9d055f01f929bf3796f1bf337acfde4",
    "translation": "03a66e2ed5174d43e0bf235c50ab3438064d0a11edd8ee31070f8e9f0aac1b2a",
    "calendar": "78d4d17cd9b6adba07967b25b851877b626bf72300f4be9b44daf1e2ff128f7e",
}


@pytest.mark.parametrize("key", SHA256)
def test_no_character_of_the_appendix_changes(key: str) -> None:
    prompt = find("paper-vi", key)
    assert prompt is not None
    assert hashlib.sha256(prompt.fill("x").encode()).hexdigest() == SHA256[key]


@pytest.mark.parametrize("prompts", ["paper", "paper-vi"])
def test_a_folder_with_the_same_words_is_the_same_set(prompts: str, tmp_path: Path) -> None:
    for key in NAMES:
        prompt = find(prompts, key)
        assert prompt is not None
        (tmp_path / f"{key}.txt").write_text(write(prompt), encoding="utf-8")
        assert find(str(tmp_path), key) == prompt


lines = st.text(alphabet="ab c.,()ü北[]:\"'", min_size=1, max_size=20).map(str.strip).filter(bool)


@given(lines.filter(lambda line: not line.startswith("Q:")), st.lists(st.tuples(lines, lines), max_size=3))
def test_writing_and_reading_are_inverse(instruction: str, pairs: list[tuple[str, str]]) -> None:
    prompt = Prompt(instruction, tuple(pairs), "Q:", "A:")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prompt.txt"
        for text in (write(prompt), write(prompt).replace("\n", "\r\n")):
            path.write_bytes(text.encode())
            assert read(path) == prompt


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (GOOD.replace("{text}", "x"), "it has no place for the text"),
        (GOOD.replace("Add", "Add {text}"), "with {text} nowhere else"),
        (GOOD.removesuffix("Output:\n"), "it has no place for the text"),
        ("", "it has no place for the text"),
        ("Add calls:\n\nInput: {text}\nOutput:", "it has no example; show a text with a call, such as [Calculator(...)]"),
        (GOOD.replace("Add calls:\n\n", ""), "its first part is no instruction"),
        (GOOD.replace("Add calls:", "Add\ncalls:"), "its first part is no instruction in one line"),
        (GOOD.replace("\nOutput: 1", "\nAnswer: 1"), "example 1 is not a line `Input: ...` and a line `Output: ...`"),
        (GOOD.replace("[Calculator(1 + 2)] ", ""), "example 1 has no call of Calculator"),
        (GOOD.replace("[Calculator(1 + 2)]", "[Calc(1 + 2)]"), "example 1 calls 'Calc', but the tool is called Calculator"),
        (GOOD.replace("1 + 2)]", "1 + 2]"), "which is no call"),
        (GOOD.replace("1 + 2)]", "1 + 2)"), "which is no call"),
        (GOOD.replace("1 + 2)]", "1 + 2) -> 3]"), "example 1 has a call with its result; leave the result out"),
        (GOOD.encode("utf-16").decode("latin-1"), "it has no place for the text"),
    ],
)  # fmt: skip
def test_a_file_that_teaches_nothing_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "calculator.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        build.tool_settings(replace(config(), prompts=str(tmp_path)), "calculator")
    assert str(error.value).startswith(f"{file}: ") and reason in str(error.value)


def test_it_is_refused_before_a_model_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "calculator.txt").write_text(GOOD.replace("{text}", "x"), encoding="utf-8")
    root = f"paths.root={tmp_path / 'runs'}"
    assert main(["generate", "tools=[calculator]", f"prompts={tmp_path}", "model=/no/such/model", root]) == 2
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("toolformer:")]
    assert line.startswith(f"toolformer: {tmp_path / 'calculator.txt'}: it has no place for the text")


def test_a_file_that_is_no_text_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "calculator.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"calculator.txt: it cannot be read .* write it as UTF-8 text"):
        find(str(tmp_path), "calculator")
    with pytest.raises(UserError, match=r"tool.qa.prompt: there is no .*qa.txt; add it"):
        build.tool_settings(replace(config(), prompts=str(tmp_path)), "qa")
    with pytest.raises(UserError, match="prompts: there is no set and no folder 'papr'; use paper, paper-vi"):
        validate(compose("generate", ["prompts=papr"]))


def test_configuration_chooses_the_set(tmp_path: Path) -> None:
    (tmp_path / "sums.txt").write_text(GOOD, encoding="utf-8")
    assert build.tool_settings(config(), "calculator").prompt == PROMPTS["calculator"]
    vietnamese = build.tool_settings(replace(config(), prompts="paper-vi"), "calculator")
    assert vietnamese.prompt == find("paper-vi", "calculator")
    own = validate(compose("generate", [f"prompts={tmp_path}", "tool.calculator.prompt=sums"]))
    assert build.tool_settings(own, "calculator").prompt.instruction == "Add calls:"


def test_a_demonstration_in_configuration_goes_before_the_set() -> None:
    words = [
        "tool.calculator.instruction='Add sums:'",
        "tool.calculator.demonstrations=[{text: 'It is 3.', annotated: 'It is [Calculator(1 + 2)] 3.'}]",
    ]
    settings = build.tool_settings(validate(compose("generate", words)), "calculator")
    assert settings.prompt == Prompt("Add sums:", (("It is 3.", "It is [Calculator(1 + 2)] 3."),))
    shown = [DemonstrationConfig("It is 3.", "It is [Calculator(1 + 2)] 3.")]
    for instruction, demonstrations, reason in (
        ("Add sums:", [], "tool.calculator.example is missing"),
        (None, shown, "tool.calculator.demonstrations: it has no instruction"),
        ("Add sums:", [DemonstrationConfig("It is 3.", "It is [Sum(1 + 2)] 3.")], "example 1 calls 'Sum'"),
    ):
        wrong = config()
        wrong.tool["calculator"].instruction = instruction
        wrong.tool["calculator"].demonstrations = demonstrations
        with pytest.raises(UserError, match=reason):
            build.tool_settings(wrong, "calculator")


@given(st.text(alphabet='[]()->Calcutor "\\', max_size=40))
def test_any_example_is_accepted_or_refused_with_a_reason(annotated: str) -> None:
    reason = check(Prompt("x", (("a", annotated),)), "Calculator")
    assert reason is not None or "[Calculator(" in annotated.replace(" ", "")
    assert reason is None or reason.startswith("example 1 ")
