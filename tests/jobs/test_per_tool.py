"""Annotation is a step per tool: what is changed in one tool, or added, annotates no other."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.build import Capture, Patch, smoke_words
from toolformer.annotation.merge import ENOUGH
from toolformer.cli import main
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.jobs import annotate, instantiate
from toolformer.jobs.annotate import Annotating, Texts
from toolformer.jobs.config import compose, effective, validate
from toolformer.jobs.share import Chunk
from toolformer.results import Results, Run


@pytest.fixture
def generate(tmp_path: Path) -> Any:
    """Annotates; returns the run and the names of the folders of shards that were written to."""

    def run(*more: str) -> tuple[Run, set[str]]:
        before = written(tmp_path)
        assert main(["generate", *smoke_words(tmp_path), "lm.dtype=float32", "engine.threads=1", *more]) == 0
        changed = {folder for folder, state in written(tmp_path).items() if state != before.get(folder)}
        return Results(tmp_path).runs("generate")[0], changed

    return run


def written(root: Path) -> dict[str, Any]:
    """The state of the shards in each folder."""
    folders = [folder for folder in root.glob("annotate/*") if folder.is_dir()]
    return {
        folder.name: sorted((file.name, file.stat().st_mtime_ns) for file in folder.glob("*.parquet"))
        for folder in folders
    }


def folders(run: Run) -> dict[str, str]:
    """The folder of each tool's shards."""
    return {next(iter(step.settings["tool"])): step.key() for step in run.step.find_all("annotate")}


def calls(run: Run, tool: str) -> list[Any]:
    rows = pq.read_table(run.folder / "candidates.parquet").to_pylist()
    return [row for row in rows if row["tool"] == tool]


def test_an_added_tool_is_annotated_alone(generate: Any) -> None:
    one, first = generate("tools=[calendar]")
    both, added = generate()
    assert first == {folders(one)["calendar"]} and added == {folders(both)["calculator"]}
    assert calls(one, "calendar") == calls(both, "calendar") and calls(both, "calculator")
    assert generate("tools=[calculator,calendar]")[0].id == both.id, "their order does not count"


def test_a_changed_tool_is_annotated_alone(generate: Any) -> None:
    before, _ = generate()
    after, changed = generate("tool.calculator.samples=3")
    assert changed == {folders(after)["calculator"]} and folders(before)["calendar"] not in changed
    assert calls(before, "calendar") == calls(after, "calendar")
    assert calls(before, "calculator") != calls(after, "calculator")


def test_a_tool_with_its_examples_is_sampled_no_more(generate: Any, tmp_path: Path) -> None:
    """And C* is the same, whoever annotated how much."""
    kept = "tool.calendar.filter_threshold=-100"
    limited, _ = generate("generate.limit_per_tool=2", "generate.shard_size=1", "tools=[calendar]", kept)
    texts = pq.read_table(limited.folder / "dataset_augmented.parquet").to_pylist()
    few = len(written(tmp_path)[folders(limited)["calendar"]])
    assert len(texts) == limited.metrics["texts_kept"] == 2
    assert 2 <= few < limited.metrics["documents"]
    whole, _ = generate("generate.shard_size=1", "tools=[calendar]", kept)
    first = pq.read_table(whole.folder / "dataset_augmented.parquet").to_pylist()[:2]
    assert first == texts and len(written(tmp_path)[folders(whole)["calendar"]]) == whole.metrics["documents"]
    before = (limited.folder / "candidates.parquet").read_bytes()
    (limited.folder / "candidates.parquet").unlink()
    again, _ = generate("generate.limit_per_tool=2", "generate.shard_size=1", "tools=[calendar]", kept)
    assert again.id == limited.id and (again.folder / "candidates.parquet").read_bytes() == before
    reasons = {row["reason"] for row in calls(again, "calendar")}
    assert ENOUGH not in reasons, "a shard of one text ends with the last example"


@pytest.mark.chaos
def test_workers_that_reach_a_limit_give_the_same_bytes(generate: Any, tmp_path: Path) -> None:
    words = ["generate.limit_per_tool=3", "generate.shard_size=1", "tool.calendar.filter_threshold=-100"]
    alone, _ = generate(*words)
    before = (alone.folder / "candidates.parquet").read_bytes()
    for folder in [*tmp_path.glob("annotate/*/*"), alone.folder / "candidates.parquet"]:
        folder.unlink() if folder.is_file() else None
    again, changed = generate(*words, "engine.workers=2")
    assert again.id == alone.id and changed
    assert (again.folder / "candidates.parquet").read_bytes() == before


def test_shards_of_other_code_are_recorded_as_theirs(
    generate: Any, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setattr(annotate, "git_commit", lambda: "c0ffee" * 6)
    first, _ = generate("tools=[calendar]")
    monkeypatch.undo()
    shards = sum(first.facts["annotated_by"].values())
    assert first.facts["annotated_by"] == {"c0ffee" * 6: shards}
    capsys.readouterr()
    second, _ = generate("tools=[calendar]", "tool.calendar.filter_threshold=2")
    assert second.facts["annotated_by"] == first.facts["annotated_by"] and second.commit != "c0ffee" * 6
    assert f"of {shards} shards, other code made {shards} by c0ffeec0" in capsys.readouterr().err


def test_a_worker_that_finds_another_tool_refuses(tmp_path: Path) -> None:
    """Such as one that was started when the tool's file had been edited."""
    config = effective(validate(compose("generate", smoke_words(tmp_path))), "generate")
    work = Annotating(
        config, {"calendar": tmp_path / "0123456789abcdef"}, Texts(config), instantiate.keep_rules(config)
    )
    with pytest.raises(UserError, match="tool.calendar: its files have changed since this command began"):
        work.do(work.load(), Chunk("calendar/one", [Document("d", "x")]))
