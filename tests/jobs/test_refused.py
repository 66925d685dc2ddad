"""Bad input that spoils a run of hours, refused before a model is loaded."""

import json
from pathlib import Path

import pytest

from tests.build import Capture, Refused, smoke_words
from toolformer.cli import main


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Four texts without a date, an address or an article."""
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": f"{n} + 1 = {n + 1} ships"}) + "\n" for n in range(4)))
    return path


def words(texts: Path, *more: str) -> list[str]:
    return [
        *smoke_words(texts.parent / "runs"),
        "corpus=jsonl",
        f"corpus.path={texts}",
        "heldout_share=0",
        *more,
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["tools=[calendar]"], "tool.calendar is tried in texts with a date, and none of the corpus's 4 has one: name its field (corpus.url_field"),
        (["tools=[calendar,calculator]", "generate.limit_per_tool=25000"], "tool.calendar is tried in texts with a date"),
        (["tools=[calculator]", "tool.calculator.selector=article"], "tool.calculator is tried in texts with a source_id"),
    ],
)  # fmt: skip
def test_texts_that_a_tool_cannot_be_tried_in(
    texts: Path, refused: Refused, more: list[str], said: str
) -> None:
    assert said in refused("generate", *words(texts, "corpus.limit=null", *more))
    assert not [*(texts.parent / "runs").glob("annotate/*/*.parquet")]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("lm.device=cuda:7", "lm.device=cuda:7 cannot be used"),
        ("model=nobody/nothing", "model: nobody/nothing cannot be loaded"),
        ("tool.calculator.implementation._target_=pathlib.Path", "tool.calculator.implementation: pathlib.Path is not a Tool"),
    ],
)  # fmt: skip
def test_an_annotation_that_cannot_work_begins_no_run(
    texts: Path, refused: Refused, more: str, said: str
) -> None:
    assert said in refused("generate", *words(texts, "corpus.limit=null", "tools=[calculator]", more))
    assert not [*(texts.parent / "runs").glob("generate/*")]


@pytest.mark.parametrize("field", ["date", "url"])
def test_a_text_with_a_date_is_enough(texts: Path, field: str) -> None:
    row = {
        "text": "One more ship came in.",
        field: {"date": "2020-05-01", "url": "https://a.org/2020/05/01/ship"}[field],
    }
    texts.write_text(texts.read_text() + json.dumps(row) + "\n")
    assert main(["generate", *words(texts, "corpus.limit=null", "tools=[calendar]")]) == 0


def test_other_tools_go_on_without_dates(texts: Path, capsys: Capture) -> None:
    assert main(["generate", *words(texts, "corpus.limit=null", "tools=[calendar,calculator]")]) == 0
    assert "generate: tool.calendar is tried in texts with a date, and none" in capsys.readouterr().err


@pytest.mark.parametrize("stage", ["generate", "train", "evaluate", "run"])
@pytest.mark.parametrize(
    "more", [["filter_threshold=1"], ["filter_threshold=9", "tool.calendar.filter_threshold=2"]]
)
def test_a_floor_above_a_threshold(stage: str, more: list[str], tmp_path: Path, refused: Refused) -> None:
    tools = [f"tool.{tool}.filter_threshold=null" for tool in ("calendar", "calculator")]
    line = refused(stage, *smoke_words(tmp_path / "runs"), "score.floor=5", *tools, *more)
    assert "score.floor is 5, above the filter_threshold" in line and not (tmp_path / "runs").exists()
