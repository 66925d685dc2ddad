"""Which settings and files make another evaluation, which another set of answers, and which neither."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.build import SVAMP, Patch, write
from tests.pages.page import Page
from tests.processes import config, finished, run_stage, trained
from toolformer.data import Document
from toolformer.errors import UserError
from toolformer.jobs import instantiate
from toolformer.jobs.evaluate import Work
from toolformer.jobs.outputs import model_folder
from toolformer.jobs.plan import make_job
from toolformer.results import Results
from toolformer.results.folder import record_digest
from toolformer.tools.base import Result, Tool
from toolformer.training.checkpoints import RECORD


class BusyCalendar(Tool):
    """Fails for as long as there is a file `busy`."""

    name = "Calendar"

    def __init__(self, folder: str, **_: object) -> None:
        self.busy = Path(folder) / "busy"

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        result = Result(reason="busy", fault=True) if self.busy.exists() else Result("yes")
        return [result for _ in inputs]


@pytest.fixture
def busy(tmp_path: Path, answering_model: Path) -> list[str]:
    """An evaluation whose calls fail."""
    trained(tmp_path, answering_model)
    (tmp_path / "busy").touch()
    return [
        "evaluation.limit=4", "decoding.k=400", "tools=[calendar]", "tool.calendar.cache=false", "tool.calendar.tries=1",
        f"tool.calendar.implementation._target_={__name__}.BusyCalendar",
        f"+tool.calendar.implementation.folder={tmp_path}",
    ]  # fmt: skip


def test_answers_with_faults_are_accepted_or_repeated(
    tmp_path: Path, busy: list[str], counted: list[str]
) -> None:
    given = config(tmp_path, *busy)
    run = run_stage("evaluate", given)
    faults = int(run.tasks["dateset"]["n_faults"])
    assert faults == run.tasks["dateset"]["n_faults/busy"] > 0 and len(counted) == 4
    accepting = config(tmp_path, *busy, "evaluation.accept_faults=true")
    assert finished("evaluate", accepting) == run == run_stage("evaluate", accepting) and len(counted) == 4
    assert finished("evaluate", given) is None
    (tmp_path / "busy").unlink()
    again = run_stage("evaluate", given)
    assert again.id == run.id and again.tasks["dateset"]["n_faults"] == 0 and len(counted) == 4 + faults
    assert finished("evaluate", given) == again


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    """A folder of runs with a training."""
    root = tmp_path_factory.mktemp("runs")
    trained(root, tiny_folder)
    return root


def folders(root: Path, *more: str) -> tuple[Path, Path]:
    """Those of an evaluation's answers and of the evaluation itself."""
    given = config(root, *more)
    results = instantiate.results(given)
    step = make_job("evaluate", given).step
    return results.path(step.inputs["answers"]), results.path(step)


def test_what_decides_nothing_answers_or_scores(runs: Path) -> None:
    base = "tools=[search,qa,calculator]"
    answers, scores = folders(runs, base)
    (training,) = Results(runs).runs("train")
    for override in (
        "decoding.batch_size=8", "tool.search.tries=2", "trainer.max_steps=3", "tools=[qa,calculator,search]",
        "tool.translation.k=1", "tool.search.fallback=translation", "tool.search.chance=0.5",
        "tool.translation.name=Translate",
    ):  # fmt: skip
        assert folders(runs, base, override) == (answers, scores), override
    for override in (
        "decoding.k=3", "lm.dtype=bfloat16", "tool.search.k=1", "tool.search.fallback=qa", "tool.search.max_call_tokens=9", "tool.qa.max_result_tokens=9",
        "tool.search.implementation.max_tokens=5", "system=toolformer_disabled", "tool.search.name=Find",
    ):  # fmt: skip
        others = folders(runs, base, override)
        assert others[0] != answers and others[1] != scores, override
    for override in (
        "seed=7", "evaluation.limit=3", "wording=a", "evaluation.gold_nats=true",
        "evaluation.samples=[1]", "benchmarks=[dateset,arithmetic]",
    ):  # fmt: skip
        others = folders(runs, base, override, f"checkpoint={training.id}")
        assert others[0] == answers and others[1] != scores, override


def test_settings_of_tools_count_only_where_calls_may_be(runs: Path) -> None:
    assert folders(runs, "decoding.k=0", "tool.qa.k=2") == folders(runs, "decoding.k=0")


def test_tools_decide_nothing_where_none_is_called(runs: Path) -> None:
    for system in ("model", "toolformer_disabled"):
        plain = folders(runs, f"system={system}")
        assert folders(runs, f"system={system}", "tools=[calendar]", "decoding.k=3") == plain


def test_heldout_texts_decide_their_perplexity_only(runs: Path) -> None:
    limits = [f"heldout.limit={number}" for number in (2, 3)]
    two, three = (folders(runs, limit) for limit in limits)
    assert two == three
    two, three = (folders(runs, limit, "benchmarks=[heldout_perplexity]") for limit in limits)
    assert two[0] == three[0] and two[1] != three[1]


@pytest.fixture
def moons(tmp_path: Path, tiny_folder: Path) -> list[str]:
    """An evaluation with a task of the user's."""
    Page("extending").write_files(tmp_path)
    tasks = tmp_path / "tasks"
    return [f"model={tiny_folder}", "system=model", "benchmarks=[moons_quiz]", f"paths.tasks_dir={tasks}"]


def test_an_edited_task_scores_the_same_answers(tmp_path: Path, moons: list[str], counted: list[str]) -> None:
    first = run_stage("evaluate", config(tmp_path / "runs", *moons))
    assert len(counted) == 2 == first.tasks["moons_quiz"]["n"]
    with (tmp_path / "tasks" / "moons.yaml").open("a") as file:
        file.write("# edited\n")
    second = run_stage("evaluate", config(tmp_path / "runs", *moons))
    assert second.id != first.id and len(counted) == 2, "no prompt is asked again"


def test_which_files_of_a_users_tasks_and_data_decide(tmp_path: Path, moons: list[str]) -> None:
    """Logs and runs decide nothing, nor does the place."""
    root, tasks, data = tmp_path / "runs", tmp_path / "tasks", f"paths.data_dir={tmp_path}"
    before = folders(root, *moons)
    for name in (".notes", "nohup.out", "run.log"):
        (tasks / name).write_text("x")
    assert folders(root, *moons) == before
    moved = shutil.copytree(tasks, tmp_path / "moved")
    assert folders(root, *moons, f"paths.tasks_dir={moved}") == before
    (tasks / "rows.jsonl").write_text("1")
    assert folders(root, *moons)[1] != before[1]
    before = folders(root, *moons, data)
    (root / "x.jsonl").write_text("{}")
    assert folders(root, *moons, data) == before
    for name in ("mine/notes.txt", "MLQA_V1/test/a.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
        assert before != (before := folders(root, *moons, data)), name


def test_a_custom_prompt_has_no_paraphrases(tmp_path: Path, moons: list[str]) -> None:
    task = tmp_path / "tasks" / "moons.yaml"
    prompt = "!function toolformer.benchmarks.tasks.question_prompt"
    assert prompt in task.read_text()
    task.write_text(task.read_text().replace(prompt, "'{{question}}'"))
    with pytest.raises(UserError, match="moons_quiz has a custom prompt without paraphrases"):
        run_stage("evaluate", config(tmp_path / "runs", *moons, "wording=a"))


def test_the_data_of_its_benchmarks_decides(tmp_path: Path, tiny_folder: Path, monkeypatch: Patch) -> None:
    """The folder of the data holds the runs: what they write is no data."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "svamp/svamp", [SVAMP])
    more = [f"model={tiny_folder}", "system=model", "paths.data_dir=.", "benchmarks=[svamp]"]
    done = run_stage("evaluate", config(Path(), *more))
    write(tmp_path, "asdiv/asdiv", [SVAMP])
    assert finished("evaluate", config(Path(), *more)) == done
    write(tmp_path, "svamp/svamp", [SVAMP, {**SVAMP, "id": "other"}])
    assert finished("evaluate", config(Path(), *more)) is None


def test_a_model_is_read_below_the_folder_of_runs_alone(tmp_path: Path, tiny_folder: Path) -> None:
    trained(tmp_path / "runs", tiny_folder)
    moved = Path(shutil.move(tmp_path / "runs", tmp_path / "moved"))
    (run,) = Results(moved).runs("train")
    assert model_folder(run) == run.folder / "model"
    (run.folder / "link").symlink_to(tiny_folder)
    record = json.loads((run.folder / "result.json").read_text())
    for hostile in (str(tiny_folder), "..", "/../..", "x/..", f"{tiny_folder}/..", "link"):
        record["facts"]["model"] = hostile
        (run.folder / "result.json").write_text(json.dumps({**record, "digest": record_digest(record)}))
        with pytest.raises(UserError):
            Work(make_job("evaluate", config(moved)), Results(moved)).model  # noqa: B018
    shutil.rmtree(run.folder / "model")
    with pytest.raises(UserError, match="is no longer at"):
        model_folder(run)


def test_answers_are_those_of_the_weights(tmp_path: Path, tiny_folder: Path, counted: list[str]) -> None:
    """Wherever the runs are."""
    root, copy = tmp_path / "runs", tmp_path / "copy"
    trained(root, tiny_folder)
    (run,) = Results(root).runs("train")
    (run.folder / "model" / RECORD).write_text(json.dumps({"step": 1, "seconds": 12.345678}))
    more = ["system=toolformer_disabled", "evaluation.limit=3"]
    done = run_stage("evaluate", config(root, *more))
    assert len(counted) == 3
    shutil.copytree(root, copy, copy_function=shutil.copyfile)  # as `cp -r`: everything has another time
    assert run_stage("evaluate", config(copy, *more)).id == done.id
    run_stage("evaluate", config(copy, *more, "evaluation.gold_nats=true"))
    assert len(counted) == 3, "the same weights at another place"
    model = copy / run.folder.relative_to(root) / "model"
    (model / RECORD).write_text(json.dumps({"step": 1, "seconds": 12.345679}))
    run_stage("evaluate", config(copy, *more, "evaluation.limit=4"))
    assert len(counted) == 3 + 4, "no answer of the weights that were there before"
    shutil.rmtree(model)
    assert finished("evaluate", config(copy, *more)), "a model that is gone undoes nothing"
