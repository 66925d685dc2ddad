"""Results of every tool that needs no download, beside its VERSION in versions.json: neither changes without the other.

A tool that needs no fake part has its inputs in the file alone: {"units": {"results": {"5 km in miles": ""}}}.
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
from hydra.utils import instantiate

from tests.build import ARTICLES, German, Writer
from toolformer.data import Document
from toolformer.jobs.config import compose
from toolformer.tools.base import Tool
from toolformer.tools.question_answering import QuestionAnswering
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.search import WikiSearch
from toolformer.tools.translation import FewShotTranslator, Translation
from toolformer.tools.user.functions import FunctionTool

PINNED = Path(__file__).with_name("versions.json")
DOCUMENT = Document("d", "An unrelated text.", date=datetime.date(2023, 1, 30))
FUNCTION = '''
def forecast(city: str, days: int = 1, units: list[str] = []) -> object:
    """Tell the weather."""
    return None if city == "nowhere" else {"city": city, "days": [days], "units": units}
'''


def written(prompt: str) -> str:
    """A hash of the prompt, and its last line but one."""
    return f" {hashlib.sha256(prompt.encode()).hexdigest()[:16]} {prompt.splitlines()[-2]}.\nmore"


CASES: dict[str, tuple[Callable[[Path], tuple[Tool, Sequence[type]]], Sequence[str]]] = {
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
    if key in CASES:
        make, inputs = CASES[key]
        tool, classes = make(folder)
    else:
        inputs = list(json.loads(PINNED.read_text(encoding="utf-8"))[key]["results"])
        tool = instantiate(compose("generate", []).tool[key].implementation)
        classes = [type(tool)]
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


def keys() -> list[str]:
    """The bundled tools, and the further ones of the cases."""
    return sorted({*compose("generate", []).tool, *CASES})


@pytest.mark.parametrize("key", keys())
def test_results_change_only_with_the_version(key: str, folder: Path) -> None:
    check(key, json.loads(PINNED.read_text(encoding="utf-8"))[key], folder)


def test_a_change_without_a_new_version_fails(folder: Path) -> None:
    before = json.loads(PINNED.read_text(encoding="utf-8"))["calendar"]
    with pytest.raises(AssertionError, match="the results changed: raise VERSION, or undo"):
        check("calendar", {**before, "results": {}}, folder)
    with pytest.raises(pytest.fail.Exception, match="write the file again: python -m tests"):
        check("calendar", {**before, "versions": {"Calendar": 0}}, folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        made = {key: pinned(key, Path(name)) for key in keys()}
    PINNED.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
