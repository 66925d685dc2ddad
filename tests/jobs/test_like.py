"""`like=RUN` repeats the overrides of a run, with the typed ones after them, and takes no code, address or path from it."""

import shlex
from pathlib import Path

import pytest

from tests.build import Log
from toolformer.cli import commands
from toolformer.errors import UserError
from toolformer.jobs.config import Config, compose, validate, with_like
from toolformer.jobs.plan import plan
from toolformer.results import Results, RunInfo
from toolformer.step import Step


def configured(stage: str, root: Path, *words: str) -> Config:
    return validate(compose(stage, [*words, f"paths.root={root}"]), stage)


def test_every_run_is_repeated_by_like(smoke_runs: Path, caplog: Log) -> None:
    caplog.set_level("INFO")
    for run in Results(smoke_runs).all_runs("generate", "train", "evaluate"):
        again = [f"like={run.id[:8]}", f"model={run.config['model']}", f"paths.root={smoke_runs}"]
        (job,) = plan(run.stage, again)
        assert job.step == run.step
        assert not any(override.startswith("like=") for override in job.overrides), (
            "it can be repeated itself"
        )
    assert "has changed since run" not in caplog.text


def test_the_typed_overrides_go_over_it(smoke_runs: Path) -> None:
    (run,) = Results(smoke_runs).runs("evaluate", system="toolformer")
    model = f"model={run.config['model']}"
    same = configured("evaluate", smoke_runs, f"like={run.id}", model)
    other = configured(
        "evaluate", smoke_runs, f"like={run.id}", model, "system=model", "evaluation.limit=null", "seed=7"
    )
    assert (other.system, other.evaluation.limit, other.seed) == ("model", None, 7)
    assert (same.system, same.evaluation.limit, same.checkpoint) == ("toolformer", 4, run.made_from[0])
    assert other.trainer == same.trainer and other.tool == same.tool


def tracked(root: Path, *words: str, stage: str = "generate") -> str:
    """A run that says of itself that it was made with these overrides."""
    step = Step(stage, 1, {"words": words})
    command = shlex.join(["toolformer", stage, *words])
    beginning = RunInfo("g", {}, command, "default", facts={"system": "toolformer"})
    with Results(root).open(step, beginning):
        pass
    return step.key()


def test_tools_of_a_users_files_are_named_again(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text('def double(number: int) -> int:\n    """Double a number."""\n    return 2 * number\n')
    again = f"tool_sources=[{source}]"
    words = ["+tool@tool.double=user", "tool.double.example='double(2) -> 4'", "tools=[double]"]
    run = tracked(tmp_path, again, *words)
    with pytest.raises(UserError, match=rf"like: run {run[:8]} had tool_sources=\[/.*mine.py\], not copied"):
        configured("generate", tmp_path, f"like={run}")
    config = configured("generate", tmp_path, f"like={run}", again)
    assert config.tools == ["double"] and config.tool["double"].implementation["name"] == "double"
    assert config.tool["double"].example == "double(2) -> 4"


def test_the_named_overrides_can_be_repeated_as_they_are(tmp_path: Path) -> None:
    words = ["+tool.qa.implementation.passages=1", "tool.search.implementation.max_tokens=9", "seed=3"]
    run = tracked(tmp_path, *words)
    with pytest.raises(UserError) as error:
        configured("generate", tmp_path, f"like={run}")
    named = str(error.value).partition(" had ")[2].partition(", not copied")[0].split()
    assert named == words[:2]
    config = configured("generate", tmp_path, f"like={run}", *named)
    assert config.tool["qa"].implementation["passages"] == 1 and config.seed == 3
    assert config.tool["search"].implementation["max_tokens"] == 9


@pytest.mark.parametrize(
    "words",
    [
        ["tool_sources=[{command: touch, args: [PLANTED]}]"], ["tool_sources=[PLANTED.py]"],
        ["tool.calculator.implementation._target_=pandas.read_pickle"], ["++tool.calculator.inference._target_=joblib.load"],
        ["+tool.new={implementation: {_target_: sympy.sympify}}"], ["~tool.calculator.implementation"],
        ["paths.tasks_dir=PLANTED"], ["paths={tasks_dir: PLANTED}"], ["name=${oc.env:SECRET}"],
        ["heldout={source: jsonl, path: PLANTED}"], ["evaluation.samples=PLANTED"], ["prompts=PLANTED"],
        ["tool.calculator.prompt=a/../../PLANTED"], ["model=PLANTED"], ["checkpoint=PLANTED"],
        ["engine.address=127.0.0.1:1"], ["tracking.uri=http://127.0.0.1:1"], ["hydra.searchpath=[PLANTED]"],
        ["tool.qa.implementation.generate.key=***"],
    ],
    ids=lambda words: words[0].partition("=")[0],
)  # fmt: skip
def test_a_strangers_run_starts_and_reads_nothing(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    planted = tmp_path / "planted"
    planted.with_suffix(".py").write_text(f"open({str(planted)!r}, 'w')")
    words = [word.replace("PLANTED", str(planted)) for word in words]
    tracked(tmp_path, *words, "seed=3", stage="evaluate")
    for command in (lambda *given: configured("evaluate", tmp_path, "like=latest"), commands.explain):
        with pytest.raises(UserError, match="like: run .* not copied") as error:
            command(["latest", f"paths.root={tmp_path}"])
        assert (
            words[0] in str(error.value)
            and "hunter2" not in str(error.value)
            and "seed" not in str(error.value)
        )
    assert not planted.exists()


def test_what_names_no_place_is_taken(tmp_path: Path) -> None:
    words = [
        "setting=large",
        "model=smollm2",
        "prompts=paper-vi",
        "engine.workers=1",
        "checkpoint=0123456789abcdef",
    ]
    run = tracked(tmp_path, *words, stage="evaluate")
    composed = compose("evaluate", [f"like={run}", f"paths.root={tmp_path}"])
    assert (composed.prompts, composed.checkpoint) == ("paper-vi", "0123456789abcdef")
    assert composed.corpus.path is None, "an evaluation does not read it"


def test_a_group_that_is_chosen_again_replaces_the_runs(tmp_path: Path) -> None:
    run = tracked(tmp_path, "corpus=sums", "corpus.limit=3")
    typed = [f"like={run}", f"paths.root={tmp_path}", "corpus=demo", "corpus.limit=4"]
    assert with_like("generate", typed) == typed[1:]


def test_mistakes_are_one_line(smoke_runs: Path, tmp_path: Path) -> None:
    trained = Results(smoke_runs).runs("train")[0]
    model = f"model={trained.config['model']}"
    for words, reason in (
        (["like=0123abcd"], "there is no run 0123abcd"),
        ([f"like={trained.id}", model, "trainer.max_step=3"], "trainer.max_step"),
        ([f"like={trained.id}"], "had model=/"),
    ):
        with pytest.raises(UserError, match=reason):
            configured("train", smoke_runs, *words)
    with pytest.raises(UserError, match="has no stored command; give its settings instead"):
        with Results(tmp_path).open(Step("train", 1, {}), RunInfo("t", {}, experiment="default")):
            pass
        configured("train", tmp_path, "like=latest")
