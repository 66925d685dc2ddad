"""The command line: every configuration composes, and bad input ends in one line and exit code 2."""

import errno
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from tests.build import Capture, Patch, Refused, Terminal
from toolformer import cli
from toolformer.cli import COMMANDS, main
from toolformer.errors import UserError
from toolformer.jobs import instantiate
from toolformer.jobs.config import CONF, compose, validate
from toolformer.results import Folder, Results, RunInfo
from toolformer.step import Step

SHAPES = '''
def area(width: float, height: float) -> float:
    """Compute the area of a rectangle."""
    return width * height


def side(area: float) -> float | None:
    """Compute the side of a square."""
    return None
'''


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("TOOLFORMER_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("TOOLFORMER_DATA_DIR", raising=False)
    return tmp_path


def test_an_experiment_says_at_its_start_how_long_it_takes(place: Path, capsys: Capture) -> None:
    model = place / "model"
    shutil.copytree(Path("tests/golden/model"), model, ignore=shutil.ignore_patterns("*.safetensors"))
    for dtype, minutes in validate(compose("report", ["experiment=demo"])).run.minutes.items():
        words = [f"model={model}", f"paths.root={place}", f"lm.dtype={dtype}"]
        assert main(["demo", *words]) == 2, "the model has no weights"
        assert f"demo: about {minutes:g} minutes on two cores in {dtype}" in capsys.readouterr().err


def test_the_headline_calls_the_calculator_at_another_k() -> None:
    tools = compose("evaluate", ["experiment=headline_effect", "tool.translation.k=3"]).tool
    by_tool = {key: tools[key].k for key in ("calculator", "calendar", "search", "qa", "translation")}
    assert by_tool == {"calculator": None, "calendar": 10, "search": 10, "qa": 10, "translation": 3}


def test_every_option_of_every_group_composes() -> None:
    groups = ("corpus", "decoding", "trainer", "toolset", "corpus@heldout")
    options = [
        [f"{group}={path.stem}" for path in (CONF / group.partition("@")[0]).glob("*.yaml")]
        for group in groups
    ]
    for words in itertools.zip_longest(*options):  # of each group one at a time
        assert compose("evaluate", list(filter(None, words)))


def test_the_papers_setting_is_the_papers() -> None:
    config = validate(compose("generate", ["setting=paper", "corpus.path=DIR", "paths.data_dir=."]))
    assert (config.name, config.model) == ("paper", "EleutherAI/gpt-j-6b")
    thresholds = dict.fromkeys(("qa", "search", "calendar"), (0.05, 5, 5, 1.0))
    thresholds |= dict.fromkeys(("calculator", "translation"), (0.0, 20, 10, 0.5))
    for key, expected in thresholds.items():
        tool = instantiate.tool_settings(config, key)
        assert (tool.start_threshold, tool.max_positions, tool.samples, tool.filter_threshold) == expected
        longest = 192 if key == "translation" else 40
        assert (tool.max_call_tokens, tool.force_name, tool.window_tokens) == (longest, False, None)
    trainer = config.trainer
    assert (trainer.learning_rate, trainer.warmup_ratio, trainer.max_steps) == (1e-5, 0.1, 2000)
    sizes = (trainer.batch_size, trainer.sequence_length, trainer.eval_every, trainer.limit_per_tool)
    assert sizes == (128, 1024, 500, 25_000)
    assert (config.decoding.k, config.decoding.max_calls, config.decoding.min_new_tokens) == (10, 1, 0)
    assert (config.corpus.limit, config.evaluation.limit, config.heldout_limit) == (None, None, 11_000)
    assert (trainer.processes, trainer.deepspeed, trainer.gradient_checkpointing) == ("auto", "zero3", True)


@pytest.mark.parametrize("setting", ["default", "large"])
def test_your_texts_are_read_and_learned_whole(setting: str) -> None:
    config = validate(compose("generate", [f"setting={setting}", "corpus=jsonl", "corpus.path=FILE"]))
    assert config.corpus.limit is config.evaluation.limit is config.evaluation.perplexity_limit is None
    trainer = config.trainer
    assert trainer.max_steps is trainer.learning_rate is trainer.eval_every is None and trainer.epochs


def test_a_large_model_has_the_papers_thresholds() -> None:
    paper = ["setting=paper", "toolset=default", "corpus.path=DIR"]
    theirs, ours, default = (validate(compose("generate", words)) for words in (paper, ["setting=large"], []))
    for key in ours.tools:
        assert instantiate.tool_settings(ours, key) == instantiate.tool_settings(theirs, key)
        tool = instantiate.tool_settings(default, key)
        assert (tool.start_threshold, tool.force_name) == (0, True), "calls of a model of any size"


def test_what_is_small_is_small_by_name() -> None:
    for words in (["setting=small"], ["experiment=demo"], ["experiment=smoke"]):
        config = validate(compose("generate", words))
        assert (config.model, config.corpus.source, config.heldout.source) == ("smollm2", "demo", "demo")
        assert config.corpus.limit and config.evaluation.limit and config.trainer.max_steps


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evalute"], "there is no command 'evalute' (did you mean evaluate?)"),
        (["demo", "--plna"], "unrecognized arguments: --plna (did you mean --plan?); see toolformer demo --help"),
        (["help", "decoding.k", "seed"], "help: it takes one key, group or command, and 'seed' is a second one"),
        (["help", "--no"], "there is no key, group or command '--no'"),
        (["help", "decoding.kk"], "there is no key, group or command 'decoding.kk' (did you mean decoding.k?)"),
        (["tool", "calculator", "1 + 1", "tols=[qa]"], "'tols=[qa]' is neither a key of the configuration nor"),
        (["ui", "--port", "0"], "--port is 0; it must be 1 to 65535"),
        (["generate", "foo"], "'foo': expected key=value"),
        (["evaluate", "decoding.by_tool.translation=3"], "decoding.by_tool is now tool.NAME.k"),
        (["generate", "--config-dir", "/no/such/dir"], "Additional config directory '/no/such/dir' not found"),
        (["generate", "seed=abc"], "seed=abc: Value 'abc' of type 'str' could not be converted to Integer"),
        (["evaluate", "corpus=jsnl"], "Could not find 'corpus/jsnl' (did you mean jsonl?); available options in 'corpus'"),
        (["evaluate", "experment=evidence"], "there is no key 'experment' (did you mean experiment?)"),
        (["run", "experiment=smoke", "k=3"], "there is no key 'k' (did you mean decoding.k=3, tool.NAME.k=3?); docs/keys.md has them all; see toolformer run --help"),
        (["evaluate", "limit=8"], "there is no key 'limit' (did you mean evaluation.limit=8, heldout.limit=8?)"),
        (["evaluate", "env=hunter2"], "there is no key 'env'"),
        (["evaluate", "heldout=jsonl"], "to choose a file of the group corpus, write corpus@heldout=jsonl"),
        (["evaluate", "--limit", "8"], "--limit (did you mean evaluation.limit=8, heldout.limit=8?); see toolformer evaluate --help"),
        (["train", "--learning-rate"], "--learning-rate (did you mean trainer.learning_rate=...?); see toolformer train"),
        (["runs", "--lines", "8"], "unrecognized arguments: --lines"),
        (["run", "experiment=table9", "--plan"], "corpus.path is missing; name a file or a folder: corpus.path=..., or add setting=small"),
        (["evaluate", "decoding.k=1,2"], "toolformer: decoding.k=1,2: add -m to sweep over several values, put a list into brackets"),
        (["evaluate", "benchmarks=svamp"], "benchmarks=svamp: it must be a list, such as [a,b]"),
        (["evaluate", "model=null"], "model=null: field 'model' is not Optional"),
        (["generate", "tools=[]"], "tools: the list is empty"),
        (["generate", "tool.qa.prompt=nope"], "tool.qa.prompt"),
        (["generate", "-m", "seed=1,abc"], "seed=abc"),
        (["generate", "--help", "foo=1"], "there is no key 'foo'"),
        (["generate", "model=${oc.env:TOOLFORMER_UNSET}"], "model: KeyError raised while resolving interpolation"),
        (["generate", "paths.root=README.md"], "README.md cannot be a folder"),
        (["generate", "tools.calculator.places=equals"], "there is no key 'tools.calculator.places' (did you mean "),
        (["generate", "corpus.limt=3"], "there is no key 'corpus.limt' (did you mean corpus.limit?)"),
        (["generate", "+tool.calculater.samples=3"], "unknown tool 'calculater' (did you mean calculator?)"),
        (["generate", "tool.dragn.samples=3"], "for a custom tool (tool_sources) add +tool@tool.dragn=user before tool.dragn.samples"),
        (["generate", "propose.rank=lift", "prompts=none"], "prompts=none leaves it out; add propose.rank=probability"),
        (["generate", "tool_sources=[nope.py]"], "tool_sources[0]: nope.py cannot be imported (FileNotFoundError"),
        (["train", "trainer.batch_size=3", "trainer.micro_batch_size=2"], "trainer.batch_size is 3, not a multiple of"),
        (["generate", "corpus.limit=99999999999999999999"], "corpus.limit is 99999999999999999999; Input should be less"),
        (["generate", "tool.calculator.filter_threshold=nan"], "tool.calculator.filter_threshold is nan"),
        (["generate", "propose.window_tokens=20", "propose.window_overlap=20"], "must be less than propose.window_tokens"),
        (["generate", "engine.gpus_per_worker=1"], "engine.gpus_per_worker needs engine.address"),
        (["generate", "lm.device=cuda:99"], "lm.device=cuda:99 cannot be used: PyTorch finds"),
        (["generate", "tools=[calendar,calendar]"], "calendar is named twice"),
        (["generate", "tool.calculator.name=Calendar"], "calculator and calendar are both called Calendar"),
        (["generate", "name=../../x"], "name is '../../x'; it must be a letter or digit"),
        (["generate", "paths.root='a\nb'"], "paths.root is 'a\\nb'; it must not have line breaks"),
        (["generate", "paths.root='a\udce9'"], "it must be UTF-8"),
        (["train"], "run `toolformer generate` first"),
        (["train", "-m", "experiment=paper", "setting=small", "model=smollm2"], "this experiment combines 6 others"),
        (["evaluate"], "run `toolformer train` first"),
        (["evaluate", "system=gpt"], "system is 'gpt'"),
        (["evaluate", "decoding.max_calls=0"], "decoding.max_calls is 0; Input should be greater"),
        (["explain", "latest:toolformr"], "'latest:toolformr' is not a run; give an id, latest or latest:SYSTEM (did you mean toolformer?)"),
        (["evaluate", "tool.calendar.fallback=serch"], "tool.calendar.fallback: there is no tool serch (did you mean search?)"),
        (["evaluate", "tool.calendar.k=-1"], "tool.calendar.k is -1; Input should be greater"),
        (["evaluate", "tool.search.fallback=qa", "decoding.constrain_tool_name=false"], "needs decoding.constrain_tool_name=true"),
        (["evaluate", "paths.data_dir=/no/such/dir"], "there is no folder /no/such/dir"),
        (["complete", "x", "system=model"], "system=model is not trained, so there is no latest run of it"),
        (["complete", "x", "--model", "smollm2", "model=gemma3"], "smollm2 and model=gemma3 are two models"),
        (["complete", "x", "--tokens", "0"], "complete: --tokens is 0; it must be at least 1"),
        (["complete", "-5+3=", "--tokens", "0"], "complete: --tokens is 0; it must be at least 1"),
        (["complete", "--tokens", "0", "--", "--k=3"], "complete: --tokens is 0; it must be at least 1"),
        (["tool", "search", "x", "tool.search.implementation.max_tokens=0"], "max_tokens is 0; it must be at least 1"),
        (["compare", "abc123", "paths.root=x"], "compare: only abc123 is named; it takes two runs"),
        (["complete", "x", "--model", "nosuch"], "write a hub model as OWNER/NAME"),
        (["index", "corpus=demo"], "index.path is missing"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], words: str, refused: Refused) -> None:
    assert words in refused(*arguments)


def test_a_configuration_is_the_callers_and_as_its_files_are(place: Path) -> None:
    compose("generate", []).seed = 7
    assert compose("generate", []).seed == 0
    (place / "experiment").mkdir()
    for seed in (1, 2):
        (place / "experiment" / "mine.yaml").write_text(f"# @package _global_\nseed: {seed}\n")
        assert compose("generate", [f"hydra.searchpath=[{place}]", "experiment=mine"]).seed == seed


def test_a_file_of_ones_own_that_is_no_yaml_is_named(place: Path, refused: Refused) -> None:
    (place / "experiment").mkdir()
    for command, text in (
        (["generate"], "tools: [calculator\n"),
        (["tool", "calculator", "1"], "\ttools: [calculator]\n"),
    ):
        (place / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{text}")
        line = refused(*command, f"hydra.searchpath=[{place}]", "experiment=mine")
        assert re.search(r"experiment/mine.yaml\S*, line \d, column \d", line)


def test_a_tool_by_hand(capsys: Capture) -> None:
    assert main(["tool", "calculator", "-5 + 2"]) == 0 and capsys.readouterr().out == "-3\n"
    assert main(["tool", "calculator", "two"]) == 1
    assert capsys.readouterr() == ("", "toolformer: calculator gave no result: invalid expression\n")


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["calculator"], 2, "calculator gave no result: "),
        (["area"], 2, "area gave no result: argument width is missing"),
        (["area", "width=2"], 2, "argument height is missing"),
        (["area", "wide=2", "height=3"], 2, "it has no argument wide (did you mean width?), it takes width, height"),
        (["side", "aera=4"], 2, "it has no argument aera (did you mean area?), it takes area"),
        (["side", "4"], 1, "side gave no result: no answer\n"),
    ],
)  # fmt: skip
def test_a_wrong_argument_of_a_tool_is_named(
    words: list[str], code: int, reason: str, place: Path, capsys: Capture
) -> None:
    (place / "shapes.py").write_text(SHAPES)
    assert main(["tool", *words, f"tool_sources=[{place / 'shapes.py'}]"]) == code
    assert reason in capsys.readouterr().err


def test_configuration_and_commands_are_explained(capsys: Capture) -> None:
    def shown(*words: str) -> str:
        try:
            code = main(words)
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        assert code == 0, words
        return capsys.readouterr().out

    overview = shown("--help")
    for command in {*COMMANDS} - {"lm_eval"}:
        assert f"\n  {command} " in overview and f"toolformer {command}" in shown(command, "--help")
    assert "\nseed: 3\n" in shown("generate", "--cfg", "job", "seed=3")
    text = shown("generate", "--help")
    assert (
        "  corpus.limit=null                 Read only the first N documents" in text and "--multirun" in text
    )
    assert "corpus: ccnet, demo, demo_heldout, files, hub, jsonl, parquet" in text
    assert "\n  decoding.k=3 " in shown("evaluate", "--help", "decoding.k=3")
    assert "read by: train; with setting=paper: 2000" in shown("help", "trainer.max_steps")
    assert "in nats" in shown("help", "tool.calculator.filter_threshold")
    assert "read by: generate, evaluate;" in shown("help", "engine.workers")
    keys = shown("evaluate", "--help")
    assert "engine.workers=1 " in keys and "heldout.limit" in keys
    assert "corpus.limit=null" in shown("help", "corpus") and "usage:" in shown("help", "train")


def test_the_examples_of_the_help_work(place: Path, capsys: Capture, monkeypatch: Patch) -> None:
    main(["--help"])
    text = capsys.readouterr().out
    examples = re.findall(r"toolformer ((?:run|tool|help|evaluate|index) \S.*)", text)
    assert {example.split()[0] for example in examples} == {"run", "tool", "help", "evaluate", "index"}
    (place / "FILE").write_text('{"text": "x"}\n')
    monkeypatch.setattr(cli, "_stage_job", lambda stage, job, *flags: [])
    for example in examples:
        name, *words = shlex.split(example.replace("[--plan]", "--plan").replace(" [--json]", ""))
        if name == "index":
            fixed = [word.replace("FILE", str(place / "FILE")) for word in words]
            assert validate(compose("generate", fixed))
        else:
            assert main([name, *words]) == 0, example


@pytest.mark.parametrize("launcher", ["joblib", "ray", "slurm"])
def test_a_launcher_that_is_not_installed_names_what_installs_it(launcher: str, place: Path) -> None:
    code = f"""
import sys
sys.modules["hydra_plugins"] = None  # as Python marks a module that cannot be imported
from toolformer.cli import main
sys.exit(main(["evaluate", "-m", "hydra/launcher={launcher}"]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True)
    assert done.returncode == 2 and "is not installed: make setup EXTRA=" in done.stderr


@pytest.mark.parametrize(
    "flags",
    [
        ["--cfg", "job"],
        ["--cfg", "job", "--config-dir", "{place}", "experiment=mine"],
        ["--help", "--config-dir", "{place}", "experiment=mine"],
    ],
)
def test_no_flag_shows_a_secret(place: Path, flags: list[str], capsys: Capture) -> None:
    """Of the command line, and of a file of the user's own."""
    (place / "experiment").mkdir()
    secrets = "{command: x, env: {KEY: hunter2}, headers: {A: hunter2}}"
    (place / "experiment" / "mine.yaml").write_text(f"# @package _global_\ntool_sources: [{secrets}]\n")
    words = ["+tool.qa.implementation.env.KEY=hunter2"]
    if "experiment=mine" not in flags:
        words += ["tool_sources=[{command: x, env: {KEY: hunter2}}]"]
    assert main(["generate", *(flag.format(place=place) for flag in flags), *words]) == 0
    captured = capsys.readouterr()
    assert captured.out and "hunter2" not in captured.out + captured.err


def finished(root: Path, step: Step, name: str, experiment: str, **metrics: float) -> Step:
    """Leaves a finished run of a step; returns the step."""
    with Results(root).open(step, RunInfo(name, {}, experiment=experiment)) as folder:
        assert isinstance(folder, Folder)
        for task, measure in metrics.items():
            folder.task(task, {"perplexity" if task.endswith("perplexity") else "score": measure})
    return step


def test_runs_are_listed_by_name_and_with_their_lineage(place: Path, capsys: Capture) -> None:
    root = place / "runs"
    data = finished(root, Step("generate", 1, {"seed": 0}), "data", "demo")
    finished(root, Step("generate", 1, {"seed": 1}), "other data", "other")
    model = finished(root, Step("train", 1, {}, {"datasets": [data]}), "model", "other")
    finished(root, Step("evaluate", 1, {}, {"training": model}), "result", "other")
    for overrides, count in ([], 4), (["name=demo"], 1), (["experiment=demo"], 1), (["name=absent"], 0):
        capsys.readouterr()
        assert main(["runs", "--json", *overrides]) == 0
        assert len(json.loads(capsys.readouterr().out)) == count
    assert main(["runs", model.key()[:8]]) == 0
    table = capsys.readouterr().out
    rows = [table.index(step.key()[:8]) for step in (data, model)]
    assert rows == sorted(rows) and "result" in table and "other data" not in table


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["clea"], "there is no run clea (did you mean clean?); toolformer runs lists them"),
        (["clean", "abc123"], "runs clean: it takes no run; leave abc123 out"),
    ],
)
def test_what_runs_cannot_do_is_one_line(words: list[str], said: str, place: Path, refused: Refused) -> None:
    (place / "runs").mkdir()
    assert said in refused("runs", *words)


def test_a_folder_without_runs_is_named(place: Path, capsys: Capture) -> None:
    for command in ("runs", "report"):
        assert main([command, f"paths.root={place / 'mistyped'}"]) == 2
        assert f"there is no folder {place / 'mistyped'}" in capsys.readouterr().err
    assert not (place / "mistyped").exists()
    (place / "empty").mkdir()
    assert main(["runs", f"paths.root={place / 'empty'}"]) == 0
    assert capsys.readouterr().out == f"no runs in {place / 'empty'}\n"
    finished(place / "runs", Step("train", 1, {}), "model", "a")
    assert main(["runs", "--stage", "evaluate"]) == 0
    assert capsys.readouterr().out == f"no runs that match in {place / 'runs'}\n"


def test_the_newest_runs_are_listed(place: Path, capsys: Capture) -> None:
    steps = [finished(place / "runs", Step("train", 1, {"seed": seed}), "model", "a") for seed in range(3)]
    assert main(["runs", "--limit", "2"]) == 0
    table = capsys.readouterr().out
    assert [step.key()[:8] in table for step in steps] == [False, True, True]
    assert "1 older; --limit 3 lists all" in table


def test_runs_are_listed_in_whole_words_in_a_narrow_terminal(
    place: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    whole = {"FINISHED", "Toolformer", "(disabled)", "heldout_perplexity", "arithmetic"}
    scores = {"arithmetic": 86.3, "heldout_perplexity": 80.3}
    step, name = Step("generate", 1, {}), "Toolformer (disabled) smollm2 k=1"
    for stage in ("train", "evaluate", "explain"):
        step = Step(stage, 1, {}, {"source": step})
        finished(place / "runs", step, name, "evidence", **scores)
    monkeypatch.setenv("TERM", "dumb")  # 80 columns
    with redirect_stdout(Terminal()) as screen:
        assert main(["runs"]) == 0
    table = screen.getvalue().partition("run ")[2]
    assert whole <= {*table.split()} and max(map(len, table.splitlines())) <= 80
    assert main(["runs"]) == 0  # 160 columns
    assert whole | {"evidence", "minutes"} <= {*capsys.readouterr().out.split()}


def swallowed_interruption() -> None:
    """As a library does that turns whatever is raised into an error of its own."""
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException as error:
        raise UserError("configuration: there is no such key") from error


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (swallowed_interruption, 130, "interrupted; run the same command again to resume"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB"), 2, "lower engine.batch_tokens"),
        (torch.AcceleratorError("CUDA error: out of memory\nSearch for it"), 2, "lower engine.batch_tokens"),
        (PermissionError(errno.EACCES, "Permission denied", "x.jsonl"), 2, "'x.jsonl'; finished work is kept: change perm"),
        (OSError(errno.ENOSPC, "No space left on device", "x"), 2, "make room"),
    ],
)  # fmt: skip
def test_what_ends_any_command_is_one_line(
    fault: Any, code: int, said: str, monkeypatch: Patch, capsys: Capture
) -> None:
    effect = (lambda _: fault()) if callable(fault) else fault
    monkeypatch.setattr("toolformer.cli.runs.main", Mock(side_effect=effect))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["runs"]) == code
    finally:
        signal.signal(signal.SIGINT, before)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("toolformer: ") and said in line


INTERRUPTED_TWICE = """
import os, signal, sys, time
import toolformer.cli as cli
import toolformer.cli.runs
def main(_):
    try:
        print("at work", flush=True)
        time.sleep(60)
    finally:
        print("cleaning up", flush=True)
        time.sleep(60)
toolformer.cli.runs.main = main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
sys.argv = ["toolformer", "runs"]
sys.exit(cli.main())
"""


def test_a_second_interruption_ends_at_once_in_one_line() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_TWICE], stdout=-1, stderr=-1, text=True
    ) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline() == "at work\n"
        for line in ("cleaning up\n", ""):
            time.sleep(1.2)
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == line
        assert process.stderr.read() == "toolformer: interrupted again; ended at once\n"
    assert process.returncode == 130


COMMANDS_IN_TURN = """
import sys
from toolformer.cli import main
heavy = "torch transformers lm_eval datasets deepspeed ray matplotlib openai mcp".split()
tracking = "mlflow pandas pyarrow scipy sqlalchemy".split()
for words, others in (
    (["--help"], "hydra omegaconf pydantic sympy numpy"),
    (["generate", "--cfg", "job"], "sympy numpy rich"),
    (["tool", "calculator", "27 + 4 * 2"], "numpy rich"),
    (["runs"], ""),  # MLflow takes seconds; of no store it is not needed
):
    try:
        main(words)
    except SystemExit:
        pass
    imported = {*heavy, *tracking, *others.split()} & {*sys.modules}
    assert not imported, (words, imported)
"""


def test_a_command_imports_no_more_than_it_needs(place: Path) -> None:
    subprocess.run([sys.executable, "-c", COMMANDS_IN_TURN], cwd=place, check=True)


def test_the_doctor_of_a_machine_that_works(tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)  # as Python marks a module that cannot be imported
    assert main(["doctor", f"paths.root={tmp_path / 'runs'}", f"paths.cache={tmp_path / 'cache'}"]) == 0
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["libraries"].startswith("ok ") and " torch 2" in lines["libraries"]
    assert lines["runs"].startswith("ok ") and "lm.dtype=auto is" in lines["device"]
    assert lines["assets"].startswith("-- ") and lines["assets"].endswith("toolformer assets fetches them")
    assert lines["peft"].startswith("-- ") and lines["peft"].endswith("make setup EXTRA=lora")
    assert not list(tmp_path.iterdir()), "nothing was made"


def test_the_doctor_names_what_is_needed_and_does_not_work(tmp_path: Path, capsys: Capture) -> None:
    assert main(["doctor", f"paths.root={tmp_path}", "tracking.uri=postgresql://me:hunter2@h/db"]) == 1
    output = capsys.readouterr().out
    (fault,) = [line for line in output.splitlines() if line.startswith("no ")]
    assert "hunter2" not in output
    assert "postgresql://h/db does not take runs (No module named 'psycopg')" in " ".join(fault.split())


@pytest.mark.parametrize(
    ("load", "settings", "policy"),
    [(99.0, {}, "passive"), (0.0, {}, None), (99.0, {"GOMP_SPINCOUNT": "1000"}, None)],
    ids=["busy", "idle", "chosen by the user"],
)
def test_threads_wait_without_spinning_on_a_busy_machine(
    place: Path, load: float, settings: dict[str, str], policy: str | None
) -> None:
    code = (
        f"import os; os.getloadavg = lambda: ({load}, 0, 0); from toolformer.cli import main; main(['generate', '--help'])\n"
        "print('policy', os.environ.get('OMP_WAIT_POLICY'))"
    )
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=place,
        env=kept | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == f"policy {policy}"
    assert ("idle threads sleep" in done.stderr) == bool(policy)


def test_a_command_ends_well_with_processes_of_joblib() -> None:
    pytest.importorskip("joblib")
    code = (
        "import sys; from joblib.externals.loky import get_reusable_executor as pool; pool(1).submit(int).result(); "
        "sys.argv = ['toolformer', '--version']; from toolformer.cli import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=CONF.parent, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
