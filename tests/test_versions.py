"""Results of the smallest experiment, an explanation, few-shot prompting and LoRA, with the VERSION of each step's code; and the
defaults of the settings that decide each step, since a key hashes only what differs from them.

Neither changes without the VERSION. `UPDATE_GOLDEN=1 pytest tests/test_versions.py` writes the pins again. Decisions are
compared exactly, numbers within what another processor's rounding moves. The results of tools are pinned in
`tests/tools/test_versions.py`.
"""

import copy
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.build import smoke_words
from toolformer.calls import ApiCall, linearise
from toolformer.cli import main
from toolformer.decoding.settings import PAPER_SYSTEMS
from toolformer.evaluation.ladder.classes import RUNGS
from toolformer.jobs.config import Config
from toolformer.jobs.config.schema import ToolConfig
from toolformer.jobs.versions import VERSIONS
from toolformer.reporting.reader import explained_tasks
from toolformer.results import Results, Run
from toolformer.step import Step, all_settings, normalised

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "UPDATE_GOLDEN=1 pytest tests/test_versions.py"
STEPS = ("annotate", "generate", "train", "answer", "evaluate", "explain", "prompted", "lora")
CALLS = ("doc_id", "tool", "position", "sample", "written", "call", "status")
LOSSES = ("start_probability", "loss_none", "loss_no_result", "loss_result")
INTERVAL = ("score", "ci_low", "ci_high")


def made(root: Path) -> dict[str, dict[str, Any]]:
    """Of each step its versions, its decisions, and its numbers."""
    results = Results(root)
    (annotated,) = results.runs("generate")
    trained = {data: results.runs("train", data=data)[-1] for data in ("plain", "augmented")}
    lora = results.runs("train", data="augmented")[0]
    evaluated = {system: results.runs("evaluate", system=system)[-1] for system in PAPER_SYSTEMS}
    parts: dict[str, tuple[Any, list[Any]]] = {
        "annotate": (
            columns(with_text(table(annotated, "candidates")), CALLS),
            columns(table(annotated, "candidates"), LOSSES),
        ),
        "generate": (
            [
                columns(table(annotated, "candidates"), ("kept", "reason")),
                columns(table(annotated, "dataset_augmented"), ("doc_id", "text")),
                columns(table(annotated, "dataset_plain"), ("doc_id", "text")),
            ],
            columns(table(annotated, "candidates"), ("filter_gain", "threshold")),
        ),
        "train": (
            {data: [run.metrics["texts"], run.metrics["train_steps"]] for data, run in trained.items()},
            [curve for run in trained.values() for curve in run.curve("heldout_perplexity")],
        ),
        "answer": (
            {
                system: columns(table(run, "samples/dateset"), ("id", "completion", "call_result"))
                for system, run in evaluated.items()
            },
            [
                columns(table(run, "samples/heldout_perplexity"), ("log_likelihood",))
                for run in evaluated.values()
            ],
        ),
        "evaluate": (
            {
                system: columns(table(run, "samples/dateset"), ("prediction", "score"))
                for system, run in evaluated.items()
            },
            [[run.tasks["dateset"][name] for name in INTERVAL] for run in evaluated.values()]
            + [[run.tasks["heldout_perplexity"]["perplexity"]] for run in evaluated.values()],
        ),
    }
    (explained,) = filter(explained_tasks, results.runs("evaluate"))
    classes = ("id", "class", "position", "call", "result", "forced_call", *RUNGS)
    rights = [f"{rung}_right" for rung in RUNGS]
    parts["explain"] = (
        columns(table(explained, "ladder/dateset"), classes),
        columns(table(explained, "ladder/dateset"), rights),
    )
    (prompted,) = results.runs("evaluate", system="prompted")
    parts["prompted"] = (
        columns(table(prompted, "samples/dateset"), ("id", "completion", "call_result", "failed")),
        columns(table(prompted, "samples/dateset"), ("score",)),
    )
    parts["lora"] = (
        [lora.metrics["texts"], lora.metrics["train_steps"]],
        [list(point) for point in lora.curve("heldout_perplexity")],
    )
    last = evaluated["toolformer"].step  # made from all the others
    of_steps = {"explain": explained.step, "prompted": prompted.step.find("answer") or prompted.step}
    of_steps["lora"] = lora.step
    pins = {
        name: {
            "versions": versions(of_steps.get(name) or last.find(name) or last),
            "decisions": decisions,
            "numbers": numbers,
        }
        for name, (decisions, numbers) in parts.items()
    }
    return dict(json.loads(json.dumps(pins)))


def table(run: Run, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run.folder / f"{name}.parquet").to_pylist()
    return rows


def with_text(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Candidates with their calls as texts."""
    return [{**row, "call": row["call"] and linearise(ApiCall.of_row(row["call"]))} for row in rows]


def columns(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> list[list[Any]]:
    return [[row[name] for name in names] for row in rows]


def versions(step: Step) -> dict[str, int]:
    """Its version and those of what it was made from, tools included."""
    found = {step.name: step.version}
    for classes, _files in step.inputs.get("tools", {}).values():
        found |= {name.rpartition(".")[2]: version for name, version in classes.items()}
    found |= {"oracles": step.inputs["oracles"]} if "oracles" in step.inputs else {}
    for part in step.steps():
        found |= versions(part)
    return found


def check(name: str, now: Mapping[str, Any], pinned: Mapping[str, Any]) -> None:
    if now["versions"] != pinned["versions"]:
        pytest.fail(f"{name}: a VERSION was raised; write the file again: {UPDATE}")
    same = now["decisions"] == pinned["decisions"]
    same = same and flat(now["numbers"]) == pytest.approx(
        flat(pinned["numbers"]), rel=1e-3, abs=2e-3, nan_ok=True
    )
    assert same, f"{name}: the results changed: raise VERSION, or undo"


def flat(numbers: Any) -> list[float]:
    if not isinstance(numbers, list):
        return [float("nan") if numbers is None else numbers]
    return [number for part in numbers for number in flat(part)]


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory, smoke_runs: Path) -> dict[str, dict[str, Any]]:
    root = tmp_path_factory.mktemp("pinned") / "runs"
    shutil.copytree(smoke_runs, root)
    assert main(["explain", "latest", "name=smoke", f"paths.root={root}"]) == 0
    assert main(["evaluate", *smoke_words(root), "system=prompted", "benchmarks=[dateset]"]) == 0
    assert main(["train", *smoke_words(root), "trainer.lora_rank=2", "trainer.learning_rate=0.01"]) == 0
    steps = made(root)
    if os.environ.get("UPDATE_GOLDEN"):
        for name, step in steps.items():
            (GOLDEN / f"{name}.json").write_text(json.dumps(step, indent=1, ensure_ascii=False) + "\n")
    return steps


def pinned(name: str) -> dict[str, Any]:
    return dict(json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", STEPS)
def test_results_change_only_with_the_version(name: str, now: dict[str, dict[str, Any]]) -> None:
    check(name, now[name], pinned(name))


@pytest.mark.parametrize("name", STEPS)
def test_changed_results_need_a_new_version(name: str) -> None:
    changed = copy.deepcopy(pinned(name))
    changed["numbers"][0][0] = 2 * flat(changed["numbers"])[0] + 1
    with pytest.raises(AssertionError, match=f"{name}: the results changed: raise VERSION, or undo"):
        check(name, changed, pinned(name))
    changed["versions"][next(iter(changed["versions"]))] += 1
    with pytest.raises(pytest.fail.Exception, match="write the file again: UPDATE_GOLDEN=1"):
        check(name, changed, pinned(name))


def defaults() -> dict[str, dict[str, Any]]:
    """Of each step its version, and the defaults of the settings that decide it."""
    settings = [*all_settings(Config(tool={"TOOL": ToolConfig()}))]
    pins = {
        step: {
            "version": version,
            "defaults": {
                setting.key: normalised(setting.default) for setting in settings if setting.decides(step)
            },
        }
        for step, version in VERSIONS.items()
    }
    return dict(json.loads(json.dumps(pins, default=str)))


def check_defaults(now: Mapping[str, Any], pinned: Mapping[str, Any]) -> None:
    for step, pins in now.items():
        before = pinned.get(step, {"version": None, "defaults": {}})
        if pins["version"] == before["version"]:
            known = pins["defaults"].keys() & before["defaults"].keys()
            changed = sorted(key for key in known if pins["defaults"][key] != before["defaults"][key])
            assert not changed, f"{step}: the default of {changed[0]} changed: raise VERSION, or put it back"
    assert now == pinned, f"settings or versions changed; write the file again: {UPDATE}"


def test_defaults_change_only_with_the_version() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / "defaults.json").write_text(json.dumps(defaults(), indent=1, ensure_ascii=False) + "\n")
    check_defaults(defaults(), pinned("defaults"))


def test_a_changed_default_needs_a_new_version() -> None:
    changed = copy.deepcopy(defaults())
    changed["train"]["defaults"]["trainer.learning_rate"] = 1.0
    with pytest.raises(AssertionError, match=r"train: the default of trainer.learning_rate changed: raise"):
        check_defaults(changed, defaults())
    changed["train"]["version"] += 1
    with pytest.raises(AssertionError, match="write the file again: UPDATE_GOLDEN=1"):
        check_defaults(changed, defaults())
