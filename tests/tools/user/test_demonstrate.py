"""Demonstrations of a tool drafted from plain texts, without a model."""

from pathlib import Path

import pytest

from tests.build import Refused
from toolformer.cli import main
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.tools.user.demonstrate import demonstrations
from toolformer.tools.user.functions import FunctionTool

CODE = '''
SHELVES = {"red paint": "A28", "paint": "B14", "nail": "nail"}

def shelf(item: str) -> str | None:
    """Look up a shelf.

    >>> shelf("red paint")
    'A28'
    """
    return SHELVES.get(item.lower())

def double(number: int) -> int:
    """Double a number.

    >>> double(2)
    4
    """
    return 2 * number

def route(start: str, end: str) -> str:
    """Find a route."""
    return start + end
'''


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(CODE)
    return tmp_path / "shop.py"


@pytest.mark.parametrize(
    ("name", "text", "annotated"),
    [
        ("shelf", "The red paint, on A28, is dry.", 'The red paint, on [shelf("red paint")] A28, is dry.'),
        (
            "shelf",
            "On A28 stands\nthe red paint: A28!",
            'On A28 stands the red paint: [shelf("red paint")] A28!',
        ),
        ("double", "Twice 21 is 42, not 420.", "Twice 21 is [double(21)] 42, not 420."),
        ("shelf", "A28 has the red paint.", None),  # at inference the model has not read the input yet
        ("shelf", "The red paint is on A283.", None),
        ("shelf", "A nail is a nail.", None),
        ("shelf", "The red paint is on A28. " + "So it is. " * 30, None),  # too long for a prompt
    ],
)
def test_a_call_goes_before_its_result(source: Path, name: str, text: str, annotated: str | None) -> None:
    tool = FunctionTool(f"{source}:{name}")
    pairs = demonstrations(tool, [Document("d", text.replace("\n", "\n"))])
    assert [pair[1] for pair in pairs] == ([annotated] if annotated else [])


def test_a_tool_with_several_arguments_is_refused(source: Path) -> None:
    with pytest.raises(UserError, match="needs several arguments; write its demonstrations by hand"):
        demonstrations(FunctionTool(f"{source}:route"), [])


def test_the_command_prints_what_an_experiment_takes(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "The red paint is on A28."}\n' * 9)
    words = [
        "shelf",
        "--demonstrations",
        f"tool_sources=[{source}]",
        "corpus=jsonl",
        f"corpus.path={tmp_path}/texts.jsonl",
    ]
    assert main(["tool", *words]) == 0
    drafted = tmp_path / "experiment" / "drafted.yaml"
    drafted.parent.mkdir()
    drafted.write_text("# @package _global_\n" + capsys.readouterr().out)
    assert (
        main(
            [
                "generate",
                f"hydra.searchpath=[{tmp_path}]",
                "experiment=drafted",
                "--cfg",
                "job",
                *words[2:],
                "tools=[shelf]",
            ]
        )
        == 0
    )
    assert '[shelf("red paint")]' in capsys.readouterr().out


def test_texts_without_results_are_named(source: Path, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "Nothing here."}\n')
    words = [f"tool_sources=[{source}]", "corpus=jsonl", f"corpus.path={tmp_path}/texts.jsonl"]
    assert "in the corpus's first 10 texts, no input of shelf is followed by its result" in refused(
        "tool", "shelf", "--demonstrations", *words
    )
