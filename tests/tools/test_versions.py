"""Results of every tool that needs no download, beside its VERSION in versions.json: neither changes without the other.

Write the file again: .venv/bin/python -m tests.tools.test_versions
"""

import datetime
import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.build import German, Writer
from tests.tools.build import ARTICLES
from toolformer.data import Document
from toolformer.jobs.config import compose
from toolformer.tools.base import Tool
from toolformer.tools.calculator import Calculator
from toolformer.tools.calendar import Calendar
from toolformer.tools.question_answering import QuestionAnswering
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.search import WikiSearch
from toolformer.tools.translation import FewShotTranslator, Translation
from toolformer.tools.user.functions import FunctionTool

PINNED = Path(__file__).with_name("versions.json")
DOCUMENT = Document("d", "An unrelated text.", date=datetime.date(2023, 1, 30))
SUMS = (
    "400/1400", "18 + 12 * 3", "723 / 252", "2.5 * 4", "(1 + 2) * (3 + 4)", "10 - 4 - 3", "100 / 10 / 4", "-3 + 5",
    "--2", "2 * -3", "7", "007", "1,234.5 + 1", "12,34", "1,000,000 / 3", "0.1 + 0.2", ".5 * 2", "1.", "1/3", "2/3",
    "0.005", "0.015", "-0.005", "-0.004", "1.115", "10%", "50% * 80", "(10 + 5)%", "11.4% * 2", "$5 + $3", "€1,000 / 4",
    "£ 2.50 * 2", "5 − 2", "3 × 4", "8 ÷ 3", "3 x 4", "3 X (4)", "2 ** 3", "5 // 2", "1 / 0", "0 / 5", "", "()", "(1",
    "1)", "1 2", "two", "1 + ", "((((((((((1))))))))))", "(" * 21 + "1" + ")" * 21, "9" * 30, "9" * 31, "1 + 1" * 60,
    "\t4\t*\t2\t", "4\n+ 2", "6 / 7 * 7",
)  # fmt: skip
FUNCTION = '''
def forecast(city: str, days: int = 1, units: list[str] = []) -> object:
    """Tell the weather."""
    return None if city == "nowhere" else {"city": city, "days": [days], "units": units}
'''


def written(prompt: str) -> str:
    """A hash of the prompt, and its last line but one."""
    return f" {hashlib.sha256(prompt.encode()).hexdigest()[:16]} {prompt.splitlines()[-2]}.\nmore"


CASES: dict[str, tuple[Callable[[Path], tuple[Tool, Sequence[type]]], Sequence[str]]] = {
    "calculator": (lambda _: (Calculator(), [Calculator]), SUMS),
    "calendar": (lambda _: (Calendar(), [Calendar]), ("", " ", "today")),
    "search": (
        lambda folder: (WikiSearch(BM25(str(folder / "articles.json"))), [WikiSearch, BM25]),
        ("lamp", "ships in a harbour", "grinding the grains of a miller", "compass", "a", "", "Zzyzx", "HONEY? bees!"),
    ),
    "qa": (
        lambda folder: (
            QuestionAnswering(BM25(str(folder / "articles.json")), Writer(written)),
            [QuestionAnswering, BM25],
        ),
        ("Who takes wax from hives?", "What shows north?", "Zzyzx?", " ?!", "w" * 301),
    ),
    "translation": (
        lambda _: (
            Translation(FewShotTranslator(Writer(written)), German()),  # type: ignore[arg-type]
            [Translation, FewShotTranslator],
        ),
        ("guten  Morgen\n", "Gift", "12,5 %!", "", "ä" * 501),
    ),
    "function": (
        lambda folder: (FunctionTool(f"{folder / 'forecast.py'}:forecast"), [FunctionTool]),
        (
            "Seoul", '"Seoul", 2', "city=Seoul", 'city="Seoul", days="3"', '"Seoul", units=["C", "a [b]"]', "",
            "days=2", '"Seoul", 1, [], 4', '"Seoul", x=1', "007", "nowhere", '"Seoul", many',
        ),
    ),
}  # fmt: skip


def pinned(key: str, folder: Path) -> dict[str, Any]:
    """The VERSION of each class that answers, and each input's result, or its reason in brackets."""
    rows = [{"title": title, "extract": text} for title, text in ARTICLES.items()]
    (folder / "articles.json").write_text(json.dumps(rows))
    (folder / "forecast.py").write_text(FUNCTION)
    make, inputs = CASES[key]
    tool, classes = make(folder)
    results = tool.run(inputs, [DOCUMENT] * len(inputs))
    return {
        "versions": {kind.__name__: vars(kind)["VERSION"] for kind in classes},
        "results": {
            text: f"[{result.reason}]" if result.text is None else result.text
            for text, result in zip(inputs, results, strict=True)
        },
    }


def check(key: str, before: dict[str, Any], folder: Path) -> None:
    now = pinned(key, folder)
    if before["versions"] == now["versions"]:
        assert now == before, f"{key}: the results changed: raise VERSION, or undo"
    else:
        pytest.fail(f"{key}: VERSION was raised; write the file again: python -m tests.tools.test_versions")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("key", CASES)
def test_results_change_only_with_the_version(key: str, folder: Path) -> None:
    check(key, json.loads(PINNED.read_text(encoding="utf-8"))[key], folder)


def test_every_bundled_tool_is_pinned() -> None:
    assert {*compose("generate", []).tool} <= {*CASES}


def test_a_change_without_a_new_version_fails(folder: Path) -> None:
    before = json.loads(PINNED.read_text(encoding="utf-8"))["calendar"]
    with pytest.raises(AssertionError, match="the results changed: raise VERSION, or undo"):
        check("calendar", {**before, "results": {}}, folder)
    with pytest.raises(pytest.fail.Exception, match="write the file again: python -m tests"):
        check("calendar", {**before, "versions": {"Calendar": 0}}, folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        made = {key: pinned(key, Path(name)) for key in CASES}
    PINNED.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
