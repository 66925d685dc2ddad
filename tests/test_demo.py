"""The demo's steps; the demo itself is run by hand and in docs/results.md."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from toolformer import demo as module
from toolformer.cli import main
from toolformer.config import PAPER_SYSTEMS, Config


def test_the_demo_evaluates_the_four_systems_and_ends_with_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stages do nothing here, their configurations are the real ones."""
    steps: list[tuple[str, Any]] = []

    def stage(name: str, shown: Any) -> Any:
        def run(config: Config) -> SimpleNamespace:
            assert config.name == "demo"
            steps.append((name, shown(config)))
            return SimpleNamespace(run_id=f"{name} {shown(config)}")

        return run

    monkeypatch.setattr(module, "generate", stage("generate", lambda c: c.corpus.source))
    monkeypatch.setattr(module, "train", stage("train", lambda c: c.data))
    monkeypatch.setattr(module, "evaluate", stage("evaluate", lambda c: (c.system, c.checkpoint)))
    monkeypatch.setattr(module, "report", stage("report", lambda c: c.name))
    module.demo(["seed=3"])
    trained = {"model_cc": "train plain"}
    assert steps == [
        ("generate", "demo"),
        ("train", "plain"),
        ("train", "augmented"),
        *(("evaluate", (one, trained.get(one, "train augmented"))) for one in PAPER_SYSTEMS),
        ("report", "demo"),
    ]


def test_the_demo_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--help"]) == 0
    assert "usage: toolformer demo" in capsys.readouterr().out


def test_another_file_at_the_same_path_is_another_tool(tmp_path: Any) -> None:
    from toolformer import build
    from toolformer.config import ToolConfig

    path = tmp_path / "articles.json"
    tool = ToolConfig(implementation={"retriever": {"articles_path": str(path)}})
    path.write_text("[]")
    before = build.tool_identity(tool)
    assert build.tool_identity(tool) == before
    path.write_text('[{"title": "A", "extract": "B"}]')
    assert build.tool_identity(tool) != before
