"""The command line: every configuration composes, and bad input ends in one line and exit code 2."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import Refused
from toolformer import Toolformer
from toolformer.cli import COMMANDS, STAGES, main
from toolformer.errors import UserError
from toolformer.stages import instantiate
from toolformer.stages.config import CONF, compose, validate


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLFORMER_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("TOOLFORMER_DATA_DIR", raising=False)
    return tmp_path


def test_every_option_of_every_group_composes() -> None:
    groups = ("corpus", "decoding", "trainer", "toolset", "benchmark")
    options = [[f"{group}={path.stem}" for path in (CONF / group).glob("*.yaml")] for group in groups]
    for words in itertools.zip_longest(*options):  # of each group one at a time
        assert compose("evaluate", list(filter(None, words)))


def test_the_papers_setting_is_the_papers() -> None:
    config = validate(compose("generate", ["setting=paper", "corpus.path=DIR", "heldout.path=DIR"]))
    assert (config.name, config.model) == ("paper", "EleutherAI/gpt-j-6b")
    thresholds = dict.fromkeys(("qa", "search", "calendar"), (0.05, 5, 5, 1.0))
    thresholds |= dict.fromkeys(("calculator", "translation"), (0.0, 20, 10, 0.5))
    for key, expected in thresholds.items():
        tool = instantiate.tool_settings(config, key)
        assert (tool.start_threshold, tool.max_positions, tool.samples, tool.filter_threshold) == expected
    trainer = config.trainer
    assert (trainer.learning_rate, trainer.warmup_ratio, trainer.max_steps) == (1e-5, 0.1, 2000)
    sizes = (trainer.batch_size, trainer.sequence_length, trainer.eval_every, trainer.limit_per_tool)
    assert sizes == (128, 1024, 500, 25_000)
    assert (config.decoding.k, config.decoding.max_calls) == (10, 1)
    assert not config.propose.force_name and config.decoding.min_new_tokens == 0
    assert (config.corpus.limit, config.evaluation.limit, config.heldout.limit) == (None, None, 10_000)


def test_the_default_fits_two_cores() -> None:
    config = validate(compose("evaluate", []))
    assert (config.name, config.model, config.corpus.source) == ("default", "smollm2", "demo")
    assert config.corpus.limit and config.evaluation.limit and config.trainer.max_steps == 8
    assert all(config.tool[key].max_positions <= 4 for key in config.tools)
    demo = validate(compose("evaluate", ["experiment=demo"]))
    assert (demo.model, demo.corpus.split, demo.tools) == ("smollm2", "sums", ["calculator"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], "there is no command 'frobnicate'"),
        (["evalute"], "there is no command 'evalute' (did you mean evaluate?)"),
        (["train", "--multrun"], "unrecognized arguments: --multrun (did you mean --multirun?)"),
        (["demo", "--plna"], "unrecognized arguments: --plna (did you mean --plan?); see toolformer demo --help"),
        (["help", "decoding.kk"], "there is no key, group or command 'decoding.kk' (did you mean decoding.k?)"),
        (["tool", "calculator", "1 + 1", "tols=[qa]"], "'tols=[qa]' is neither a key of the configuration nor"),
        (["assets", "smollm2", "paths.cash=x"], "did you mean paths.cache"),
        (["generate", "foo=1"], "there is no key 'foo'"),
        (["generate", "foo"], "'foo' is no key=value"),
        (["generate", "corpus={a"], "corpus: no viable"),
        (["generate", "--config-dir", "/no/such/dir"], "--config-dir: there is no folder /no/such/dir"),
        (["generate", "seed=abc"], "seed=abc: it must be a whole number"),
        (["evaluate", "decoding=3"], "decoding=3: Config group override must be a string"),
        (["evaluate", "benchmarks=svamp"], "benchmarks=svamp: it must be a list"),
        (["evaluate", "model=null"], "model=null: it must have a value"),
        (["generate", "propose.force_name=perhaps"], "propose.force_name=perhaps: it must be true or false"),
        (["generate", "trainer.learning_rate=fast"], "trainer.learning_rate=fast: it must be a number"),
        (["generate", "corpus.text_field=[text]"], "corpus.text_field=[text]: it must be a text"),
        (["generate", "tools=[]"], "tools: the list is empty"),
        (["generate", "corpus=jsonl"], "corpus.path"),
        (["generate", "tool.qa.samples=0"], "tool.qa.samples is 0; it must be at least 1"),
        (["generate", "tool.qa.prompt=nope"], "tool.qa.prompt"),
        (["generate", "-m", "seed=1,abc"], "seed=abc"),
        (["generate", "--cfg", "job", "foo=1"], "there is no key 'foo'"),
        (["generate", "--help", "foo=1"], "there is no key 'foo'"),
        (["generate", "--cfg", "job", "--resolve", "model=${oc.env:TOOLFORMER_UNSET}"], "model: KeyError"),
        (["generate", "model=${oc.env:TOOLFORMER_UNSET}"], "model: KeyError raised while resolving interpolation"),
        (["generate", "x y"], "generate --help"),
        (["generate", "paths.root=README.md"], "README.md cannot be a folder"),
        (["generate", "corpus.limt=3"], "there is no key 'corpus.limt' (did you mean corpus.limit?)"),
        (["generate", "corpus.limit=99999999999999999999"], "corpus.limit is 99999999999999999999; it must be at most"),
        (["generate", "tool.calculator.filter_threshold=nan"], "tool.calculator.filter_threshold is nan"),
        (["generate", "filter.baseline=plane"], "did you mean plain"),
        (["generate", "score.dtype=float64"], "score.dtype is 'float64'"),
        (["generate", "propose.max_call_tokens=0"], "propose.max_call_tokens is 0"),
        (["generate", "propose.window_tokens=4"], "propose.window_tokens is 4; it must be at least 16"),
        (["generate", "propose.window_tokens=20", "propose.window_overlap=20"], "must be less than propose.window_tokens"),
        (["generate", "engine.workers=0"], "engine.workers is 0"),
        (["generate", "engine.gpus_per_worker=1"], "engine.gpus_per_worker is for engine=ray"),
        (["generate", "engine.address=auto"], "engine.address is for engine=ray"),
        (["generate", "lm.device=cuda:99"], "lm.device is cuda:99, and PyTorch finds"),
        (["generate", "tools=[calendar,calendar]"], "calendar is named twice"),
        (["generate", "tool.calculator.name=Calendar"], "calculator and calendar are both called Calendar"),
        (["generate", "lm.device=tpu"], "lm.device is 'tpu'"),
        (["generate", "tool.calculator.implementation._target_=os.nosuch"], "tool.calculator.implementation"),
        (["generate", "name=../../x"], "name is '../../x'; it must be letters, digits"),
        (["generate", """name='a\\'"'"""], "name is 'a"),
        (["generate", "paths.root='a\nb'"], "paths.root is 'a\\nb'; it must not have line breaks"),
        (["train"], "run `toolformer generate` first"),
        (["train", "dataset=0123456789abcdef0123456789abcdef"], "there is no run"),
        (["train", "-m", "experiment=paper", "setting=default", "model=smollm2"], "is made of 10 others"),
        (["evaluate"], "run `toolformer train` first"),
        (["evaluate", "system=gpt"], "system is 'gpt'"),
        (["evaluate", "paths.data_dir=/no/such/dir"], "there is no folder /no/such/dir"),
        (["complete", "x"], "run `toolformer train` first"),
        (["complete", "x", "system=model"], "system=model has no training that latest could name"),
        (["complete", "x", "system=endpoint", "endpoint.url=http://127.0.0.1:1/v1", "endpoint.model=m"],
         "system=endpoint is for evaluations"),
        (["complete", "x", "--tokens", "0"], "complete: --tokens is 0; it must be at least 1"),
        (["complete", "x", "--model", "nosuch"], "a model of the hub is named as OWNER/NAME"),
        (["runs", "paths.root=README.md"], "README.md is no folder"),
        (["runs", "tracking.uri=postgresql://me:word@h/db"], "postgresql://h/db needs what is not installed"),
        (["index", "corpus=demo"], "index.path is missing"),
        (["index", "corpus=demo", "index.path=README.md/index"], "index.path: README.md/index cannot be a folder"),
        (["index", "corpus=demo", "index.path=x", "index.backend=luceen"], "did you mean lucene"),
        (["index", "corpus=demo", "index.path=x", "index.passage_words=0"], "index.passage_words is 0"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], words: str, refused: Refused) -> None:
    assert words in refused(*arguments)


def test_a_configuration_is_the_callers_own_and_as_its_files_are(place: Path) -> None:
    for stage in STAGES:
        said = yaml.safe_load((CONF / f"{stage}.yaml").read_text())
        assert said == {"defaults": ["base", "_self_"], "hydra": {"job": {"name": stage}}}, (
            "nothing but Hydra's"
        )
    compose("generate", []).seed = 7
    assert compose("generate", []).seed == 0
    (place / "experiment").mkdir()
    for seed in (1, 2):
        (place / "experiment" / "mine.yaml").write_text(f"# @package _global_\nseed: {seed}\n")
        assert compose("generate", [f"hydra.searchpath=[{place}]", "experiment=mine"]).seed == seed


@pytest.mark.parametrize("command", [["generate"], ["tool", "calculator", "1"]])
def test_a_file_of_ones_own_that_is_no_yaml_is_named(
    place: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "experiment").mkdir()
    for text in ("tools: [calculator\n", "\ttools: [calculator]\n"):
        (place / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{text}")
        assert main([*command, f"hydra.searchpath=[{place}]", "experiment=mine"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert re.match(r"toolformer: \S*/experiment/mine.yaml, line \d, column \d: invalid YAML", line)


@pytest.mark.parametrize(
    ("system", "tools", "k", "mode"),
    [("toolformer", ["calendar"], 3, "tools"), ("toolformer_disabled", [], 0, "tools"), ("model", [], 0, "plain")],
)  # fmt: skip
def test_the_system_decides_how_a_text_is_continued(
    tiny_folder: Path, system: str, tools: list[str], k: int, mode: str
) -> None:
    given = [f"system={system}", "tools=[calendar]", "decoding.k=3"]
    decoder = Toolformer.from_pretrained(tiny_folder, given).decoder
    assert (list(decoder.tools), decoder.k, decoder.mode) == (tools, k, mode)


@pytest.mark.parametrize(
    ("given", "code", "out", "err"),
    [
        ("723 / 252", 0, "2.87\n", ""),
        ("-5 + 2", 0, "-3\n", ""),
        ("two", 1, "\n", "toolformer: calculator gave no result: invalid expression\n"),
    ],
)
def test_a_tool_by_hand(
    given: str, code: int, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tool", "calculator", given]) == code
    assert tuple(capsys.readouterr()) == (out, err)


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"lm_eval"}))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0 and f"\n  {command} " in capsys.readouterr().out
    try:
        code = main([command, "--help"])
    except SystemExit as end:  # argparse
        code = int(end.code or 0)
    assert code == 0 and f"toolformer {command}" in capsys.readouterr().out


def test_the_configuration_is_printed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--cfg", "job", "seed=3"]) == 0
    assert "\nseed: 3\n" in capsys.readouterr().out
    assert main(["generate", "--cfg", "hydra", "-p", "hydra.job.name"]) == 0
    assert capsys.readouterr().out.startswith("generate\n")
    assert main(["generate", "--help"]) == 0
    shown = capsys.readouterr().out
    for said in ("--multirun", "\n  corpus: ccnet, demo, files, hub, jsonl, parquet", "\n  seed=0  "):
        assert said in shown
    first, others = shown.split("groups of keys (group=option):")
    assert "  corpus.limit=32                   Only the first documents.\n" in first
    assert "trainer." not in shown and "generate.shard_size=8" in others and "corpus.limit=" not in others
    assert main(["evaluate", "--help", "decoding.k=3"]) == 0
    assert "\n  decoding.k=3 " in capsys.readouterr().out


def test_help_says_what_a_key_means(capsys: pytest.CaptureFixture[str]) -> None:
    for key, words in {
        "trainer.max_steps": ("trainer.max_steps=8", "read by: train; with setting=paper: 2000"),
        "tool.calculator.filter_threshold": (
            "tool.calculator.filter_threshold=null",
            "in nats",
            "paper: 0.5",
        ),
        "corpus": ("corpus=ccnet|demo|", "corpus.limit=32", "corpus.path=null"),
        "train": ("usage: toolformer train", "trainer.learning_rate="),
    }.items():
        assert main(["help", key]) == 0
        shown = capsys.readouterr().out
        assert all(each in shown for each in words), key


@pytest.mark.parametrize(
    "flags",
    [
        ["--cfg", "hydra"],
        ["--cfg", "all"],
        ["--cfg", "job", "-p", "tool_sources[0].env.KEY"],
        ["--cfg", "job", "--config-dir", "{place}"],
        ["--help", "--config-dir", "{place}", "experiment=mine"],
    ],
)
def test_no_flag_shows_a_secret(place: Path, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Of the command line, and of a file of the user's own."""
    (place / "experiment").mkdir()
    secrets = "{command: x, env: {KEY: hunter2}, headers: {A: hunter2}, valves: {key: hunter2}}"
    (place / "experiment" / "mine.yaml").write_text(f"# @package _global_\ntool_sources: [{secrets}]\n")
    words = ["+tool.qa.implementation.env.KEY=hunter2"]
    if "experiment=mine" not in flags:
        words += ["tool_sources=[{command: x, env: {KEY: hunter2}}]"]
    assert main(["generate", *(flag.format(place=place) for flag in flags), *words]) == 0
    captured = capsys.readouterr()
    assert captured.out and "hunter2" not in captured.out + captured.err


def test_a_folders_name_is_no_markup(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", f"paths.root='{place}/[/b]'"]) == 0
    assert "/[/b]" in "".join(capsys.readouterr().out.split())


def test_an_interruption_that_a_library_swallows_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(arguments: list[str]) -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException as error:
            raise UserError("configuration: there is no such key") from error
        return 0

    monkeypatch.setattr("toolformer.cli.runs.main", command)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["runs"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "toolformer: interrupted; the same command goes on where it stopped\n"


HEAVY = (
    *("torch", "transformers", "lm_eval", "datasets", "deepspeed", "ray", "matplotlib", "openai", "mcp"),
    "statsmodels",
)
TRACKING = ("mlflow", "pandas", "pyarrow", "scipy", "sqlalchemy")
SCRIPT = """
import sys
from toolformer.cli import main
try:
    main(sys.argv[2:])
except SystemExit:
    pass
print("imported:", *(name for name in sys.argv[1].split(",") if name in sys.modules))
"""


@pytest.mark.parametrize(
    ("words", "without"),
    [
        (["--help"], (*HEAVY, *TRACKING, "hydra", "omegaconf", "pydantic", "sympy", "numpy")),
        (["generate", "--cfg", "job"], (*HEAVY, *TRACKING, "sympy", "numpy", "rich", "tenacity")),
        (["tool", "calculator", "27 + 4 * 2"], (*HEAVY, *TRACKING, "numpy", "rich")),
        # MLflow takes seconds; of no store it is not needed.
        (["runs"], (*HEAVY, *TRACKING, "sympy", "tenacity")),
    ],
    ids=lambda value: value[0],
)
def test_a_command_imports_no_more_than_it_needs(
    words: list[str], without: tuple[str, ...], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, ",".join(without), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported:"
