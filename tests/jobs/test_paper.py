"""Every table and figure of the paper, from runs of made-up models of its architectures in its setting."""

import csv
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import paper
from toolformer.cli import main

SHORT = [
    "trainer.max_steps=2", "trainer.batch_size=2", "trainer.micro_batch_size=2", "trainer.sequence_length=128",
    "trainer.eval_every=1", "trainer.deepspeed=null", "trainer.processes=1", "evaluation.limit=2",
    "filter_threshold=-100", "score.floor=-100", "heldout_share=0.3", "heldout_limit=4", "lm.dtype=float32", "engine.threads=1",
    *(f"tool.{tool}.{key}" for tool in ("calculator", "calendar", "search", "qa", "translation")
      for key in ("max_positions=3", "samples=6", "start_threshold=0.0", "filter_threshold=null")),
]  # fmt: skip
"""The paper's setting on sixteen texts, with two steps of training and two questions of each benchmark."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models, the texts and the benchmarks."""
    folder = tmp_path_factory.mktemp("paper")
    for name, architecture, width in (
        ("gpt2", "gpt2", 32),
        ("gpt2-medium", "gpt2", 48),
        ("gpt-j", "gptj", 64),
    ):
        paper.save_model(folder / name, architecture, width)
    paper.save_texts(folder / "texts", 16)
    paper.save_benchmarks(folder / "data")
    paper.save_articles(folder / "articles.json")
    paper.save_reader(folder / "atlas")
    return folder


def words(place: Path, *more: str, root: str = "runs") -> list[str]:
    """Tools: made-up checkpoints of Atlas, and the small encyclopedia in place of KILT's Wikipedia."""
    articles = (
        f"tool.{tool}.implementation.retriever.articles_path={place}/articles.json"
        for tool in ("search", "qa")
    )
    where = {"paths.root": root, "paths.data_dir": "data", "paths.cache": "cache", "corpus.path": "texts"}
    atlas = [
        "tool@tool.qa=qa_atlas", f"tool.qa.implementation.tokenizer={place}/atlas/t5", "tool.qa.implementation.passages=2",
        f"tool.qa.implementation.checkpoint_path={place}/atlas/large", f"tool.qa.inference.checkpoint_path={place}/atlas/xxl",
        "tool.qa.implementation.max_new_tokens=6",
    ]  # fmt: skip
    return [
        *(f"{key}={place}/{name}" for key, name in where.items()),
        "toolset=bundled",
        *articles,
        *atlas,
        *SHORT,
        *more,
    ]


def rows(report: Path, table: str) -> list[dict[str, Any]]:
    """Rows of a table's data file."""
    with (report / "tables" / f"{table}.csv").open(encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def test_figure_4_of_local_models_in_one_command(place: Path) -> None:
    models = [f"{place}/{name}" for name in ("gpt2", "gpt2-medium", "gpt-j")]
    assert main(["run", "-m", "experiment=figure4", f"model={','.join(models)}", *words(place)]) == 0
    report = place / "runs" / "report" / "figure4"
    assert (report / "figures" / "figure4.svg").stat().st_size > 1000
    points = rows(report, "by_size")
    assert {(row["Model"], row["System"]) for row in points} == {
        (model, system) for model in models for system in ("Toolformer", "Toolformer (disabled)")
    }
    assert all(row[benchmark] for row in points for benchmark in ("T-REx", "SVAMP", "WebQS"))
    (caption,) = (
        line for line in (report / "report.md").read_text().splitlines() if line.startswith("Mean percent")
    )
    assert (
        "Tools: Question Answering (Atlas (xxl) on 2 passages; BM25" in caption and "; Calculator." in caption
    )


def test_every_table_of_the_paper(place: Path) -> None:
    members = "run.experiments=[table2,table,table8,table9,table10]"
    setting = ["experiment=paper", members, f"model={place}/gpt-j", "tools=[calculator,calendar,search,qa]"]
    assert main(["run", *setting, *words(place, root="tables")]) == 0
    report = place / "tables" / "report" / "paper"
    tables = {path.stem for path in report.glob("tables/table*.csv")}
    assert tables == {f"table{number}" for number in range(2, 11)}
    for number in range(3, 9):
        systems = [row["Model"] for row in rows(report, f"table{number}")]
        assert systems[:3] == ["M", "M + CC", "Toolformer (disabled)"], number
    assert [row["k"] for row in rows(report, "table9")] == ["0", "1", "3", "10"]
    left = {row[""]: row for row in rows(report, "missing")}
    assert set(left) == {"Table 2", "Figure 4"} and left["Table 2"]["missing"] == "Machine Translation"
    for row in left.values():  # with all tools of Table 2, and with those of Figure 4
        assert "tools=[" not in row["command"]
        assert main([*shlex.split(row["command"])[1:], "--plan"]) == 0
