"""What tools need and what they are called, without a model: the paper's tools in its toolset, and the bundled stand-ins."""

import json
from pathlib import Path

import pytest

from tests.build import Capture, Patch, Refused, smoke_words
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.jobs import instantiate
from toolformer.jobs.config import Config, compose, validate
from toolformer.tools.retrieval import java

PLACES = ["corpus.path=DIR"]


def config(*words: str) -> Config:
    return validate(compose("generate", list(words)))


@pytest.mark.parametrize(
    "words", [["setting=paper", *PLACES], ["toolset=paper"], ["experiment=figure4", *PLACES]]
)
def test_the_papers_setting_has_the_papers_tools(words: list[str]) -> None:
    tools = config(*words, "paths.data_dir=/dev").tool
    assert tools["search"].implementation["retriever"]["_target_"].endswith("Lucene")
    assert tools["qa"].implementation["retriever"]["_target_"].endswith("Lucene")
    assert tools["qa"].implementation["checkpoint_path"] == "/dev/atlas_nq/large"
    assert tools["qa"].inference["checkpoint_path"] == "/dev/atlas_nq/xxl"
    assert tools["translation"].implementation["translator"]["_target_"].endswith("NllbTranslator")


def test_tools_are_described() -> None:
    assert instantiate.implementations(config("toolset=paper", "paths.data_dir=/dev"), inference=True) == {
        "search": "BM25 by Lucene over wikipedia-kilt-doc (5.9 million articles)",
        "qa": "Atlas (xxl) on 40 passages; BM25 by Lucene over wikipedia-kilt-doc (5.9 million articles)",
        "translation": "nllb-200-distilled-600M",
    }
    assert instantiate.implementations(config("setting=paper", "toolset=bundled", *PLACES)) == {
        "search": "BM25 (bm25s) over 10,033 Wikipedia summaries",
        "qa": "BM25 (bm25s) over 10,033 Wikipedia summaries; smollm2",
        "translation": "gemma3",
    }


def test_a_missing_checkpoint_is_named() -> None:
    with pytest.raises(
        UserError,
        match=r"^tool.qa.implementation: Atlas's checkpoint /dev/atlas_nq/large: it is not there; fetch it",
    ):
        instantiate.check_tools(config("toolset=paper", "tools=[qa]", "paths.data_dir=/dev"))


def test_a_missing_file_of_a_tool_is_named_before_any_job() -> None:
    path = "tool.qa.implementation.retriever.articles_path"
    with pytest.raises(UserError, match=f"^{path}: there is no file or folder /no/articles; name one"):
        instantiate.check_tools(config("toolset=bundled", "tools=[qa]", f"{path}=/no/articles"))


def test_a_missing_checkpoint_of_inference_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.pth.tar").touch()
    words = [
        f"tool.qa.implementation.checkpoint_path={tmp_path}",
        "tool.qa.inference.checkpoint_path=/dev/xxl",
    ]
    more = [
        "toolset=paper",
        "tools=[qa]",
        "paths.data_dir=/dev",
        "retriever@tool.qa.implementation.retriever=bm25",
    ]
    with pytest.raises(UserError, match=r"^tool.qa.inference: Atlas's checkpoint /dev/xxl: it is not there"):
        instantiate.check_tools(config(*more, *words))


def test_a_missing_data_folder_is_named() -> None:
    with pytest.raises(
        UserError, match=r"tool.qa.implementation.\S+ needs paths.data_dir; add paths.data_dir=DIR"
    ):
        config("toolset=paper", "tools=[qa]")


@pytest.mark.parametrize(
    ("release", "words"),
    [
        (None, "Lucene needs Java 21 or newer, and none is found"),
        ('JAVA_VERSION="17.0.9"', "Lucene needs Java 21 or newer, found 17"),
        ('JAVA_VERSION="1.8.0_402"', "Lucene needs Java 21 or newer, found 8"),
    ],
)
def test_a_java_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: Patch, release: str | None, words: str
) -> None:
    monkeypatch.setattr(java, "jar", lambda: "anserini.jar")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if release:
        (tmp_path / "release").write_text(f"IMPLEMENTOR=x\n{release}\n")
    with pytest.raises(UserError, match=words):
        instantiate.check_tools(config("toolset=paper", "tools=[search]"))


def test_an_index_of_another_lucene_is_named(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(java, "jar", lambda: "anserini.jar")
    (tmp_path / "index.json").write_text(json.dumps({"backend": "lucene", "version": 1}))
    words = ["toolset=paper", "tools=[search]", f"tool.search.implementation.retriever.index_path={tmp_path}"]
    with pytest.raises(UserError, match="an index of another version of toolformer"):
        instantiate.check_tools(config(*words))


def test_the_doctor_says_what_the_tools_of_an_experiment_need(capsys: Capture, tmp_path: Path) -> None:
    main(["doctor", "experiment=table", f"paths.root={tmp_path}"])
    shown = capsys.readouterr().out
    assert "Atlas's checkpoint None/atlas_nq/xxl: it is not there" in shown
    assert "tool translation    the translator facebook/nllb-200-distilled-600M" in shown


def test_a_run_without_its_tools_is_refused_before_any_work(
    tmp_path: Path, refused: Refused, capsys: Capture
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    words = [*smoke_words(tmp_path), "toolset=paper", "tools=[qa]", f"paths.data_dir={data}"]
    assert "Atlas's checkpoint" in refused("run", *words)
    assert not list(tmp_path.glob("generate/*"))
    assert main(["run", *words, "--plan"]) == 0
    assert "no  tool qa" in capsys.readouterr().out
