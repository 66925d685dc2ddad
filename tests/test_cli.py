"""The command line: every configuration composes, and bad input ends in one line and exit code 2."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolformer import Toolformer, build, completion
from toolformer.cli import COMMANDS, STAGES, main
from toolformer.config import CONF, compose, validate
from toolformer.config.sweeps import parse


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLFORMER_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("TOOLFORMER_DATA_DIR", raising=False)
    return tmp_path


@pytest.mark.parametrize("stage", STAGES)
def test_every_configuration_composes_and_instantiates(stage: str) -> None:
    config = validate(compose(stage, []))
    assert set(build.tools(config)) == set(config.tools)
    assert [build.tool_settings(config, key).name for key in config.tools] == [
        config.tool[k].name for k in config.tools
    ]


@pytest.mark.parametrize(
    ("group", "key"),
    [
        ("corpus", "corpus"),
        ("decoding", "decoding"),
        ("trainer", "trainer"),
        ("toolset", "tools"),
        ("benchmark", "benchmarks"),
    ],
)
def test_every_option_of_every_group_composes(group: str, key: str) -> None:
    for option in sorted(path.stem for path in (CONF / group).glob("*.yaml")):
        config = compose("evaluate", [f"{group}={option}"])
        assert config[key] is not None


def test_the_papers_settings_are_the_defaults() -> None:
    config = validate(compose("generate", []))
    for key in ("qa", "search", "calendar"):
        tool = config.tool[key]
        assert (tool.start_threshold, tool.max_positions, tool.samples, tool.filter_threshold) == (
            0.05,
            5,
            5,
            1.0,
        )
    for key in ("calculator", "translation"):
        tool = config.tool[key]
        assert (tool.start_threshold, tool.max_positions, tool.samples, tool.filter_threshold) == (
            0.0,
            20,
            10,
            0.5,
        )
    trainer = config.trainer
    assert (trainer.learning_rate, trainer.warmup_ratio, trainer.max_steps) == (1e-5, 0.1, 2000)
    assert (trainer.batch_size, trainer.sequence_length, trainer.eval_every, trainer.limit_per_tool) == (
        128,
        1024,
        500,
        25_000,
    )
    assert (config.decoding.k, config.decoding.max_calls) == (10, 1)
    assert not config.propose.force_name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], "there is no command 'frobnicate'"),
        (["generate", "foo=1"], "'foo'"),
        (["generate", "seed=abc"], "seed=abc: it must be a whole number"),
        (["evaluate", "decoding=3"], "decoding=3: Config group override must be a string"),
        (["evaluate", "benchmarks=svamp"], "benchmarks=svamp: it must be a list"),
        (["evaluate", "model=null"], "model=null: it must have a value"),
        (["generate", "propose.force_name=perhaps"], "propose.force_name=perhaps: it must be true or false"),
        (["compare", "abc"], "compare: name a second run beside abc"),
        (["generate", "trainer.learning_rate=fast"], "trainer.learning_rate=fast: it must be a number"),
        (["generate", "corpus=nope"], "corpus/nope"),
        (["generate", "tools=[calculatr]"], "did you mean calculator?"),
        (["generate", "tools=[]"], "tools: the list is empty"),
        (["generate", "corpus=jsonl"], "corpus.path"),
        (["generate", "corpus=jsonl", "corpus.path=/no/such/file"], "there is no file /no/such/file"),
        (["generate", "tool.qa.samples=0"], "tool.qa.samples is 0; it must be at least 1"),
        (["generate", "tool.qa.start_threshold=1.5"], "tool.qa.start_threshold"),
        (["generate", "tool.qa.prompt=nope"], "tool.qa.prompt"),
        (["generate", "lm.dtype=int8"], "lm.dtype"),
        (["generate", "model=/no/such/model"], "there is no folder /no/such/model"),
        (["generate", "-m", "seed=1,abc"], "seed=abc"),
        (["generate", "x y"], "generate --help"),
        (["generate", "paths.root=README.md"], "paths.root: README.md cannot be a folder"),
        (["generate", "experiment=dmeo"], "did you mean demo?"),
        (["generate", "corpus.limt=3"], "there is no key 'corpus.limt' (did you mean corpus.limit?)"),
        (["generate", "tool.calculator.filter_threshold=nan"], "tool.calculator.filter_threshold is nan"),
        (["generate", "tools=[calendar,calendar]"], "calendar is named twice"),
        (["generate", "tool.calculator.name=Calendar"], "two tools are called Calendar"),
        (["generate", "tool.calculator.name='a b'"], "tool.calculator.name is 'a b'"),
        (["generate", "lm.device=tpu"], "lm.device is 'tpu'"),
        (["generate", "seed=-1"], "seed is -1; it must be from 0 to 4294967295"),
        (["train", "seed=4294967296"], "seed is 4294967296; it must be from 0 to 4294967295"),
        (["generate", "tool.calculator.implementation._target_=os.nosuch"], "tool.calculator.implementation"),
        (["evaluate", "decoding.max_call_tokens=0"], "decoding.max_call_tokens is 0"),
        (["evaluate", "decoding.max_result_tokens=-1"], "decoding.max_result_tokens is -1"),
        (["train", "trainer.limit_per_tool=-1"], "trainer.limit_per_tool is -1"),
        (["train"], "run `toolformer generate` first"),
        (["train", "data=both"], "data is 'both'"),
        (["train", "dataset=0123456789abcdef0123456789abcdef"], "there is no run"),
        (["evaluate"], "run `toolformer train` first"),
        (["evaluate", "system=gpt"], "system is 'gpt'"),
        (["evaluate", "benchmarks=[svmp]"], "did you mean svamp?"),
        (["evaluate", "decoding.k=-1"], "decoding.k is -1; it must be at least 0"),
        (["evaluate", "paths.data_dir=/no/such/dir"], "there is no folder /no/such/dir"),
        (["evaluate", "experiment=paper", "setting=embedded", "model=smollm2"], "is made of 10 others"),
        (["train", "-m", "experiment=paper", "setting=embedded", "model=smollm2"], "is made of 10 others"),
        (["complete", "x"], "run `toolformer train` first"),
        (["complete", "x", "system=model"], "system=model has no training that latest could name"),
        (
            ["complete", "x", "system=endpoint", "endpoint.url=http://127.0.0.1:1/v1", "endpoint.model=m"],
            "system=endpoint is for evaluations",
        ),
        (["complete", "x", "--tokens", "0"], "complete: --tokens is 0; it must be at least 1"),
        (["complete", "x", "--model", "nosuch"], "a model of the hub is named as OWNER/NAME"),
        (["complete", "x", "--model", "models:/toolformer"], "write models:/NAME/VERSION"),
        (["runs", "paths.root=README.md"], "paths.root: README.md is no folder"),
        (
            ["index", "corpus=demo", "index.path=README.md/index"],
            "index.path: README.md/index cannot be a folder",
        ),
        (["generate", "corpus.text_field=[text]"], "corpus.text_field=[text]: it must be a text"),
        (["tool", "calculatr", "1"], "did you mean calculator?"),
        (["completion", "fish"], "bash"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("toolformer:")]
    assert len(error) == 1 and words in error[0]
    assert "Traceback" not in error[0]


@pytest.mark.parametrize("text", ["tools: [calculator\n", "\ttools: [calculator]\n"])
@pytest.mark.parametrize("command", [["generate"], ["tool", "calculator", "1"]])
def test_a_file_of_ones_own_that_is_no_yaml_is_named(
    tmp_path: Path, command: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{text}")
    assert main([*command, f"hydra.searchpath=[{tmp_path}]", "experiment=mine"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(r"toolformer: \S*/experiment/mine.yaml, line \d, column \d: this is no YAML", line)


@pytest.mark.parametrize(
    ("system", "tools", "k", "mode"),
    [
        ("toolformer", ["calendar"], 3, "tools"),
        ("toolformer_disabled", [], 0, "tools"),
        ("model", [], 0, "plain"),
    ],
)
def test_the_system_decides_how_a_text_is_continued(
    tiny_folder: Path, system: str, tools: list[str], k: int, mode: str
) -> None:
    given = [f"system={system}", "tools=[calendar]", "decoding.k=3"]
    decoder = Toolformer.from_pretrained(tiny_folder, given).decoder
    assert (list(decoder.tools), decoder.k, decoder.mode) == (tools, k, mode)


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["calculator", "723 / 252"], 0, "2.87\n", ""),
        (["calculator", "10-5-2"], 0, "3\n", ""),
        (["calculator", "8/2/2"], 0, "2\n", ""),
        (["calculator", "-5 + 2"], 0, "-3\n", ""),
        (["calculator", "two"], 1, "\n", "toolformer: calculator gave no result: invalid expression\n"),
    ],
)
def test_a_tool_by_hand(
    arguments: list[str], code: int, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tool", *arguments]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (out, err)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in (*STAGES, "demo", "assets", "tool", "complete", "ui", "completion"))


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"lm_eval"}))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main([command, "--help"])
    except SystemExit as end:  # argparse
        code = int(end.code or 0)
    assert code == 0 and f"toolformer {command}" in capsys.readouterr().out


def test_hydras_own_flags_work(tmp_path: Path) -> None:
    for flags, word in (
        (["--help"], "corpus: ccnet, demo, files, hub, jsonl, parquet"),
        (["--cfg", "job", "seed=3"], "seed: 3"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "toolformer.cli", "generate", *flags], cwd=CONF.parent, capture_output=True, text=True,
            env={**os.environ, "TOOLFORMER_RUNS": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert word in done.stdout


def test_a_sweep_is_checked_job_by_job() -> None:
    assert parse("evaluate", ["decoding.k=0,1", "seed=3"]).jobs("evaluate", {}) == [
        ["seed=3", "decoding.k=0"],
        ["seed=3", "decoding.k=1"],
    ]


def candidates(line: str) -> list[str]:
    return completion.candidates(line, tuple(STAGES), tuple(COMMANDS))


def test_tab_completion() -> None:
    assert candidates("gen") == ["generate"]
    assert "corpus=" in candidates("generate corp")
    assert "corpus=jsonl" in candidates("generate corpus=")
    assert "decoding.k=" in " ".join(candidates("evaluate decoding."))
    assert candidates("tool cal") == ["calculator", "calendar"]
