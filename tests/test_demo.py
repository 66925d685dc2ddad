"""The demo's steps; the demo itself is run by hand and in docs/results.md."""

from __future__ import annotations

from typing import Any

import pytest

from toolformer import experiments
from toolformer.cli import main
from toolformer.config import PAPER_SYSTEMS


def test_the_demo_evaluates_the_four_systems_and_ends_with_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stages do nothing here, their configurations are the real ones."""
    steps: list[tuple[str, list[str]]] = []

    def launch(stage: str, jobs: list[list[str]], *_: object) -> list[str]:
        steps.extend((stage, [word for word in job if "=" in word][-2:]) for job in jobs)
        return [f"{stage} {job[-1].removeprefix('dataset=')} {job[-2]}" for job in jobs]

    for stage in experiments._FINISHED:
        monkeypatch.setitem(experiments._FINISHED, stage, lambda config: None)
    monkeypatch.setattr(experiments, "launch", launch)
    monkeypatch.setattr(experiments, "parent_run", lambda *_, **__: "parent")
    monkeypatch.setattr(experiments, "run_stage", lambda stage, config: steps.append((stage, [config.name])))
    assert main(["demo", "seed=3"]) == 0
    dataset = "generate seed=3 experiment=demo"
    plain, augmented = (f"train {dataset} data={data}" for data in ("plain", "augmented"))
    trained = {"model_cc": plain, "toolformer_disabled": augmented, "toolformer": augmented}
    assert steps == [
        ("generate", ["experiment=demo", "seed=3"]),
        ("train", ["data=plain", f"dataset={dataset}"]),
        ("train", ["data=augmented", f"dataset={dataset}"]),
        ("evaluate", ["seed=3", "system=model"]),
        *(("evaluate", [f"system={one}", f"checkpoint={trained[one]}"]) for one in PAPER_SYSTEMS[1:]),
        ("report", ["demo"]),
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
