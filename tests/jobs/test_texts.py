"""Texts of a user's YAML files that YAML takes for something else are refused, on every way to a configuration."""

from pathlib import Path

import pytest

from tests.build import Patch, Refused
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.jobs.config import compose

HEAD = "# @package _global_\n"


def written(folder: Path, name: str, content: str) -> str:
    """A file of a user's configuration; returns the override that finds it."""
    path = folder / "conf" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return f"hydra.searchpath=[{folder / 'conf'}]"


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("name: no", "name"), ("name: On", "name"), ("name: 12:30", "name"), ("dataset: 0123", "dataset"), ("model: 1_000", "model"),
        ("checkpoint: 0x1F", "checkpoint"), ("checkpoint: 12345e67", "checkpoint"), ("corpus: {path: 1e3}", "corpus.path"),
        ("corpus:\n  text_field: yes", "corpus.text_field"), ("heldout: {split: off}", "heldout.split"),
        ("tool: {calculator: {name: true}}", "tool.calculator.name"), ("tools: [no]", "tools"), ("benchmarks: [1e3]", "benchmarks"),
    ],
)  # fmt: skip
def test_a_text_that_yaml_takes_for_something_else_is_refused(tmp_path: Path, line: str, key: str) -> None:
    search = written(tmp_path, "experiment/mine", f"{HEAD}{line}\n")
    with pytest.raises(
        UserError, match=rf"experiment/mine.yaml: {key}: .* is read as .*; put it in quotes: "
    ):
        compose("generate", [search, "experiment=mine"])


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("seed: 1:30", "seed"), ("seed: 0123", "seed"), ("corpus: {limit: 010}", "corpus.limit"),
        ("decoding:\n  k: 2:00", "decoding.k"), ("filter_threshold: 1:30.5", "filter_threshold"),
    ],
)  # fmt: skip
def test_a_number_that_yaml_takes_for_another_is_refused(tmp_path: Path, line: str, key: str) -> None:
    search = written(tmp_path, "experiment/mine", f"{HEAD}{line}\n")
    with pytest.raises(
        UserError, match=rf"mine.yaml: {key}: .* is read as .*; write the number that you mean"
    ):
        compose("generate", [search, "experiment=mine"])


@pytest.mark.parametrize("line", ["<<: {name: 0123}", "<<: [{name: 0123}]", "corpus: {<<: {path: 0123}}"])
def test_what_is_merged_into_a_mapping_is_checked(tmp_path: Path, line: str) -> None:
    search = written(tmp_path, "experiment/mine", f"{HEAD}{line}\n")
    with pytest.raises(UserError, match="0123 is read as 83; put it in quotes"):
        compose("generate", [search, "experiment=mine"])


@pytest.mark.parametrize(
    "line",
    [
        "name: 'no'",
        'dataset: "0123"',
        "name: 7",
        "corpus: {url_field: null}",
        "seed: 0x1F",
        "seed: 0",
        "seed: -07",
        "filter_threshold: 00.5",
        "corpus: {limit: 1_000}",
    ],
)
def test_what_reads_as_it_is_written_is_taken(tmp_path: Path, line: str) -> None:
    search = written(tmp_path, "experiment/mine", f"{HEAD}{line}\n")
    assert compose("generate", [search, "experiment=mine"])


def test_files_that_a_file_names_are_checked_and_others_are_not(tmp_path: Path) -> None:
    written(tmp_path, "experiment/unused", f"{HEAD}name: no\n")
    written(tmp_path, "corpus/notes", "defaults:\n  - jsonl\n  - _self_\npath: 0123\n")
    search = written(
        tmp_path, "experiment/mine", f"{HEAD}defaults:\n  - override /corpus: notes\nname: mine\n"
    )
    with pytest.raises(UserError, match="corpus/notes.yaml: corpus.path: 0123 is read as 83"):
        compose("generate", [search, "experiment=mine"])
    with pytest.raises(UserError, match="corpus/notes.yaml: heldout.path: 0123 is read as 83"):
        compose("generate", [search, "corpus@heldout=notes"])
    assert compose("generate", [search])


@pytest.mark.parametrize("more", [["--cfg", "job"], [], ["-m", "seed=1,2"]])
def test_a_command_ends_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    search = written(tmp_path, "experiment/mine", f"{HEAD}name: no\n")
    assert main(["generate", *more, search, "experiment=mine", f"paths.root={tmp_path / 'runs'}"]) == 2
    assert "name: no is read as False; put it in quotes: name: 'no'" in capsys.readouterr().err


def test_a_folder_conf_where_the_command_is_given_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "experiment/mine", f"{HEAD}dataset: 0123\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="experiment/mine.yaml: dataset: 0123 is read as 83"):
        compose("generate", ["experiment=mine"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("benchmark: [svamp]", "Key 'benchmark' not in 'Config' (did you mean benchmarks?)"),
        ("corpus: {limt: 3}", "corpus.limt: Key 'limt' not in 'CorpusConfig' (did you mean limit?)"),
    ],
)
def test_a_misspelt_key_of_a_file_gets_a_hint(
    line: str, said: str, tmp_path: Path, monkeypatch: Patch, refused: Refused
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "experiment/mine", f"{HEAD}{line}\n")
    assert f"In 'experiment/mine': {said}; see toolformer generate --help" in refused(
        "generate", "experiment=mine"
    )
    assert "your own is conf/experiment/other.yaml in the folder" in refused("generate", "experiment=other")
