"""lm-eval's own command line with the model `toolformer` and this project's tasks: arguments, runs, refusals."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lm_eval
import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import TaskIndex
from lm_eval.utils import simple_parse_args_string

from tests.build import (
    ARC_QUESTIONS,
    Patch,
    Refused,
    bos_tokenizer,
    published_task,
    tiny_model,
    write,
    write_math,
)
from toolformer.benchmarks import TASKS_DIR
from toolformer.cli import main
from toolformer.cli.lm_eval import ConfiguredLM


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: Patch) -> None:
    """lm-eval sets up its log once in a process, on the standard error of that time: here in every test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lm_eval.utils._LOGGING_CONFIGURED", False)
    monkeypatch.setenv("TOOLFORMER_RUNS", str(tmp_path / "runs"))
    ConfiguredLM.folders, ConfiguredLM.loaded = [str(TASKS_DIR)], False


@pytest.fixture(autouse=True)
def one_published_task(monkeypatch: Patch) -> None:
    """lm-eval reads its thousands of task files at every start, which takes many seconds: here one, named as one of ours."""
    files, published = TaskIndex._iter_yaml_files, Path(lm_eval.__file__).parent / "tasks"
    read = staticmethod(lambda root: files(published / "asdiv" if Path(root) == published else root))
    monkeypatch.setattr(TaskIndex, "_iter_yaml_files", read)


def allowed(
    folder: Path, tools: str, task: str, document: dict[str, Any] | None = None
) -> tuple[list[str], bool]:
    """The tools that the model may use for a request of a task, and whether it is told a day."""
    lm = ConfiguredLM.create_from_arg_obj({"pretrained": str(folder), "tools": tools})
    request = Instance("generate_until", document or {}, ("x", {"max_gen_toks": 2}), 0, (task, 0, 1))
    with patch.object(lm.decoder, "answers", wraps=lm.decoder.answers) as answers:
        lm.generate_until([request])
    (asked,), _ = answers.call_args.args
    return asked.keys(lm.decoder.tools), asked.document.date is not None


def test_lm_evals_own_command_runs_a_group(tmp_path: Path, tiny_folder: Path) -> None:
    write_math(tmp_path)
    words = [
        "lm_eval", "--model", "toolformer", "--model_args", f"pretrained={tiny_folder},k=3,tools=calculator",
        "--tasks", "math,dateset", "--limit", "2", "--metadata", json.dumps({"data_dir": str(tmp_path)}),
        "--output_path", "out",
    ]  # fmt: skip
    assert main(words) == 0
    (written,) = tmp_path.glob("out/**/results_*.json")
    results = json.loads(written.read_text())["results"]
    assert {"svamp", "asdiv", "mawps", "dateset", "math"} <= set(results)
    assert all("score,none" in results[name] for name in ("svamp", "dateset"))


def test_models_of_lm_evals_own_are_known(tmp_path: Path, tiny_folder: Path) -> None:
    words = [
        "--model_args",
        f"pretrained={tiny_folder}",
        "--tasks",
        "dateset",
        "--limit",
        "1",
        "--device",
        "cpu",
    ]
    assert main(["lm_eval", "--model", "hf", *words, "--output_path", "out"]) == 0
    assert list(tmp_path.glob("out/**/results_*.json"))


ARGUMENTS = ["--tasks", "dateset", "--model_args"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tasks", "svmp"], "--tasks: there is no task or group 'svmp' (did you mean svamp?)"),
        (["--tasks", "svamp", "--metadata", '{"data_dir": "."}'], "svamp.jsonl.gz, line 1: no text in field `body`"),
        (["--tasks", "dateset", "--limit", "1", "--apply_chat_template"], "tiny-gpt2 has no chat template; leave it out"),
        (["--config", "nonesuch.yaml"], "lm_eval: Config file not found"),
        (["--config", "broken.yaml"], "lm_eval: Invalid YAML in broken.yaml"),
        (["--tasks", "dateset", "--log_samples"], "lm_eval: Specify --output_path"),
        (["--tasks", "moons_quiz", "--include_path", "wrong"], "metadata.switched_off is 'qa'; it must be a list"),
        (["--tasks", "dateset", "--limit", "1", "--gen_kwargs", "top_p=0.5"], "dateset: generation_kwargs (--gen_kwargs): top_p=0.5"),
        (["--tasks", "dateset", "--limit", "1", "--gen_kwargs", "do_sample=True"], "dateset: generation_kwargs (--gen_kwargs): do_sample=True"),
        ([*ARGUMENTS, "k=3"], "model_args: pretrained is missing"),
        ([*ARGUMENTS, "pretrained=/no/such/folder"], "there is no folder /no/such/folder"),
        ([*ARGUMENTS, "pretrained={folder},k=ten"], "decoding.k=ten: "),
    ],
)  # fmt: skip
def test_refusals_are_one_line(
    tmp_path: Path, tiny_folder: Path, refused: Refused, words: list[str], said: str
) -> None:
    write(tmp_path, "svamp/svamp", [{"id": "0", "answer": 1.0}])
    Path("broken.yaml").write_text("tasks: [svamp")
    Path("wrong").mkdir()
    Path("wrong/moons.yaml").write_text(
        "task: moons_quiz\nmetadata: {switched_off: qa}\noutput_type: generate_until\ntest_split: test\n"
        "custom_dataset: !function toolformer.benchmarks.loaders.temporal.dateset\ndoc_to_text: x\ndoc_to_target: x\n"
    )
    model = [] if "--model_args" in words else ["--model_args", "pretrained={folder}"]
    given = [word.replace("{folder}", str(tiny_folder)) for word in (*model, *words)]
    assert said in refused("lm_eval", "--model", "toolformer", *given)


def test_a_chat_template_gives_the_numbers_of_lm_evals_own_class(tmp_path: Path) -> None:
    """Of a tokenizer that begins texts itself, as a template does: it adds BOS once."""
    tokenizer = bos_tokenizer()
    tokenizer.chat_template = (
        "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}{{ eos_token }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    folder = tmp_path / "chat"
    tiny_model("llama", len(tokenizer), context=1024).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    arguments = {"pretrained": str(folder), "system": "model", "dtype": "float32", "min_new_tokens": 0}
    ours = ConfiguredLM.create_from_arg_obj(arguments)
    theirs = HFLM(pretrained=str(folder), dtype="float32", device="cpu", batch_size=1, max_length=1024)
    asked = {}
    for lm in (ours, theirs):
        manager = TaskManager(include_path=str(TASKS_DIR), include_defaults=False)
        loaded = manager.load([published_task(tmp_path, "arc/arc_easy.yaml", ARC_QUESTIONS), "dateset"])
        found = lm_eval.evaluate(lm, loaded, limit=3, bootstrap_iters=0, apply_chat_template=True)
        assert found is not None
        asked[lm] = [
            (sample["arguments"], sample["filtered_resps"])
            for task in ("arc_easy", "dateset") for sample in found["samples"][task]
        ]  # fmt: skip
    for (question, mine), (same, other) in zip(asked[ours], asked[theirs], strict=True):
        assert question == same and question[0][0].startswith(f"{tokenizer.bos_token}user: ")
        if isinstance(mine[0], str):
            assert mine == other
        else:
            assert [score for score, _ in mine] == pytest.approx([score for score, _ in other], rel=2e-4)


def test_arguments_are_the_configurations(tiny_folder: Path, tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    model: Any = get_model("toolformer")
    given = (
        f"pretrained={tiny_folder},tools=calculator+search,k=3,max_calls=2,min_new_tokens=1,batch_size=16,"
        f"answers={answers},tool.search.implementation.max_tokens=5"
    )
    added = {"device": "cuda:0", "batch_size": 1, "max_batch_size": None}
    made = model.create_from_arg_obj(simple_parse_args_string(given), added)
    decoder = made.decoder
    assert (decoder.k, decoder.max_calls, decoder.min_new_tokens, decoder.batch_size) == (3, 2, 1, 16)
    assert sorted(decoder.tools) == ["calculator", "search"]
    assert decoder.tools["search"].tool.max_tokens == 5  # type: ignore[attr-defined]
    assert made.answers.path == answers


def test_a_task_names_its_tools_and_gives_a_day_where_used(tmp_path: Path, tiny_folder: Path) -> None:
    (tmp_path / "shared").write_text("metadata: {switched_off: [calendar]}")
    (tmp_path / "moons.yaml").write_text("task: moons_quiz\ninclude: shared")
    assert allowed(tiny_folder, "calendar+qa", "triviaqa") == (["calendar"], True)
    ConfiguredLM.folders = [str(tmp_path)]
    assert allowed(tiny_folder, "calendar+qa", "moons_quiz") == (["qa"], False)
    # lm-eval's published task of that name may use all tools.
    assert allowed(tiny_folder, "calendar+qa", "triviaqa") == (["calendar", "qa"], True)
    assert allowed(tiny_folder, "search", "svamp", {"current_date": "2021-01-01"}) == (["search"], True)
