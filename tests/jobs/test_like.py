"""`like=RUN` composes to what the run logged, with the other words over it, and takes no more than values from it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolformer.cli import commands
from toolformer.errors import UserError
from toolformer.jobs.config import Config, compose, validate
from toolformer.results import Results, RunInfo
from toolformer.step import Step


def configured(stage: str, root: Path, *words: str) -> Config:
    return validate(compose(stage, [*words, f"paths.root={root}"]), stage)


def plain(config: Config) -> Any:
    return yaml.safe_load(yaml.safe_dump(asdict(config)))


def test_every_run_is_repeated_by_like(smoke_runs: Path) -> None:
    for run in Results(smoke_runs).all_runs("generate", "train", "evaluate"):
        logged = yaml.safe_load((run.folder / "config.yaml").read_text(encoding="utf-8"))
        again = plain(configured(run.stage, smoke_runs, f"like={run.id[:8]}", f"model={logged['model']}"))
        own = ("run", "paths")  # the experiment that made it, and this machine's places
        assert {**again, **{key: logged[key] for key in own}} == logged


def test_the_other_words_go_over_it(smoke_runs: Path) -> None:
    numeric = compose("evaluate", ["dataset=52137e92", "checkpoint=52137e92"])
    assert numeric.dataset == numeric.checkpoint == "52137e92", "an id that looks like a number"
    (run,) = Results(smoke_runs).runs("evaluate", system="toolformer")

    def of(*words: str) -> Any:
        return plain(configured("evaluate", smoke_runs, *words))

    same = of(f"like={run.id}")
    words = [
        "system=model",
        f"model={smoke_runs}",
        "benchmarks=[dateset]",
        "tool.calculator.samples=7",
        "evaluation.limit=null",
    ]
    expected = {**same, "system": "model", "model": str(smoke_runs), "benchmarks": ["dateset"]}
    expected["tool"] = {**same["tool"], "calculator": {**same["tool"]["calculator"], "samples": 7}}
    expected["evaluation"] = {**same["evaluation"], "limit": None}
    assert of(f"like={run.id}", *words) == expected


def tracked(root: Path, config: dict[str, Any], stage: str = "generate") -> str:
    """A run that says of itself that it had this configuration."""
    step = Step(stage, 1, config)
    beginning = RunInfo("g", config, experiment="default", facts={"system": "toolformer"})
    with Results(root).open(step, beginning):
        pass
    return step.key()


def test_tools_of_ones_own_are_named_again(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text('def double(number: int) -> int:\n    """Double a number."""\n    return 2 * number\n')
    again = f"tool_sources=[{source}]"
    words = ["+tool@tool.double=user", again, "tool.double.example='double(2) -> 4'", "tools=[double]"]
    run = tracked(tmp_path, asdict(configured("generate", tmp_path, *words)))
    with pytest.raises(
        UserError, match=rf"like: run {run[:8]} had tool_sources=\[\"/.*mine.py\"\], not copied"
    ):
        configured("generate", tmp_path, f"like={run}")
    config = configured("generate", tmp_path, f"like={run}", again)
    assert config.tools == ["double"] and config.tool["double"].implementation["name"] == "double"
    assert config.tool["double"].example == "double(2) -> 4"


def test_the_named_overrides_can_be_repeated_as_they_are(tmp_path: Path) -> None:
    words = ["+tool.qa.implementation.passages=1", "tool.search.implementation.max_tokens=9", "seed=3"]
    run = tracked(tmp_path, asdict(configured("generate", tmp_path, *words)))
    with pytest.raises(UserError) as error:
        configured("generate", tmp_path, f"like={run}")
    named = str(error.value).partition(" had ")[2].partition(", not copied")[0].split()
    config = configured("generate", tmp_path, f"like={run}", *named)
    assert config.tool["qa"].implementation["passages"] == 1 and config.seed == 3
    assert config.tool["search"].implementation["max_tokens"] == 9


def test_what_a_run_had_beside_values_is_asked_for_by_its_key(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/v1/completions"
    words = [
        "tool@tool.qa=qa_endpoint",
        f"tool.qa.implementation.generate.url={url}",
        "tools=[calculator,qa]",
    ]
    logged = asdict(configured("generate", tmp_path, *words))
    logged["tool"]["calculator"]["implementation"]["key"] = "***"
    run = tracked(tmp_path, logged)
    with pytest.raises(UserError, match=r"had \+tool\.calculator\.implementation\.key=\*\*\* tool\.qa\."):
        configured("generate", tmp_path, f"like={run}")
    words = [f"like={run}", "tool@tool.calculator=calculator"]
    with pytest.raises(UserError, match=rf"{run[:8]} had tool\.qa\.implementation\.generate\..*\.url={url}"):
        configured("generate", tmp_path, *words)
    other = "http://127.0.0.1:2/v1/completions"
    words += ["tool@tool.qa=qa_endpoint", f"tool.qa.implementation.generate.url={other}"]
    assert configured("generate", tmp_path, *words).tool["qa"].implementation["generate"]["url"] == other
    assert configured("generate", tmp_path, f"like={run}", "tools=[search]").tools == ["search"], "not in use"


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"tool_sources": [{"command": "touch", "args": ["PLANTED"]}]}, "tool_sources="),
        ({"tool_sources": ["PLANTED.py"]}, "tool_sources="),
        ({"tool": {"calculator": {"implementation": {"_target_": "pandas.read_pickle"}}}}, r"implementation\._target_="),
        ({"tool": {"calculator": {"inference": {"_target_": "joblib.load"}}}}, r"inference\._target_="),
        ({"tool": {"new": {"implementation": {"_target_": "sympy.sympify"}}}, "tools": ["new"]}, r"tool\.new\.implementation\._target_="),
        ({"paths": {"tasks_dir": "PLANTED"}}, r"paths\.tasks_dir="),
        ({"name": "${oc.env:SECRET}"}, r"holds \$\{"),
        ({"corpus": {"source": "jsonl", "path": "PLANTED"}}, None),
        ({"heldout": {"source": "jsonl", "path": "PLANTED"}}, r"heldout\.path="),
        ({"evaluation": {"samples": "PLANTED"}}, r"evaluation\.samples="),
        ({"prompts": "PLANTED"}, r"prompts="),
        ({"tool": {"calculator": {"prompt": "PLANTED"}}}, r"tool\.calculator\.prompt="),
        ({"tool": {"calculator": {"prompt": "a/../../PLANTED"}}}, r"tool\.calculator\.prompt="),
        ({"system": "model", "model": "PLANTED"}, r"model="),
        ({"system": "model", "model": 5000 * "x" + "/../PLANTED"}, r"model="),
        ({"tool": {"calculator": {"demonstrations": [{"text": "${oc.env:SECRET}", "annotated": ""}]}}}, r"holds \$\{"),
        ({"engine": {"address": "127.0.0.1:1"}, "tracking": {"uri": "http://127.0.0.1:1"}}, None),
    ],
    ids=[
        *("command", "python", "target", "inference", "new", "tasks", "name", "corpus", "heldout", "samples"),
        *("prompts", "prompt", "upwards", "model", "long", "list", "engine"),
    ],
)  # fmt: skip
def test_a_strangers_run_starts_and_reads_nothing(
    tmp_path: Path, changed: dict[str, Any], refusal: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    planted = tmp_path / "planted"
    planted.with_suffix(".py").write_text(f"open({str(planted)!r}, 'w')")
    changed = json.loads(json.dumps(changed).replace("PLANTED", str(planted)))
    config = asdict(configured("evaluate", tmp_path))
    for key, value in changed.items():
        config[key] = value if isinstance(value, list | str) else merged(config[key], value)
    run = tracked(tmp_path, config, "evaluate")
    if refusal is None:
        ours = configured("evaluate", tmp_path, f"like={run}")
        assert ours.engine.address is None and ours.tracking.uri is None and ours.corpus.path is None
        return
    for command in (lambda *words: configured("evaluate", tmp_path, "like=latest"), commands.explain):
        with pytest.raises(UserError, match=f"like: .*{refusal}") as error:
            command(["latest", f"paths.root={tmp_path}"])
        assert "hunter2" not in str(error.value)
    assert not planted.exists()


def merged(base: Any, changes: dict[str, Any]) -> Any:
    nested = {key: merged(base.get(key, {}), it) for key, it in changes.items() if isinstance(it, dict)}
    return {**base, **changes, **nested}


def test_mistakes_are_one_line(smoke_runs: Path) -> None:
    trained = Results(smoke_runs).runs("train")[0].id
    for words, reason in (
        (["like=0123abcd"], "there is no run 0123abcd"),
        ([f"like={trained}", "setting=paper"], "setting: like=RUN says what setting would"),
        ([f"like={trained}", "trainer.max_step=3"], "trainer.max_step"),
    ):
        with pytest.raises(UserError, match=reason):
            configured("train", smoke_runs, *words)
