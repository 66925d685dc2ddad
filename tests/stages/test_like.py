"""`like=RUN` composes to what the run logged, with the other words over it."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolformer.errors import UserError
from toolformer.stages.config import Config, compose, validate
from toolformer.stages.config.tool_sources import MCP
from toolformer.tracking import Tracker


def configured(stage: str, root: Path, *words: str) -> Config:
    return validate(compose(stage, [*words, f"paths.root={root}"]), stage)


def plain(config: Config) -> Any:
    return yaml.safe_load(yaml.safe_dump(asdict(config)))


def test_every_run_is_repeated_by_like(smoke_runs: Path) -> None:
    tracker = Tracker(None, smoke_runs)
    for stage in ("generate", "train", "evaluate"):
        for run in tracker.runs(stage):
            logged = yaml.safe_load(tracker.artifact_path(run, "config.yaml").read_text(encoding="utf-8"))
            assert plain(configured(stage, smoke_runs, f"like={run.run_id[:8]}")) == logged


def test_an_id_that_looks_like_a_number_is_an_id() -> None:
    config = compose("evaluate", ["dataset=52137e92", "checkpoint=52137e92"])
    assert config.dataset == config.checkpoint == "52137e92"


def test_the_other_words_go_over_it(smoke_runs: Path) -> None:
    run = Tracker(None, smoke_runs).runs("evaluate", system="toolformer")[0]

    def of(*words: str) -> Any:
        return plain(configured("evaluate", smoke_runs, *words))

    same = of(f"like={run.run_id}")
    words = ["system=model", "benchmarks=[dateset]", "tool.calculator.samples=7", "evaluation.limit=null"]
    decoding = of("decoding=greedy")["decoding"]
    expected = {**same, "system": "model", "benchmarks": ["dateset"], "decoding": decoding}
    expected["tool"] = {**same["tool"], "calculator": {**same["tool"]["calculator"], "samples": 7}}
    expected["evaluation"] = {**same["evaluation"], "limit": None}
    assert of(f"like={run.run_id}", *words, "decoding=greedy") == expected
    by_group = of(f"like={run.run_id}", "benchmark=math", "toolset=scaling")
    assert by_group == {**same, "benchmarks": ["math"], "tools": ["qa", "calculator", "search"]}


def logged(root: Path, *words: str, **tool: Any) -> str:
    """A run of a configuration; of the calculator with `tool` for its implementation."""
    config = asdict(configured("generate", root, *words))
    config["tool"]["calculator"]["implementation"] |= tool
    if "_target_" in tool:  # as its source had made it
        config["tool_sources"] = [{"command": "x", "args": ["a"]}]
    with Tracker(None, root).run(stage="generate", name="g", fingerprint=str(tool), config=config) as run:
        return run.run_id


def test_tools_of_ones_own_are_repeated(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text('def double(number: int) -> int:\n    """Double a number."""\n    return 2 * number\n')
    words = ["+tool@tool.double=user", f"tool_sources=[{source}]", "tool.double.example='double(2) -> 4'"]
    words += ["tools=[double]"]
    config = configured("generate", tmp_path, f"like={logged(tmp_path, *words)}")
    assert config.tools == ["double"] and config.tool["double"].implementation["name"] == "double"
    server = logged(tmp_path, _target_=MCP, args=["a"])
    words = [f"like={server}", "tool_sources=[{command: x, args: [b]}]", f"paths.root={tmp_path}"]
    assert compose("generate", words).tool.calculator.implementation == {}, "the source says it anew"


def test_what_is_masked_is_asked_for_by_its_key(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/v1/completions"
    words = ["tool@tool.qa=qa_endpoint", f"tool.qa.implementation.generate.url={url}"]
    run = logged(tmp_path, *words, key="***")
    with pytest.raises(UserError, match=r"like: tool\.calculator\.implementation\.key of run \w+ is masked"):
        configured("generate", tmp_path, f"like={run}")
    again = configured("generate", tmp_path, f"like={run}", "tool@tool.calculator=calculator")
    assert again.tool["qa"].implementation["generate"]["url"] == url


def test_mistakes_are_one_line(smoke_runs: Path) -> None:
    for words, reason in (
        (["like=0123abcd"], "there is no run 0123abcd"),
        (["like=latest", "name=smoke", "setting=paper"], "setting: like=RUN says what setting would"),
        (["like=latest", "name=smoke", "trainer.max_step=3"], "trainer.max_step"),
    ):
        with pytest.raises(UserError, match=reason):
            configured("train", smoke_runs, *words)
