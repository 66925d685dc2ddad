"""lm-eval's own command line with the model `toolformer` and this project's tasks: words, arguments, refusals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import TaskIndex

from benchmarks import GROUPS, TASKS, TASKS_DIR
from tests.benchmarks.test_loaders import ASDIV, MAWPS, SVAMP, write
from toolformer import cli, lm_eval_command
from toolformer.commands import lm_eval
from toolformer.decoding.lm_eval_model import _Question
from toolformer.errors import UserError
from toolformer.lm_eval_command import ConfiguredLM

OURS = str(TASKS_DIR)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write(tmp_path, "svamp/svamp", [{**SVAMP, "id": str(n), "answer": float(n)} for n in range(6)])
    write(tmp_path, "asdiv/asdiv", ASDIV)
    write(tmp_path, "mawps/mawps_full", MAWPS)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        (
            "run --model hf --tasks=svamp",
            f"run --model hf --tasks=svamp --include_path {OURS}",
        ),
        ("--model hf -t math", f"--model hf -t math --include_path {OURS}"),
        ("--tasks math --include_path benchmarks", f"--tasks math --include_path {OURS}"),
        ("--include_path=benchmarks/ --tasks math", f"--include_path={OURS} --tasks math"),
        ("--include_path . --tasks math", "--include_path . --tasks math"),
        ("--include_path none --tasks triviaqa", "--tasks triviaqa"),
        ("--tasks triviaqa --include_path=none", "--tasks triviaqa"),
        ("ls tasks --include_path none", "ls tasks"),
        ("ls tasks", f"ls tasks --include_path {OURS}"),
        ("--help", "--help"),
        ("--model toolformer", "--model toolformer"),
    ],
)
def test_the_words_are_lm_evals(
    monkeypatch: pytest.MonkeyPatch, data_dir: Path, tmp_path: Path, given: str, passed_on: str
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: seen.append(" ".join(sys.argv[1:])))
    monkeypatch.setenv("TOOLFORMER_DATA_DIR", str(data_dir))
    monkeypatch.setattr(sys, "argv", ["toolformer"])
    monkeypatch.chdir(tmp_path)  # where `benchmarks` is no folder
    assert lm_eval_command.run(given.split()) == 0
    assert seen == [passed_on]
    assert get_model("toolformer") is ConfiguredLM


@pytest.mark.parametrize("path", ["benchmarks", "./benchmarks/", "tests/../benchmarks"])
@pytest.mark.parametrize("written", ["words", "file"])
def test_the_folder_of_tasks_is_known_however_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    path: str,
    written: str,
) -> None:
    """From the repository's root, where `benchmarks` is the folder: no line for each name that lm-eval has too."""
    published = tmp_path / "published"
    published.mkdir()
    (published / "xquad_hi.yaml").write_text("task: xquad_hi")
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "svamp.yaml").write_text("task: svamp")

    def index() -> None:
        """lm-eval's own merging of its tasks with those of included folders."""
        TaskIndex.build([published, Path(path), tmp_path / "others"])

    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", index)
    monkeypatch.chdir(TASKS_DIR.parent)
    words = ["--include_path", path]
    if written == "file":
        (tmp_path / "words.yaml").write_text(f"include_path: {path}")
        words = ["--config", str(tmp_path / "words.yaml")]
    assert lm_eval_command.run(["--model", "hf", "--tasks", "dateset", *words]) == 0
    (line,) = [line for line in caplog.messages if "overrides existing task" in line]
    assert line.startswith("Task 'svamp' from") and "others" in line


def test_a_task_of_the_project_that_is_left_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ValueError("Tasks not found: svamp")

    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", refuse)
    with pytest.raises(UserError, match="'svamp'; it is this project's, .* --include_path benchmarks"):
        lm_eval_command.run(["--model", "hf", "--tasks", "svamp", "--include_path", "none"])


@pytest.mark.slow
def test_the_names_that_lm_eval_has_too_are_told() -> None:
    """What the page says of names; lm-eval's index of tasks takes its time to build."""
    published = TaskManager().task_index
    page = (TASKS_DIR.parent / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"The names ((?:`\w+`,?\s*(?:and )?)+)are both", page)
    assert set(re.findall(r"`(\w+)`", told)) == {name for name in (*TASKS, *GROUPS) if name in published}
    assert "mlqa_en_es" in published  # the other way round there: English context, Spanish question


@pytest.mark.parametrize("metadata", ['{"data_dir": "DIR"}', "data_dir=DIR"])
def test_data_is_read_before_the_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, metadata: str
) -> None:
    write(tmp_path, "svamp/svamp", [{"id": "0", "answer": 1.0}])
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: pytest.fail("the model would be loaded"))
    words = ["--tasks", "svamp", "--metadata", metadata.replace("DIR", str(tmp_path))]
    with pytest.raises(UserError, match="line 1: no text in field `body`"):
        lm_eval_command.run(["--model", "hf", *words])


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("tasks: [svamp]", ""),
        ("tasks: 'dateset,sv*p'", ""),
        ("tasks: svamp\ninclude_path: [benchmarks]", ""),
        ("include_path: benchmarks", "--tasks math"),
        ("tasks: wikitext", "--tasks dateset sv?mp"),
    ],
)
def test_a_file_of_words_and_patterns_are_read_before_the_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str, words: str
) -> None:
    write(tmp_path, "svamp/svamp", [{"id": "0", "answer": 1.0}])
    write(tmp_path, "asdiv/asdiv", ASDIV)
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: pytest.fail("the model would be loaded"))
    monkeypatch.chdir(tmp_path)
    Path("words.yaml").write_text(f"model: hf\nmetadata: {{data_dir: {tmp_path}}}\n{written}\n")
    with pytest.raises(UserError, match="line 1: no text in field `body`"):
        lm_eval_command.run(["run", "--config", "words.yaml", *words.split()])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--tasks svamp math", "svamp is asked for as svamp and as math; name it once"),
        ("--tasks mlqa_*", "mlqa_all_en_ar is asked for as mlqa_all_en and as mlqa_all_en_ar"),
        ("--config nonesuch.yaml", "lm_eval: Config file not found"),
        ("--config broken.yaml", "lm_eval: Invalid YAML in broken.yaml"),
        ("--config list.yaml", "lm_eval: YAML root must be a mapping"),
        ("--config several.yaml", f"include_path: of several folders, write {OURS} for benchmarks"),
        ("--tasks dateset --log_samples", "lm_eval: Specify --output_path"),
        (
            "--tasks moons_quiz --include_path wrong",
            "moons.yaml: metadata.switched_off is 'qa'; it must be a",
        ),
    ],
)
def test_what_lm_eval_would_refuse_late_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, said: str
) -> None:
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: pytest.fail("the model would be loaded"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.yaml").write_text("tasks: [svamp")
    (tmp_path / "list.yaml").write_text("- svamp")
    (tmp_path / "several.yaml").write_text("tasks: svamp\ninclude_path: [mine, benchmarks]")
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "moons.yaml").write_text("task: moons_quiz\nmetadata: {switched_off: qa}")
    with pytest.raises(UserError, match=re.escape(said)) as told:
        lm_eval_command.run(words.split())
    assert "\n" not in str(told.value)


def test_tasks_of_included_folders_say_what_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_folder: Path
) -> None:
    monkeypatch.setattr(ConfiguredLM, "switched_off", None)
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: None)
    (tmp_path / "shared").write_text("metadata: {switched_off: [calendar]}")
    (tmp_path / "moons.yaml").write_text("task: moons_quiz\ninclude: shared")

    def off(*words: str) -> list[frozenset[str]]:
        lm_eval_command.run(["--model", "hf", *words])
        made = ConfiguredLM.create_from_arg_obj({"pretrained": str(tiny_folder), "tools": "calendar"})
        return [made._off(task) for task in ("moons_quiz", "triviaqa")]

    assert off("--tasks", "moons_quiz", "--include_path", str(tmp_path)) == [{"calendar"}, frozenset()]
    assert off("--tasks", "dateset") == [frozenset(), {"qa"}]
    # lm-eval's published task of that name may use all tools.
    assert off("--tasks", "triviaqa", "--include_path", "none") == [frozenset(), frozenset()]


def test_arguments_are_the_configurations(tiny_folder: Path, tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    made = get_model("toolformer").create_from_arg_string(
        f"pretrained={tiny_folder},tools=calculator+search,k=3,max_calls=2,max_call_tokens=7,max_result_tokens=9,"
        f"min_new_tokens=1,batch_size=4,answers={answers},tool.search.implementation.max_tokens=5",
        {"device": "cuda:0", "batch_size": 1, "max_batch_size": None},
    )
    assert isinstance(made, ConfiguredLM)
    decoder = made.decoder
    assert (decoder.k, decoder.max_calls, decoder.max_call_tokens) == (3, 2, 7)
    assert (decoder.max_result_tokens, decoder.min_new_tokens, decoder.batch_size) == (9, 1, 4)
    assert sorted(decoder.tools) == ["calculator", "search"]
    assert decoder.tools["search"].tool.max_tokens == 5  # type: ignore[attr-defined]
    assert made.answers.path == answers


@pytest.mark.parametrize(
    ("system", "k", "mode"),
    [("toolformer", 10, "tools"), ("toolformer_disabled", 0, "tools"), ("model", 0, "plain")],
)
def test_systems(tiny_folder: Path, system: str, k: int, mode: str) -> None:
    made = ConfiguredLM.create_from_arg_obj(
        {"pretrained": str(tiny_folder), "system": system, "tools": "calendar"}
    )
    assert (made.decoder.k, made.decoder.mode, made.decoder.batch_size) == (k, mode, 32)


def test_no_tools(tiny_folder: Path) -> None:
    made = ConfiguredLM.create_from_arg_string(f"pretrained={tiny_folder},tools=none,batch_size=2")
    assert made.decoder.tools == {} and made.decoder.k == 0 and made.decoder.batch_size == 2


def test_answers_of_another_tool_or_length_are_not_used(tiny_folder: Path) -> None:
    def key(**more: Any) -> str:
        made = ConfiguredLM.create_from_arg_obj(
            {"pretrained": str(tiny_folder), "tools": "calendar+search", **more}
        )
        return made._key("generate", made._decoding, "x")

    same = key()
    assert key() == same
    assert key(batch_size=3) == same
    assert key(max_result_tokens=5) != same
    assert key(**{"tool.search.implementation.max_tokens": 5}) != same


def test_the_day_is_told_where_an_example_has_none_and_the_calendar_may_be_used(tiny_folder: Path) -> None:
    def dates(tools: str) -> list[str | None]:
        made = ConfiguredLM.create_from_arg_obj({"pretrained": str(tiny_folder), "tools": tools})
        made._day = "2031-03-01"
        asked = [("svamp", {}), ("dateset", {"current_date": "2021-01-01"}), ("undated", {})]
        requests = [
            Instance("generate_until", document, ("x", {"until": []}), 0, (task, 0, 1))
            for task, document in asked
        ]
        off = [frozenset({"calendar"} if task == "undated" else ()) for task, _ in asked]
        return [
            _Question.of(request, made._clocks, made._day, one).date
            for request, one in zip(requests, off, strict=True)
        ]

    assert dates("calendar+search") == ["2031-03-01", "2021-01-01", None]
    assert dates("search") == [None, "2021-01-01", None]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "pretrained is missing"),
        ({"pretrained": "x", "kk": 3}, "unknown argument 'kk'; known are pretrained, tools, answers, k, "),
        ({"pretrained": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"pretrained": "x", "tools": "abacus"}, "abacus"),
        ({"pretrained": "x", "k": "many"}, "decoding.k"),
        ({"pretrained": "x", "decoding.kk": 3}, "decoding.kk"),
        ({"pretrained": "x", "system": "endpoint"}, "local-completions"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ConfiguredLM.create_from_arg_obj(arguments)


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("--model toolformer --tasks math", True),
        ("run --model=toolformer --tasks math", True),
        ("run --tasks math -M toolformer", True),
        ("--model hf --include_path benchmarks --tasks math", True),
        (f"ls tasks --include_path={TASKS_DIR}/", True),
        ("--model hf --model_args pretrained=toolformer --tasks wikitext", False),
        ("--model hf --include_path tasks --tasks benchmarks", False),
        ("-Mtoolformer --tasks math", True),
        ("run --config ours.yaml", True),
        ("run --config included.yaml", True),
        ("run --config theirs.yaml", False),
        ("run --config nonesuch.yaml", False),
        ("--model", False),
        ("--help", False),
        ("", False),
    ],
)
def test_what_the_program_lm_eval_takes_for_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, ours: bool
) -> None:
    monkeypatch.chdir(tmp_path)  # where `benchmarks` is no folder
    for name, text in {
        "ours": "model: toolformer",
        "included": "include_path: [benchmarks]",
        "theirs": "model: hf",
    }.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    assert lm_eval.is_ours(words.split()) is ours


def test_a_folder_of_the_users_own_called_benchmarks_is_his(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "benchmarks").mkdir()
    monkeypatch.chdir(tmp_path)
    assert not lm_eval.is_ours(["--include_path", "benchmarks"])


def test_the_set_up_installs_the_program() -> None:
    scripts = tomllib.loads((TASKS_DIR.parent / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["lm_eval"] == f"{cli.__name__}:{cli.lm_eval.__name__}"


def command(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The program `lm_eval`, as the entry point starts it."""
    environment = {**os.environ, "PYTHONPATH": str(TASKS_DIR.parent), "HF_HUB_OFFLINE": "1"}
    start = "import sys; from toolformer.cli import lm_eval; sys.exit(lm_eval())"
    line = [sys.executable, "-c", start, *words]
    return subprocess.run(line, cwd=place, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_the_program_is_lm_evals_own_for_others(tmp_path: Path) -> None:
    done = command(tmp_path, "run", "--model", "nonesuch", "--tasks", "wikitext")
    assert done.returncode == 1 and "no model for this name" in done.stderr
    assert "toolformer" not in done.stderr.partition("Supported model names")[2]


@pytest.mark.slow
def test_lm_evals_own_words_run_a_group(data_dir: Path, tiny_folder: Path) -> None:
    done = command(
        data_dir, "--model", "toolformer", "--model_args", f"pretrained={tiny_folder},k=3,tools=calculator",
        "--include_path", "benchmarks", "--tasks", "math,dateset", "--limit", "2",
        "--metadata", json.dumps({"data_dir": str(data_dir)}), "--output_path", "out",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (written,) = data_dir.glob("out/**/results_*.json")
    results = json.loads(written.read_text())["results"]
    assert {"svamp", "asdiv", "mawps", "dateset", "math"} <= set(results)
    assert all("score,none" in results[name] for name in ("svamp", "dateset"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--tasks", "svmp"], r"there is no task or group 'svmp'; did you mean svamp\?"),
        (
            ["--tasks", "triviaqa", "--include_path", "none"],
            r"lm-eval cannot read a task's data \(.*trivia_qa.*\); its published tasks need the hub",
        ),
    ],
)
def test_lm_evals_own_words_refuse_in_one_line(
    data_dir: Path, tiny_folder: Path, more: list[str], said: str
) -> None:
    model = ["--model", "toolformer", "--model_args", f"pretrained={tiny_folder}"]
    done = command(data_dir, *model, *more)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert re.fullmatch(f"toolformer: --tasks: {said}", done.stderr.strip().splitlines()[-1])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("k=3", "model_args: pretrained is missing"),
        ("pretrained=/no/such/folder", "there is no folder /no/such/folder"),
        ("pretrained={folder},k=ten", "decoding.k=ten: it must be a whole number"),
        ("pretrained={folder},tools=calculatr", "did you mean calculator?"),
    ],
)
def test_the_models_arguments_are_looked_at_before_rows_are_read(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, given: str, said: str
) -> None:
    monkeypatch.setenv("TOOLFORMER_RUNS", str(tmp_path))
    data = json.dumps({"data_dir": str(tmp_path / "nowhere")})
    words = ["--model", "toolformer", "--model_args", given.format(folder=tiny_folder)]
    with pytest.raises(UserError, match=re.escape(said)):
        lm_eval_command.run([*words, "--tasks", "svamp", "--metadata", data])
