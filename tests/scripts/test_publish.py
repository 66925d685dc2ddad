"""Published runs: whole in every number, without texts that may not be redistributed, and read like any others."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from scripts import answers as of_pages
from scripts import publish
from tests.build import GOLDEN, Capture, Refused, smoke_words
from tests.runs import TEXTS, Runs, annotated, evaluated, scored, without_calls, write, write_annotation
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.jobs.compare import compare
from toolformer.reporting.data import Sampled
from toolformer.reporting.pairing import compare_groups, read_samples
from toolformer.reporting.samples_page import UNPUBLISHED, questions
from toolformer.results import Results
from toolformer.results.folder import write_record
from toolformer.step import Step

PASSAGE = "The lighthouse of Carrow was built in 1794 by a family of masons who had come from the north. " * 3


@pytest.fixture(scope="module")
def published(smoke_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest experiment, published."""
    folder = tmp_path_factory.mktemp("published") / "smoke"
    publish.main(smoke_runs, "smoke", folder)
    return folder


@pytest.fixture
def copy(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "copy"))


def content(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def states(root: Path, capsys: Capture) -> dict[str, bool]:
    """Whether each job of the experiment is done, by what it is."""
    capsys.readouterr()
    words = [word for word in smoke_words(root) if not word.startswith("model=")]
    assert main(["run", *words, f"model={GOLDEN.relative_to(publish.ROOT)}", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    return {f"{row['stage']} {row['job']}".split(" dateset")[0].strip(): bool(row["run"]) for row in rows}


def test_published_runs_are_done(copy: Path, capsys: Capture) -> None:
    assert [name for name, is_done in states(copy, capsys).items() if not is_done] == ["report name=smoke"]


def test_what_a_missing_answer_needs_is_made_again(copy: Path, capsys: Capture) -> None:
    (run,) = Results(copy).runs("evaluate", system="model_cc")
    shutil.rmtree(run.folder)
    missing = [name for name, is_done in states(copy, capsys).items() if not is_done]
    assert missing == ["generate", "train data=plain", "evaluate system=model_cc", "report name=smoke"]


def test_published_answers_compare_as_they_did(smoke_runs: Path, published: Path) -> None:
    before, after = (
        compare(Results(root), "latest:model", "latest:toolformer", "smoke")
        for root in (smoke_runs, published)
    )
    assert before.benchmarks == after.benchmarks


def test_a_report_of_published_runs_has_their_tables(copy: Path) -> None:
    assert main(["report", "name=smoke", f"paths.root={copy}"]) == 0
    shown = (copy / "report" / "smoke" / "report.md").read_text(encoding="utf-8")
    assert "cannot be read" not in shown and "Dateset" in shown


def test_publishing_again_changes_nothing(smoke_runs: Path, copy: Path) -> None:
    before = content(copy)
    publish.main(smoke_runs, "smoke", copy)
    assert content(copy) == before


def test_runs_made_again_are_the_published_ones(smoke_runs: Path, published: Path, tmp_path: Path) -> None:
    """The annotation read a file with other bytes, so all ids differ; what was made does not."""
    again = Path(shutil.copytree(smoke_runs, tmp_path / "again"))
    (annotation,) = Results(again).runs("generate")
    digest = re.findall(r"[0-9a-f]{64}", json.dumps(annotation.step.as_json()["inputs"]))[0]
    for run in Results(again).all_runs():
        record = (run.folder / "step.json").read_text(encoding="utf-8").replace(digest, digest[::-1])
        write_record(run.folder / "step.json", json.loads(record))
        run.folder.rename(run.folder.with_name(Step.of_json(json.loads(record)).key()))
    folder = Path(shutil.copytree(published, tmp_path / "published"))
    shutil.rmtree(Results(folder).runs("evaluate", system="model_cc")[0].folder)
    publish.main(again, "smoke", folder)
    found, expected = (
        sorted(
            (run.stage, *run.made_from, run.facts.get("system", run.id)) for run in Results(root).all_runs()
        )
        for root in (folder, published)
    )
    assert found == expected


def test_published_runs_can_be_published(published: Path, tmp_path: Path) -> None:
    publish.main(published, "smoke", tmp_path / "again")
    assert content(tmp_path / "again") == content(published)


def test_published_files_are_those_that_are_logged(published: Path) -> None:
    folders = [published, *([of_pages.PUBLISHED] if of_pages.PUBLISHED.is_dir() else [])]
    for results in map(Results, folders):
        for run in results.all_runs():
            assert results.is_intact(run) and run.id == run.step.key() and run.status == "FINISHED", run.id


def test_a_file_that_was_changed_is_found(copy: Path, capsys: Capture) -> None:
    (run,) = Results(copy).runs("evaluate", system="model_cc")
    file = run.folder / "samples" / "dateset.parquet"
    file.write_bytes(file.read_bytes()[:-8] + b"12345678")
    assert not states(copy, capsys)["evaluate system=model_cc"]


def test_a_training_refuses_an_annotation_without_texts(copy: Path, refused: Refused) -> None:
    (run,) = Results(copy).runs("generate")
    line = refused("train", *smoke_words(copy), f"dataset={run.id}")
    assert "without its texts" in line and "toolformer generate" in line


def answers(folder: Path) -> tuple[Path, Path]:
    """Answers to a question of others, as an evaluation writes them and as they are published."""
    call = f" [WikiSearch(Carrow) -> {PASSAGE.strip()}]"
    more: dict[str, Any] = {"completion": f"{call} 1794.", "tools": ["WikiSearch"], "call_result": PASSAGE}
    rows = [scored(number, 100.0, f"Secret {number}?", seconds=0.123456, **more) for number in range(3)]
    whole = write(folder / "nq.parquet", rows)
    reduced = folder / "published" / "nq.parquet"
    reduced.parent.mkdir()
    pq.write_table(publish._answers(whole, "nq"), reduced)
    return whole, reduced


def test_published_answers_pair_with_whole_ones(tmp_path: Path) -> None:
    one, two = ([((0, 0), read_samples(path))] for path in answers(tmp_path))
    compared = compare_groups("nq", one, two)
    assert compared and (compared.comparison.n, compared.unpaired.total) == (3, 0)


def test_questions_and_passages_of_others_are_left_out(tmp_path: Path) -> None:
    _, reduced = answers(tmp_path)
    shown = json.dumps(pq.read_table(reduced).to_pylist())
    assert "Secret" not in shown and "north" not in shown and "[WikiSearch(Carrow) -> The lighthouse" in shown


def test_the_samples_page_says_what_is_not_published(tmp_path: Path) -> None:
    _, reduced = answers(tmp_path)
    (task,) = questions([Sampled("r" * 16, "Toolformer", "Toolformer", {"nq": reduced})])
    assert [row["prompt"] for row in task["rows"]] == [UNPUBLISHED] * 3


def test_texts_of_others_are_left_out_and_their_calls_kept(tmp_path: Path) -> None:
    runs = Runs()
    annotated(runs, {}, write_annotation(tmp_path) | without_calls(tmp_path), experiment="headline")
    publish.main(runs.root, "headline", tmp_path / "out")
    (run,) = Results(tmp_path / "out").runs("generate")
    kept = pq.read_table(run.folder / "dataset_augmented.parquet").to_pylist()
    assert {row["text"] for row in kept} == {None}
    assert [(row["doc_id"], call["position"], call["gain"]) for row in kept for call in row["calls"]][0] == (
        "math",
        77,
        2.5,
    )
    assert TEXTS["nile"] not in json.dumps(pq.read_table(run.folder / "dataset_plain.parquet").to_pylist())


def test_a_path_of_this_machine_is_not_published(tmp_path: Path) -> None:
    runs = Runs()
    evaluated(runs, "model", {"svamp/score": 1.0}, model="/srv/models/secret", experiment="headline")
    with pytest.raises(UserError, match="names /srv/models/secret, a path of this machine"):
        publish.main(runs.root, "headline", tmp_path / "out")


def test_a_data_folder_is_published_as_data(tmp_path: Path) -> None:
    runs = Runs()
    config = {"paths": {"data_dir": "/srv/data"}, "corpus": {"path": "/srv/data/texts.jsonl"}}
    run = runs.add("train", {}, config=config, experiment="headline", settings={"index": "/srv/data/index"})
    publish.main(runs.root, "headline", tmp_path / "out")
    (moved,) = Results(tmp_path / "out").runs("train")
    assert (moved.setting("corpus.path"), moved.step.settings["index"]) == ("data/texts.jsonl", "data/index")
    assert moved.id == moved.step.key() != run.id
