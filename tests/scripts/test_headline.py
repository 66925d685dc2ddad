"""The texts of `experiment=evidence`, from a data folder of a few rows, and its two rounds with a tiny model."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from scripts import evidence, rounds
from tests.build import GOLDEN, Capture
from toolformer.errors import UserError
from toolformer.results import Results
from toolformer.stages.train import model_folder

Rows = Sequence[Mapping[str, Any]]

PAGE = {"id": "web", "url": None, "date": "2019-06-03", "title": None, "language": "en"}
GLOSS = "He drew. The Dutch saying is zo gezegd, zo gedaan (“no sooner said than done”)."
FILES: dict[str, Rows] = {
    "corpus_math/gsm8k_train": [
        {"id": f"gsm{n}", "text": f"She has {n} + 4 = {n + 4} pens."} for n in range(114)
    ],
    "corpus_web/documents": [
        {**PAGE, "text": "We met. It was Monday when the rain came. Then we left."},
        {**PAGE, "id": "other", "text": "It was Sunday."},
        {**PAGE, "id": "foreign", "text": "Es war Monday.", "language": "de"},
    ],
    "squad/train_v1.1": [
        {"title": "Old_bridge", "context": "The bridge is old (“it is very old”)."},
        {"title": "Comics", "context": f"Old. {GLOSS} It is used."},
    ],
    "corpus_wikipedia/passages_2wiki": [],
    "lama/trex_evidences": [
        {"evidences": [{"sub_surface": "A", "obj_surface": "Rome", "masked_sentence": "A is in [MASK]."}]}
    ],
    "nq_open/oracle_passages": [{"passages": [{"title": "B", "text": "B is a town."}]}],
    "corpus_pile/wikipedia_en": [{"text": "C\n\nC is a hill."}],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, rows in FILES.items():
        file = folder / f"{name}.jsonl.gz"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    evidence.main(folder, folder / "evidence", 3000)
    return folder


def test_all_missing_files_are_named_at_once(tmp_path: Path) -> None:
    for name in [*FILES][2:]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.jsonl.gz").touch()
    message = (
        r"lacks 2 of 7 files: corpus_math/gsm8k_train.jsonl.gz \(id, text.*corpus_web/documents.jsonl.gz"
    )
    with pytest.raises(OSError, match=message):
        evidence.main(tmp_path, tmp_path / "evidence", 1)
    assert not (tmp_path / "evidence").exists()


@pytest.mark.real
def test_the_texts_of_the_experiment(data: Path) -> None:
    def read(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (data / "evidence" / name).read_text().splitlines()]

    first, second = read("texts/1.jsonl"), read("texts/2.jsonl")
    texts = {row["id"]: row for row in first}
    assert texts["gsm3"]["text"] == "She has 3 + 4 = 7 pens."
    dated = "We met. It was Monday when the rain came. Then we left."
    assert (texts["web"]["text"], texts["web"]["date"]) == (dated, "2019-06-03")
    assert not {"other", "foreign"} & set(texts), "a page names its own day, in English"
    assert ["date" in row or "source_id" in row for row in first[:6]] == [False, True, True] * 2, "in turn"
    # A pair of sentences comes from an article, and no other pair comes from there.
    index = {row["id"]: row for row in read("index/summaries.jsonl")}
    pairs = [row for row in first + second if "source_id" in row]
    assert len(pairs) == 963, "of 3,000 passages"
    assert len({row["source_id"] for row in pairs}) == len(pairs)
    assert all(row["text"] in index[row["source_id"]]["text"] for row in pairs)
    assert [row["id"] for row in second[::2]][:2] == ["gsm112", "gsm113"], "those after 250 sums, in turn"
    assert [row for row in second if "source_id" in row] == pairs[420:]
    assert [row["text"] for row in read("index/trex.jsonl")] == ["A is in Rome."]
    glosses = {row["id"]: row["text"] for row in read("texts/glosses.jsonl")}
    assert glosses["squad_train/1"] == GLOSS and "squad_train/0" not in glosses


def test_rounds_refuse_at_once_what_their_last_step_would(data: Path, tmp_path: Path) -> None:
    words = [f"paths.data_dir={data}", f"paths.root={tmp_path / 'runs'}", f"model={GOLDEN}"]
    for word, said in (("seed=a", "seed"), ("benchmarks=[mawps]", "mawps")):  # whose data are missing
        with pytest.raises(UserError, match=said):
            rounds.main(*words, word)
    assert Results(tmp_path / "runs").all_runs() == [], "no stage began"


@pytest.mark.real
def test_two_rounds_are_one_command(data: Path, tmp_path: Path, capsys: Capture) -> None:
    words = [f"paths.data_dir={data}", f"paths.root={tmp_path}", f"model={GOLDEN}", "corpus.limit=3"]
    words += ["filter_threshold=-100", "screen={result_ahead: null, new_result: false}", "heldout.limit=2"]
    words += [
        "trainer.max_steps=1",
        "trainer.eval_every=1",
        "trainer.save_every=0",
        "seed=3,4",
        "name=rounds",
    ]
    words += ["benchmarks=[dateset]", "evaluation.limit=2", "system=toolformer"]
    assert rounds.main(*words) == 0
    results = Results(tmp_path)
    first, dates, second, again = reversed(results.runs("generate"))
    (teacher,) = results.runs("train", "first_round")
    assert teacher.made_from == [first.id, dates.id]
    assert {run.setting("model") for run in (second, again)} == {str(model_folder(teacher))}
    taught = results.runs("train", "rounds")
    assert {run.setting("seed") for run in taught} == {3, 4}
    assert all(run.made_from == [first.id, second.id, again.id] for run in taught)
    assert "Trained Toolformer" in capsys.readouterr().out
