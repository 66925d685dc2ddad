"""The annotation in one process: what it reads and how often, and what becomes of damaged files."""

import datetime
import json
import os
import sys
import time
import tracemalloc
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from tests.build import Capture, Log, Patch, Refused, full_gpu
from tests.processes import PATIENCE, SHARDS, Place, finished, needs_ray, visible_gpus, who_did
from toolformer.annotation.results import RESULTS
from toolformer.annotation.shards import ShardStore
from toolformer.cli import main
from toolformer.data import Document, FileCorpus
from toolformer.jobs import engine
from toolformer.jobs.config import Config, compose, validate
from toolformer.jobs.engine.annotating import Annotating
from toolformer.jobs.engine.work import Worker
from toolformer.lm import loading, text_generator
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.memory import Memory


@pytest.fixture
def generate(place: Place, tmp_path: Path) -> Any:
    return lambda *more: main(place.words(tmp_path, *more, pause=0))


def results(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for name in RESULTS for path in root.glob(f"generate/*/{name}")}


def config(place: Place, root: Path, *more: str) -> Config:
    return validate(compose("generate", place.words(root, *more, pause=0)[1:]))


def test_the_corpus_is_read_once_and_results_are_left_alone(
    place: Place, generate: Any, tmp_path: Path, monkeypatch: Patch
) -> None:
    """While its files stay as they are, no command reads them again."""
    readings: list[int] = []
    read = FileCorpus.__iter__

    def counted(corpus: FileCorpus) -> Any:
        readings.append(0)
        for document in read(corpus):
            readings[-1] += 1
            yield document

    monkeypatch.setattr(FileCorpus, "__iter__", counted)
    assert generate() == 0 and readings == [2 * SHARDS]
    assert not list(tmp_path.glob("annotate/*/waiting/*"))
    assert set(results(tmp_path)) == set(RESULTS)
    plain = pq.read_table(next(tmp_path.glob("generate/*/dataset_plain.parquet"))).to_pylist()
    rows = [json.loads(line) for line in place.corpus.read_text().splitlines()]
    assert [(row["doc_id"], row["text"]) for row in plain] == [(row["id"], row["text"]) for row in rows]
    assert all(row["date"].replace("-", "/") in row["url"] for row in plain)
    assert [finished("generate", config(place, tmp_path))] == place.runs(tmp_path)
    assert generate() == 0 and generate("tool.calendar.filter_threshold=100") == 0
    assert finished("generate", config(place, tmp_path)) and len(readings) == 1
    place.corpus.touch()
    assert generate() == 0 and readings == [2 * SHARDS] * 2
    assert len(place.runs(tmp_path)) == 2


def test_a_shard_is_done_before_the_corpus_has_been_read(
    place: Place, generate: Any, tmp_path: Path, capsys: Capture
) -> None:
    """What follows in a pipe is only written then; a bad row ends the run, and the shard is kept."""
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    first, second, *others = place.corpus.read_text().splitlines(keepends=True)
    seen: list[list[str]] = []
    place.log.unlink(missing_ok=True)

    def write(*more: str) -> None:
        deadline = time.monotonic() + PATIENCE
        with pipe.open("w", buffering=1) as stream:
            stream.writelines([first, second])
            while not place.shards(tmp_path) and time.monotonic() < deadline:
                time.sleep(0.02)
            seen.append(place.shards(tmp_path))
            stream.writelines(more)

    for more, code in ((["no JSON"], 2), (others, 0)):
        writer = Thread(target=write, args=more)
        writer.start()
        assert generate(f"corpus.path={pipe}", "corpus.strict=true") == code
        writer.join()
    said = " ".join(capsys.readouterr().err.split())
    assert f"toolformer: {pipe}, line 3: malformed JSON; fix it or set corpus.strict=false" in said
    assert len(seen[0]) == 1 and seen[0] == seen[1] and len(place.shards(tmp_path)) == SHARDS
    assert sum(map(len, who_did(place.log).values())) == 2 * SHARDS
    assert [run.status for run in place.runs(tmp_path)] == ["FINISHED"]


def test_another_shard_size_annotates_nothing_again(place: Place, generate: Any, tmp_path: Path) -> None:
    assert generate() == 0
    place.log.unlink()
    assert generate("generate.shard_size=3") == 0 and not place.log.exists()
    assert len(place.runs(tmp_path)) == 1 and len(place.shards(tmp_path)) == SHARDS
    assert finished("generate", config(place, tmp_path, "generate.shard_size=3")) == place.runs(tmp_path)[0]


def test_another_shard_size_after_cleaning_annotates_nothing(
    place: Place, generate: Any, tmp_path: Path
) -> None:
    assert generate() == 0
    place.log.unlink()
    assert main(["runs", "clean", "--yes", f"paths.root='{tmp_path}'"]) == 0
    assert place.shards(tmp_path) == []
    assert generate("generate.shard_size=3") == 0 and not place.log.exists()


def test_the_memory_of_planning_does_not_grow_with_the_corpus(place: Place, tmp_path: Path) -> None:
    """Nine times the documents, in shards of the same size."""

    def peak(count: int) -> int:
        corpus, root = tmp_path / f"{count}.jsonl", tmp_path / f"runs-{count}"
        corpus.write_text("".join(json.dumps({"text": f"{n:06d} " * 2000}) + "\n" for n in range(count)))
        config = validate(compose("generate", place.words(root)[1:]))
        config.corpus.path, config.corpus.limit = str(corpus), None
        plan, store = engine.Plan(config, 50), ShardStore(root / "shards")
        tracemalloc.start()
        plan.read(store)
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(list((store.folder / "waiting").iterdir())) == len(plan.documents) == count // 50
        return highest

    peak(50)  # what is imported at first use
    assert peak(1800) < 1.3 * peak(200)


def test_damaged_results_and_shards_are_made_again(
    place: Place, generate: Any, tmp_path: Path, refused: Refused
) -> None:
    assert generate() == 0
    before, asked = results(tmp_path), who_did(place.log)
    for name in ("funnel.json", "candidates.parquet", "dataset_augmented.parquet"):
        for path in tmp_path.rglob(name):
            path.write_bytes(path.read_bytes()[:-20])
        assert generate() == 0
        assert results(tmp_path) == before and who_did(place.log) == asked
    place.log.unlink()
    store, names, candidates = place.store(tmp_path), place.shards(tmp_path), place.candidates(tmp_path)
    for name in (names[1], names[4]):
        store.path(name).write_bytes(store.path(name).read_bytes()[:100])
    another = place.words(tmp_path, "tool.calendar.filter_threshold=-99", pause=0)
    assert "2 shards are damaged; run the same command again" in refused(*another)
    assert main(another) == 0
    assert {path.read_bytes() for path in tmp_path.glob("generate/*/candidates.parquet")} == {candidates}
    assert sum(map(len, who_did(place.log).values())) == 4


@needs_ray
def test_a_cluster_that_does_not_answer_is_one_line(place: Place, tmp_path: Path, refused: Refused) -> None:
    line = refused(*place.words(tmp_path, "engine.address=127.0.0.1:1"))
    assert "engine.address: nothing answers at 127.0.0.1:1" in line
    assert not (tmp_path / "generate").exists(), "no run was begun"


@pytest.mark.parametrize("stage", ["generate", "evaluate"])
def test_several_workers_without_ray_are_refused(
    tmp_path: Path, refused: Refused, monkeypatch: Patch, stage: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as Python marks a module that cannot be imported
    line = refused(stage, f"paths.root={tmp_path}", "engine.workers=2")
    assert "engine.workers=2 needs Ray, which is not installed: make setup EXTRA=ray" in line


def test_a_worker_has_the_configured_threads_and_batches(tmp_path: Path, tiny_folder: Path) -> None:
    before, shards = torch.get_num_threads(), ShardStore(tmp_path / "shards")
    words = [f"model={tiny_folder}", f"paths.root={tmp_path}", "tools=[calculator]", "lm.dtype=float32"]
    words += [f"tool.calculator.{key}" for key in ("samples=1", "max_positions=1", "max_call_tokens=2")]
    shards.add("one", [Document("d", "Today the library is closed, so read at home.")])
    shards.add("two", [Document("d", "Today the library is closed, so read at home.")])
    try:
        for name, more, *expected in (
            ("one", ["engine.batch_tokens=512"], 2, 512),
            ("two", ["engine.threads=1"], 1, 2048),
        ):
            config = validate(compose("generate", [*words, *more]))
            assert Worker(Annotating(config, shards.folder), threads=2)(name).is_done
            model = text_generator.load_model(str(tiny_folder), "float32", "auto")
            assert [torch.get_num_threads(), model.batch_tokens] == expected
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("words", "first"), [(["engine.batch_tokens=512"], 512), ([], 2048)])
def test_a_full_gpu_halves_the_batches_once(
    place: Place, tmp_path: Path, caplog: Log, monkeypatch: Patch, words: list[str], first: int
) -> None:
    """Those of a number, and those by the GPU's memory; each later shard begins with the half."""
    monkeypatch.setattr(LanguageModel, "gpu_memory", lambda self: Memory(10_000, 500, 2**30))
    shards = ShardStore(tmp_path / "shards")
    for day, name in enumerate(("one", "two", "three")):
        shards.add(name, [Document("d", f"On day {day} we met.", date=datetime.date(2021, 3, 1))])
    job = Annotating(validate(compose("generate", place.words(tmp_path, *words, pause=0)[1:])), shards.folder)
    worker = Worker(job)
    model = text_generator.load_model(str(place.model), "float32", "auto")
    with full_gpu(model, {2}):
        assert worker("one").is_done and worker("two").is_done
    half = first // 2
    assert model.batch_tokens == half
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [f"the GPU's memory is full; going on with engine.batch_tokens={half}"]
    with full_gpu(model, range(10**6)):
        error = str(worker("three").error)
    assert error.startswith(f"the GPU's memory is full at engine.batch_tokens={half}; finished work is kept")
    assert not shards.is_there("three")


@pytest.mark.parametrize(
    ("words", "workers", "is_shared"),
    [
        (["engine.workers=auto"], 3, False),
        (["engine.workers=5"], 5, True),
        (["engine.workers=auto", "lm.device=cpu"], 1, False),
        (["engine.workers=auto", "lm.device=cuda:1"], 1, False),
        (["engine.workers=2", "lm.device=cpu"], 2, True),
    ],
)
def test_batches_of_workers_on_a_machine_with_three_gpus(
    monkeypatch: Patch, words: list[str], workers: int, is_shared: bool
) -> None:
    """A worker that has a GPU to itself sizes its batches by that GPU's memory."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    config = validate(compose("generate", words))
    assert config.engine.workers == workers
    assert config.engine.batch_tokens == (2048 if is_shared else "auto")
    assert config.decoding.batch_size == (32 if is_shared else "auto")


@pytest.mark.chaos
@needs_ray
def test_each_worker_sees_one_gpu(place: Place, tmp_path: Path, monkeypatch: Patch) -> None:
    """Two of three, as a user or Slurm leaves them to the command."""
    place.log.unlink(missing_ok=True)  # of other tests
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    monkeypatch.setattr(loading, "gpus", lambda device="auto": 2)
    assert main(place.words(tmp_path, "engine.workers=auto", pause=0, crowd=2)) == 0
    assert len(who_did(place.log)) == 2 and visible_gpus(place.log) == {"2", "0"}


def test_one_worker_without_a_gpu(refused: Refused, tmp_path: Path) -> None:
    config = validate(compose("generate", ["engine.workers=auto"]))
    assert config.engine.workers == 1 and config.engine.batch_tokens == "auto"
    root = f"paths.root={tmp_path}"
    assert "with engine.address give a number" in refused(
        "generate", root, "engine.address=auto", "engine.workers=auto"
    )
    assert "it must be auto or a whole number" in refused("generate", root, "engine.workers=0")


def test_a_lower_threshold_than_the_shards_serve_is_refused(
    place: Place, generate: Any, tmp_path: Path, refused: Refused
) -> None:
    assert generate("tool.calendar.filter_threshold=1") == 0
    words = place.words(tmp_path, "tool.calendar.filter_threshold=0.5", pause=0)
    assert "0.5 is below score.floor=1 of" in refused(*words)
    assert main([*words, "score.floor=0.5"]) == 0
    assert "score.floor is 0.7, above the filter_threshold 0.5 of tool calendar" in refused(
        *words, "score.floor=0.7"
    )


def test_filters_need_no_annotation(place: Place, generate: Any, tmp_path: Path) -> None:
    place.log.unlink(missing_ok=True)
    assert generate() == 0 and generate("filter.chance={calendar: 0.5}") == 0
    assert sum(map(len, who_did(place.log).values())) == 2 * SHARDS, "each document was asked for once"
    kept = sorted(run.metrics["calls_kept"] for run in place.runs(tmp_path))
    assert 0 < kept[0] < kept[1]


@pytest.mark.parametrize(
    ("word", "line"),
    [
        (
            "filter.chance={calculator: 0.5}",
            "filter.chance.calculator: calculator is not among tools=calendar",
        ),
        ("filter.chance={calendar: 1.5}", "filter.chance.calendar is 1.5; a probability is from 0 to 1"),
        ("filter.leak=maybe", "filter.leak is 'maybe'"),
    ],
)
def test_bad_filters_are_refused_before_anything_runs(
    generate: Any, capsys: Capture, word: str, line: str
) -> None:
    assert generate(word) == 2
    assert line in capsys.readouterr().err


def test_chance_keeps_other_calls_with_another_seed(place: Place, generate: Any, tmp_path: Path) -> None:
    words = ["generate.seed=0", "filter.chance={calendar: 0.5}"]
    assert generate(*words, "seed=0") == generate(*words, "seed=1") == 0
    assert len({run.id for run in place.runs(tmp_path)}) == 2
    kept = [path.read_bytes() for path in tmp_path.glob("generate/*/dataset_augmented.parquet")]
    assert len(kept) == 2 and kept[0] != kept[1]
