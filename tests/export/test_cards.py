"""Cards publish names, and settings that decide; nothing of the machine."""

from pathlib import Path

import pytest

from toolformer.export import FORMATS, cards, export_dataset
from toolformer.results import Results, Run, RunInfo
from toolformer.step import Step

SECRET = "hunter2"
SETTINGS = {
    "filter_threshold": {"calculator": 0.5},
    "corpus": {"path": "/home/me/texts.jsonl", "limit": 8},
    "tool": {"qa": {"implementation": {"base_url": "http://gpu.example.org:8000", "port": 8000}}},
    "lm": {"dtype": "bfloat16", "device": "cuda"},
}
PRIVATE = ("/home/me", "example.org", "8000", "sqlite", SECRET, "tracking.uri")


def card_of(results: Results, annotation: Run, folder: Path) -> str:
    export_dataset(results, annotation, folder)
    return (folder / "README.md").read_text(encoding="utf-8")


def test_a_card_names_nothing_of_this_machine(results: Results, annotation: Run, tmp_path: Path) -> None:
    step = Step("generate", 1, SETTINGS, {"of": annotation.step})
    command = (
        f"toolformer generate tracking.uri=sqlite:////home/me/{SECRET}.db corpus.path=/home/me/texts.jsonl"
    )
    config = {"model": "/home/me/llama", "corpus": {"source": "jsonl"}}
    with results.open(
        step, RunInfo("x", config, command, facts={"corpus": "/home/me/texts.jsonl"})
    ) as at_work:
        for name in annotation.digests:
            at_work.artifact(annotation.folder / name)
    card = card_of(results, results.get(step.key()), tmp_path / "out")
    assert "| generate | lm.dtype | bfloat16 |" in card and "| corpus | texts.jsonl |" in card
    assert "annotating model | llama" in card
    assert [text for text in PRIVATE if text in card] == []


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("/home/me/llama/", "llama"),
        ("~/llama", "llama"),
        ("models/of/mine", "mine"),
        ("owner/name", "owner/name"),
        ("smollm2", "smollm2"),
        (f"https://me:{SECRET}@host/corpus?key={SECRET}", "corpus"),
        ("http://gpu.example.org:8000", "an address"),
        ("sqlite:////home/me/mlflow.db", "mlflow.db"),
    ],
)
def test_names_have_no_folders_and_hosts(name: str, part: str) -> None:
    assert cards.last_part(name) == part


def test_formats_are_the_documented_ones() -> None:
    page = Path("docs/export.md").read_text(encoding="utf-8")
    assert [*FORMATS] == ["datasets", "trl", "dpo", "kto"] and all(f"`{name}`" in page for name in FORMATS)
