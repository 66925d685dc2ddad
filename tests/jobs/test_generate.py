"""The annotation in one process: what it reads and how often, and what becomes of damaged files."""

import datetime
import json
import shutil
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from tests.build import Capture, Log, Patch, Refused, full_gpu
from tests.processes import SHARDS, Place, finished, needs_ray, visible_gpus, who_did
from toolformer.annotation.results import RESULTS, KeepRules
from toolformer.annotation.shards import ShardStore
from toolformer.cli import main
from toolformer.data import Document, FileCorpus
from toolformer.errors import UserError
from toolformer.jobs import instantiate, steps
from toolformer.jobs.annotate import Annotating, Texts
from toolformer.jobs.config import Config, compose, validate
from toolformer.jobs.share import Chunk
from toolformer.lm import devices, text_generator


@pytest.fixture
def generate(place: Place, tmp_path: Path) -> Any:
    return lambda *more: main(place.words(tmp_path, *more, pause=0))


def results(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for name in RESULTS for path in root.glob(f"generate/*/{name}")}


def config(place: Place, root: Path, *more: str) -> Config:
    return validate(compose("generate", place.words(root, *more, pause=0)[1:]))


def test_a_finished_annotation_reads_no_text(
    place: Place, generate: Any, tmp_path: Path, monkeypatch: Patch
) -> None:
    """While its files hold the same, whenever they were written."""
    readings: list[int] = []
    read = FileCorpus.__iter__

    def counted(corpus: FileCorpus) -> Any:
        readings.append(0)
        for document in read(corpus):
            readings[-1] += 1
            yield document

    monkeypatch.setattr(FileCorpus, "__iter__", counted)
    assert generate() == 0 and {*readings} == {2 * SHARDS}
    assert set(results(tmp_path)) == set(RESULTS)
    plain = pq.read_table(next(tmp_path.glob("generate/*/dataset_plain.parquet"))).to_pylist()
    rows = [json.loads(line) for line in place.corpus.read_text().splitlines()]
    assert [(row["doc_id"], row["text"]) for row in plain] == [(row["id"], row["text"]) for row in rows]
    assert all(row["date"].replace("-", "/") in row["url"] for row in plain)
    readings.clear()
    place.corpus.touch()
    copied = f"corpus.path={shutil.copy(place.corpus, tmp_path)}"
    assert generate() == generate(copied) == 0
    assert [finished("generate", config(place, tmp_path))] == place.runs(tmp_path) and not readings


def test_appended_texts_are_annotated_and_no_other(place: Place, generate: Any, tmp_path: Path) -> None:
    place.log.unlink(missing_ok=True)
    corpus = tmp_path / "growing.jsonl"
    lines = place.corpus.read_text().splitlines(keepends=True)
    for count in (8, 12):
        corpus.write_text("".join(lines[:count]))
        assert generate(f"corpus.path={corpus}") == 0
    assert [doc for docs in who_did(place.log).values() for doc in docs] == [f"d{n}" for n in range(12)]
    assert {run.metrics["documents"] for run in place.runs(tmp_path)} == {8, 12}


def test_a_bad_row_is_refused_before_a_run_begins(place: Place, tmp_path: Path, refused: Refused) -> None:
    corpus = tmp_path / "bad.jsonl"
    corpus.write_text(place.corpus.read_text() + "\nno JSON")
    said = refused(*place.words(tmp_path, f"corpus.path={corpus}", "corpus.strict=true", pause=0))
    assert f"{corpus}, line {2 * SHARDS + 1}: malformed JSON; fix it, or set corpus.strict=false" in said
    assert not (tmp_path / "generate").exists() and not place.shards(tmp_path)


def test_a_corpus_that_changes_meanwhile_is_named(
    place: Place, tmp_path: Path, refused: Refused, monkeypatch: Patch
) -> None:
    corpus = shutil.copy(place.corpus, tmp_path)
    write = ShardStore.write

    def change(*arguments: Any) -> None:
        write(*arguments)
        Path(corpus).write_text(place.corpus.read_text().replace("met", "sat"))

    monkeypatch.setattr(ShardStore, "write", change)
    words = place.words(tmp_path, f"corpus.path={corpus}", pause=0)
    assert "corpus: its files have changed since this command began; give the command again" in refused(
        *words
    )
    monkeypatch.undo()
    assert main(words) == 0
    (path,) = tmp_path.glob("generate/*/dataset_plain.parquet")
    assert all("sat" in row["text"] for row in pq.read_table(path).to_pylist())


def test_another_shard_size_finds_a_finished_annotation(place: Place, generate: Any, tmp_path: Path) -> None:
    assert generate() == 0
    place.log.unlink()
    assert main(["runs", "clean", "--yes", f"paths.root='{tmp_path}'"]) == 0
    assert generate("generate.shard_size=3") == 0 and not place.log.exists()
    assert finished("generate", config(place, tmp_path, "generate.shard_size=3")) == place.runs(tmp_path)[0]


def test_the_memory_of_reading_does_not_grow_with_the_corpus(place: Place, tmp_path: Path) -> None:
    """Nine times the documents, in shards of the same size."""

    def peak(count: int) -> int:
        corpus, root = tmp_path / f"{count}.jsonl", tmp_path / f"runs-{count}"
        corpus.write_text("".join(json.dumps({"text": f"{n:06d} " * 2000}) + "\n" for n in range(count)))
        config = validate(compose("generate", place.words(root, "generate.shard_size=50")[1:]))
        config.corpus.path, config.corpus.limit = str(corpus), None
        tracemalloc.start()
        sizes = Texts(config).sizes()
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert [*sizes.values()] == [50] * (count // 50)
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
    store, names = place.store(tmp_path), place.shards(tmp_path)
    for name in (names[1], names[4]):
        store.path(name).write_bytes(store.path(name).read_bytes()[:100])
    another = place.words(tmp_path, "tool.calendar.filter_threshold=-99", pause=0)
    assert "2 shards are damaged; run the same command to" in refused(*another)
    assert main(another) == 0
    first, second = place.candidates_of_all_thresholds(tmp_path)
    assert first == second
    assert sum(map(len, who_did(place.log).values())) == 4


@needs_ray
def test_a_cluster_that_does_not_answer_is_one_line(place: Place, tmp_path: Path, refused: Refused) -> None:
    line = refused(*place.words(tmp_path, "engine.address=127.0.0.1:1"))
    assert "engine.address: nothing answers at 127.0.0.1:1" in line
    assert not (tmp_path / "generate").exists(), "no run was begun"


@pytest.mark.parametrize("stage", ["generate", "evaluate"])
def test_a_cluster_without_ray_is_refused(
    tmp_path: Path, refused: Refused, monkeypatch: Patch, stage: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as Python marks a module that cannot be imported
    line = refused(stage, f"paths.root={tmp_path}", "engine.address=auto", "system=model")
    assert "engine.address needs Ray, which is not installed: make setup EXTRA=ray" in line


def test_a_worker_has_the_configured_threads_and_batches(tmp_path: Path, tiny_folder: Path) -> None:
    before = torch.get_num_threads()
    words = [f"model={tiny_folder}", f"paths.root={tmp_path}", "tools=[calculator]", "lm.dtype=float32"]
    try:
        for more, threads, tokens in (
            (["engine.batch_tokens=512", "engine.threads=2"], 2, 512),
            (["engine.threads=1"], 1, 2048),
        ):
            config = validate(compose("generate", [*words, *more]))
            replica = Annotating(config, {}, Texts(config), KeepRules({})).load()
            assert [torch.get_num_threads(), replica.batch_tokens.value] == [threads, tokens]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("words", "first"), [(["engine.batch_tokens=512"], 512), ([], 2048)])
def test_a_full_gpu_halves_the_batches_once(
    place: Place, tmp_path: Path, caplog: Log, monkeypatch: Patch, words: list[str], first: int
) -> None:
    """Those of a number, and those by the device; each later shard begins with the half."""
    one, two, three = (
        Chunk(f"calendar/{name}", [Document("d", f"On day {day} we met.", date=datetime.date(2021, 3, 1))])
        for day, name in enumerate(("one", "two", "three"))
    )
    config = validate(compose("generate", place.words(tmp_path, *words, pause=0)[1:]))
    folder = tmp_path / steps.annotate(config, "calendar").key()
    folder.mkdir()
    work = Annotating(config, {"calendar": folder}, Texts(config), instantiate.keep_rules(config))
    replica = work.load()
    model = text_generator.load_model(str(place.model), "float32", "auto")
    with full_gpu(model, {2}):
        work.do(replica, one)
        work.do(replica, two)
    half = first // 2
    assert model.batch_tokens == half and work.finished() == {"calendar/one", "calendar/two"}
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [f"the GPU's memory is full; going on with engine.batch_tokens={half}"]
    line = f"the GPU's memory is full at engine.batch_tokens={half}; finished work is kept"
    with full_gpu(model, range(10**6)), pytest.raises(UserError, match=line):
        work.do(replica, three)
    assert not work.has("calendar/three")


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
    """A worker that has a GPU to itself has a GPU's batches."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    config = validate(compose("generate", words))
    assert config.engine.workers == workers
    assert config.engine.batch_tokens == (2048 if is_shared else "auto")
    assert config.decoding.batch_size == (32 if is_shared else "auto")


@pytest.mark.chaos
def test_each_worker_sees_one_gpu(place: Place, tmp_path: Path, monkeypatch: Patch) -> None:
    """Two of three, as a user or Slurm leaves them to the command."""
    place.log.unlink(missing_ok=True)  # of other tests
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    monkeypatch.setattr(devices, "gpus", lambda device="auto": 2)
    monkeypatch.setattr(devices, "gpu_memory", lambda: [2**34] * 2)
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
    assert generate() == 0 and generate("tool.calendar.chance=0.5") == 0
    assert sum(map(len, who_did(place.log).values())) == 2 * SHARDS, "each document was asked for once"
    kept = sorted(run.metrics["calls_kept"] for run in place.runs(tmp_path))
    assert 0 < kept[0] < kept[1]


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("filter.chance={calendar: 0.5}", "filter.chance is now tool.NAME.chance"),
        ("tool.calendar.chance_above=0", "tool.calendar.chance_above: its calls are kept by gain"),
        ("tool.calendar.chance=1.5", "tool.calendar.chance is 1.5; Input should be less than or equal to 1"),
        ("filter.leak=maybe", "filter.leak is 'maybe'"),
    ],
)
def test_bad_filters_are_refused_before_anything_runs(
    generate: Any, capsys: Capture, word: str, line: str
) -> None:
    assert generate(word) == 2
    assert line in capsys.readouterr().err


def test_chance_keeps_other_calls_with_another_seed(place: Place, generate: Any, tmp_path: Path) -> None:
    words = ["generate.seed=0", "tool.calendar.chance=0.5"]
    assert generate(*words, "seed=0") == generate(*words, "seed=1") == 0
    assert len({run.id for run in place.runs(tmp_path)}) == 2
    kept = [path.read_bytes() for path in tmp_path.glob("generate/*/dataset_augmented.parquet")]
    assert len(kept) == 2 and kept[0] != kept[1]
