"""Rows of a model that lm-eval's own command measured, in the tables of a report: from real files, and what is refused."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lm_eval
import pytest
from lm_eval.tasks._index import TaskIndex

from tests.build import Refused, smoke_words, write_math
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.reporting import lm_eval_rows

Content = dict[str, Any]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    """A folder with runs of a model on two benchmarks, and what lm-eval wrote of the same model: `out`, and `few` of a subset."""
    folder = tmp_path_factory.mktemp("served")
    write_math(folder / "data")
    words = [
        *smoke_words(folder / "runs"),
        f"paths.data_dir={folder}/data",
        "evaluation.limit=null",
        "system=model",
    ]
    assert main(["evaluate", *words, "benchmarks=[svamp,asdiv]", "name=math"]) == 0
    files, published = TaskIndex._iter_yaml_files, Path(lm_eval.__file__).parent / "tasks"
    with pytest.MonkeyPatch.context() as monkeypatch:
        # lm-eval reads its thousands of task files at every start, which takes many seconds.
        read = staticmethod(lambda root: files(published / "asdiv" if Path(root) == published else root))
        monkeypatch.setattr(TaskIndex, "_iter_yaml_files", read)
        model = ["--model", "hf", "--model_args", f"pretrained={tiny_folder}", "--device", "cpu"]
        data = ["--metadata", json.dumps({"data_dir": f"{folder}/data"}), "--tasks"]
        for out, more in (("out", ["math", "--log_samples"]), ("few", ["svamp", "--limit", "2"])):
            assert main(["lm_eval", *model, *data, *more, "--output_path", f"{folder}/{out}"]) == 0
    return folder


def report(folder: Path, *more: str) -> list[str]:
    return ["report", "name=math", f"paths.root={folder}/runs", *more]


def test_a_row_is_read_from_lm_evals_files(measured: Path, tiny_folder: Path) -> None:
    assert main(report(measured, f"lm_eval=[{measured}/out]")) == 0
    folder = measured / "runs" / "report" / "math"
    with (folder / "tables" / "table4.csv").open() as file:
        rows = {row["Model"].partition(" (")[0]: row for row in csv.DictReader(file)}
    (path,) = (measured / "out").rglob("results_*.json")
    results = json.loads(path.read_text())["results"]
    served = rows[str(tiny_folder)]
    assert float(served["SVAMP, this run"]) == pytest.approx(results["svamp"]["score,none"])
    assert float(served["ASDiv, this run"]) == pytest.approx(results["asdiv"]["score,none"])
    assert path.name in (folder / "report.md").read_text()


def changed(measured: Path, to: Path, change: Callable[[Content], object], samples: bool = False) -> Path:
    """A copy of lm-eval's file, changed, with or without its samples."""
    (path,) = (measured / "out").rglob("results_*.json")
    to.mkdir()
    for file in path.parent.glob("samples_svamp_*") if samples else ():
        shutil.copy(file, to)
    content = json.loads(path.read_text())
    for part in ("results", "versions", "configs", "n-shot", "n-samples"):
        content[part] = {"svamp": content[part]["svamp"]}
    content["group_subtasks"] = {}
    change(content)
    (to / path.name).write_text(json.dumps(content))
    return to


def set_to(*keys: str, value: Any) -> Callable[[Content], object]:
    def change(content: Content) -> None:
        part = content
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (set_to("versions", "svamp", value=1.0), "svamp is version 1.0, and here it is 2.0; measure it again"),
        (set_to("n-samples", "svamp", value={"original": 6, "effective": 3}), "svamp has 3 questions, and the report's column 6"),
        (set_to("n-samples", "svamp", value={"original": 9, "effective": 6}), "svamp has 6 of its questions, and the file does not say which"),
        (set_to("configs", "svamp", "metadata", "subset", value=6), "and the file does not say which"),
        (set_to("configs", "svamp", "metadata", "wording", value="b"), "svamp is asked in the wording b"),
        (set_to("configs", "svamp", "generation_kwargs", "temperature", value=1.0), "svamp is generated with temperature=1.0, and the tables with 0"),
        (set_to("configs", "svamp", "generation_kwargs", "do_sample", value=True), "svamp is generated with do_sample=True, and the tables with False"),
        (set_to("configs", "svamp", "generation_kwargs", "max_gen_toks", value=4), "svamp is generated with max_gen_toks=4, and the tables with 32"),
        (set_to("configs", "svamp", "generation_kwargs", "until", value=["."]), "svamp is generated with until=['.'], and the tables with []"),
        (set_to("configs", "svamp", value={}), "svamp: configs.generation_kwargs: Field required"),
        (set_to("results", "svamp", "score,none", value=float("nan")), "svamp: results.score,none: Input should be"),
        (set_to("results", "svamp", "score,none", value=[1]), "svamp: results.score,none: Input should be a valid number, not [1]"),
        (set_to("results", "svamp", "score,none", value=0.31), "results.score,none: 0.31 is not the percentage of right answers to 6 questions"),
        (set_to("results", "svamp", value=3), "svamp: results: it must be an object, not 3"),
        (set_to("n-samples", value={}), "svamp: n-samples: it must be an object, not None"),
        (set_to("n-samples", "svamp", "effective", value=0), "svamp: n-samples.effective: Input should be greater than or equal to 1"),
        (set_to("date", value="yesterday"), "svamp: date: Input should be a valid number, not 'yesterday'"),
        (set_to("date", value=1e300), "svamp: date: Input should be less than"),
        (set_to("n-shot", "svamp", value=5), "svamp has 5 examples in its prompts"),
        (set_to("results", "svamp", value={"exact_match,none": 0.5}), "svamp has exact_match,none in place of score,none"),
        (set_to("results", value={"gsm8k": {"acc,none": 0.5}}), "has no benchmark of this project that is answered in words (gsm8k)"),
        (set_to("versions", value=[]), "is not a file of lm-eval's results (ValueError: versions is not an object)"),
    ],
)  # fmt: skip
def test_other_results_are_refused_in_one_line(
    measured: Path, tmp_path: Path, refused: Refused, change: Callable[[Content], object], said: str
) -> None:
    folder = changed(measured, tmp_path / "changed", change)
    assert said in refused(*report(measured, f"lm_eval=[{folder}]"))


def test_a_subset_that_no_file_names_is_refused(measured: Path, refused: Refused) -> None:
    assert "svamp has 2 questions, and the report's column 6" in refused(
        *report(measured, f"lm_eval=[{measured}/few]")
    )


def test_other_questions_are_refused(measured: Path, tmp_path: Path, refused: Refused) -> None:
    folder = changed(measured, tmp_path / "changed", lambda content: None, samples=True)
    assert main(report(measured, f"lm_eval=[{folder}]")) == 0
    (samples,) = folder.glob("samples_*")
    samples.write_text(samples.read_text().replace("Each pack", "Every pack"))
    assert "svamp asks other questions" in refused(*report(measured, f"lm_eval=[{folder}]"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nowhere", "is not a file of lm-eval's results (FileNotFoundError"),
        ("data", "has no file results_*.json"),
    ],
)
def test_files_of_nobody_are_refused(measured: Path, refused: Refused, given: str, said: str) -> None:
    assert said in refused(*report(measured, f"lm_eval=[{measured}/{given}]"))


def test_a_result_that_is_given_twice_is_refused(measured: Path, refused: Refused) -> None:
    assert "has a result on " in refused(*report(measured, f"lm_eval=[{measured}/out,{measured}/out]"))


def test_a_part_of_the_questions_is_refused_without_a_run(measured: Path) -> None:
    with pytest.raises(
        UserError, match="2 of its questions, and the report has no run that says which; measure all"
    ):
        lm_eval_rows.rows([str(measured / "few")], {})


def test_other_questions_than_an_earlier_row_are_refused(measured: Path, tmp_path: Path) -> None:
    folders = [
        changed(measured, tmp_path / name, set_to("model_name", value=name), samples=True) for name in "ab"
    ]
    assert len(lm_eval_rows.rows(map(str, folders), {})[0]) == 2
    (samples,) = folders[1].glob("samples_*")
    samples.write_text(samples.read_text().replace("Each pack", "Every pack"))
    with pytest.raises(UserError, match="svamp asks other questions"):
        lm_eval_rows.rows(map(str, folders), {})
