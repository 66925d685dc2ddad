"""What the task files and the groups promise: pins, published counts, conf/benchmark."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from lm_eval.tasks._yaml_loader import load_yaml

from benchmarks import DATA_FOLDERS, GROUPS, MLQA_LANGUAGES, TASKS, TASKS_DIR
from tests.benchmarks.by_name import task
from toolformer.config import CONF
from toolformer.errors import UserError

GENERATED = {"dateset", "heldout_perplexity"}
"""Tasks that need neither a data folder nor the hub."""


def config(name: str) -> dict[str, Any]:
    [path] = TASKS_DIR.glob(f"*/{name}.yaml")
    found: dict[str, Any] = load_yaml(path)
    return found


@pytest.mark.parametrize("name", sorted(set(TASKS) - GENERATED))
def test_a_task_pins_its_data_and_says_how_much_there_is(name: str) -> None:
    metadata = config(name)["metadata"]
    assert metadata["published_rows"] > 0
    hub = metadata["hub"]
    assert hub["path"] and hub["split"]
    # A commit, or the reason why there is none beside it in the file.
    [path] = TASKS_DIR.glob(f"*/{name}.yaml")
    pinned = re.fullmatch(r"[0-9a-f]{40}", str(hub.get("revision", "")))
    assert pinned or "No commit" in path.read_text() or "no versions to pin" in path.read_text()


@pytest.mark.parametrize("name", sorted(set(TASKS) - GENERATED))
def test_the_folders_of_a_data_folder_are_known(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as told:
        task(name, data_dir=str(tmp_path))
    [expected] = re.findall(r"expected the file (.*)", str(told.value))
    assert Path(expected).relative_to(tmp_path).parts[0] in DATA_FOLDERS


def test_the_default_needs_no_data() -> None:
    default = yaml.safe_load((CONF / "benchmark" / "default.yaml").read_text())["benchmarks"]
    assert set(default) == GENERATED
    assert not any("hub" in config(name).get("metadata", {}) for name in GENERATED)


def test_every_group_is_an_option() -> None:
    options = {
        path.stem: yaml.safe_load(path.read_text()) for path in Path(CONF / "benchmark").glob("*.yaml")
    }
    assert set(options) == {*GROUPS, "default", "all"}
    for option, content in options.items():
        assert set(content["benchmarks"]) <= {*GROUPS, *TASKS}
        assert option in ("default", "all") or option in content["benchmarks"]


def test_the_paper_is_its_tables() -> None:
    paper = set(GROUPS["paper"])
    assert set(TASKS) - paper == {f"xquad_{language}" for language in (*MLQA_LANGUAGES, "en")}
    assert len(GROUPS["paper"]) == len(paper) and len(TASKS) == len(set(TASKS))
    assert GROUPS["mlqa"] == ("mlqa_es", "mlqa_de", "mlqa_hi", "mlqa_vi", "mlqa_zh", "mlqa_ar")


@pytest.mark.parametrize(
    ("group", "words"), [("lama", 5), ("qa", 20), ("mlqa", 10), ("mlqa_all_en", 10), ("xquad", 10)]
)
def test_a_group_scores_its_number_of_words(group: str, words: int) -> None:
    for name in GROUPS[group]:
        score = config(name)["process_results"]
        for before in (words - 1, words):
            assert score({"answers": ["x"]}, ["w " * before + "x"]) == {"score": 100.0 * (before < words)}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_room_for_the_words_it_scores(name: str) -> None:
    found = config(name)
    if found["output_type"] == "generate_until":
        settings = found["generation_kwargs"]
        assert settings["until"] == [] and settings["do_sample"] is False and settings["max_gen_toks"] >= 24


@pytest.mark.real
@pytest.mark.skipif(not os.environ.get("TOOLFORMER_DATA_DIR"), reason="TOOLFORMER_DATA_DIR is not set")
@pytest.mark.parametrize(
    ("name", "kept", "out_of_reach"),
    [
        ("lama_squad", 213, 0),
        ("lama_trex", 28764, 0),
        ("svamp", 1000, 0),
        ("mawps", 2373, 0),
        ("webqs", 2032, 10),
        ("nq", 3610, 2),
        ("triviaqa", 11313, 7),
        ("xquad_es", 1190, 35),
        ("xquad_zh", 1190, 35),
        ("xquad_en", 1190, 35),
        ("wikitext_perplexity", 60, None),
    ],
)
def test_real_benchmarks_are_whole_and_their_answers_are_right(
    name: str, kept: int, out_of_reach: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows left after the filters, and how many have no answer that the score can see (longer than it reads)."""
    made = task(name)
    rows = [dict(row) for row in made.test_docs()]
    assert len(rows) == kept
    assert not [record for record in caplog.records if "but the published set" in record.message]
    if out_of_reach is not None:
        never = [
            row["id"]
            for row in rows
            if not any(
                made.process_results(row, [f" {answer}."])["score"]
                for answer in row.get("answers", [row.get("answer")])
            )
        ]
        assert len(never) == out_of_reach
