"""Annotation and evaluation that survive and grow: killed processes, full disks, several processes and workers, Ray.

Real processes of the real command, with a tiny model. The tool writes down which process called it for which document.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from tests.build import smoke_words, wait_for
from tests.processes import PATIENCE, SHARDS, Place, Process, who_did
from toolformer.cli import main
from toolformer.results import Results

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def reference(place: Place) -> bytes:
    """The candidates of a run that nothing disturbed."""
    place.log.unlink(missing_ok=True)
    root = place.folder / "undisturbed"
    assert main(place.words(root)) == 0
    assert len(place.shards(root)) == SHARDS
    assert {len(docs) for docs in who_did(place.log).values()} == {2 * SHARDS}, "a document had no call"
    return place.candidates(root)


@pytest.fixture(autouse=True)
def fresh_log(place: Place, reference: bytes) -> None:
    place.log.unlink(missing_ok=True)


def finished(place: Place, process: Process, root: Path, reference: bytes) -> None:
    """A process that ended well, and left the bytes of an undisturbed run."""
    assert process.wait() == 0, process.errors
    assert place.candidates(root) == reference
    assert [run.status for run in place.runs(root)] == ["FINISHED"]
    assert not list(root.rglob("*.part"))


def test_killed_six_times_at_random(place: Place, reference: bytes, tmp_path: Path) -> None:
    """SIGKILL while it starts, while it annotates and while it writes the results, then the same command."""
    chance = random.Random(3)
    kills, ended = 0, 0
    while kills < 6:
        goal = min(len(place.shards(tmp_path)) + chance.choice([0, 1, 1, 2]), SHARDS)
        process = place.start(tmp_path, f"tool.calendar.filter_threshold={ended - 100}")
        process.until(lambda goal=goal: len(place.shards(tmp_path)) >= goal)
        moment = time.monotonic() + chance.uniform(0, 2.0)
        process.until(lambda moment=moment: time.monotonic() > moment)
        if process.ended:
            # It was faster than its death: the next one makes other results of the same shards.
            assert process.wait() == 0, process.errors
            ended += 1
        else:
            process.kill()
            kills += 1
    assert main(place.words(tmp_path, f"tool.calendar.filter_threshold={ended - 100}")) == 0
    first, *others = place.candidates_of_all_thresholds(tmp_path)
    assert others == [first] * ended and len(place.runs(tmp_path)) == ended + 1
    (undisturbed,) = place.candidates_of_all_thresholds(place.folder / "undisturbed")
    assert first == undisturbed
    assert len(place.shards(tmp_path)) == SHARDS
    # A process killed after its result was written may leave a part of MLflow's database, which the next run removes.
    assert not [path for path in tmp_path.rglob("*.part") if not path.name.startswith(".mlflow.db")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB of our own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_one_line_and_loses_nothing(place: Place, reference: bytes, disk: Path) -> None:
    process = place.start(disk, pause=0.3)
    process.until(lambda: len(place.shards(disk)) >= 2)
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    assert process.wait() == 2
    said = [line for line in process.errors.splitlines() if line.startswith("toolformer: ")]
    assert len(said) == 1 and "No space left on device" in said[0] and "Traceback" not in process.errors
    kept = place.shards(disk)
    assert 2 <= len(kept) < SHARDS
    ballast.unlink()
    place.log.unlink()
    finished(place, place.start(disk, pause=0.3), disk, reference)
    assert sum(map(len, who_did(place.log).values())) == 2 * (SHARDS - len(kept))


def test_two_processes_share_a_run(place: Place, reference: bytes, tmp_path: Path) -> None:
    """Each shard is done by one of them, both work, both end well, and there is one run."""
    processes = [place.start(tmp_path, crowd=2) for _ in range(2)]
    for process in processes:
        finished(place, process, tmp_path, reference)
    did = who_did(place.log)
    assert set(did) == {process.pid for process in processes} and all(did.values())
    assert sorted(doc for docs in did.values() for doc in docs) == sorted(f"d{n}" for n in range(2 * SHARDS))
    assert not list(place.store(tmp_path).folder.glob("claims/0*"))


def test_the_leading_process_is_killed_and_the_other_finishes(
    place: Place, reference: bytes, tmp_path: Path
) -> None:
    leader = place.start(tmp_path, crowd=2)
    leader.until(lambda: who_did(place.log))  # it has begun a shard, and waits in it for company
    helper = place.start(tmp_path, crowd=2)
    helper.until(lambda: len(who_did(place.log)) == 2)
    leader.kill()
    finished(place, helper, tmp_path, reference)


def test_workers_end_with_a_killed_parent(place: Place, tmp_path: Path) -> None:
    process = place.start(tmp_path, "engine.workers=2", crowd=2, pause=0.2)
    process.until(lambda: len(who_did(place.log)) == 2)
    workers = list(who_did(place.log))
    process.kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), PATIENCE)


def test_workers_give_the_same_bytes_though_one_is_killed(
    place: Place, reference: bytes, tmp_path: Path
) -> None:
    process = place.start(tmp_path, "engine.workers=2", crowd=2, pause=0.2)
    process.until(lambda: len(who_did(place.log)) == 2 and len(place.shards(tmp_path)) >= 2)
    os.kill(next(iter(who_did(place.log))), signal.SIGKILL)
    finished(place, process, tmp_path, reference)
    did = who_did(place.log)
    assert process.pid not in did
    assert "a worker died (signal 9); another takes its place" in process.errors
    asked = [doc for docs in did.values() for doc in docs]
    # What the killed worker was at is done a second time, and nothing else.
    assert len(set(asked)) == 2 * SHARDS and len(asked) <= 2 * SHARDS + 2


TASKS = ("dateset", "arithmetic", "heldout_perplexity")


def evaluating(root: Path, *more: str) -> list[str]:
    asked = [
        f"benchmarks=[{','.join(TASKS)}]",
        "evaluation.limit=10",
        "system=toolformer",
        "engine.threads=1",
    ]
    return ["evaluate", *smoke_words(root), *asked, *more]


def outcome(root: Path) -> dict[str, Any]:
    """The samples of each task and the metrics, without what they took."""
    run = Results(root).runs("evaluate")[0]
    found: dict[str, Any] = {
        name: value
        for name, value in run.metrics.items()
        if "second" not in name and not name.startswith("tool")
    }
    for task in TASKS:
        samples = pq.read_table(run.folder / "samples" / f"{task}.parquet")
        found[task] = samples.drop_columns(["seconds"]).to_pylist()
    return found


@pytest.fixture(scope="module")
def alone(pipeline: Path) -> dict[str, Any]:
    root = pipeline.parent / "alone"
    shutil.copytree(pipeline, root)
    assert main(evaluating(root)) == 0
    return outcome(root)


def test_two_workers_evaluate_as_one_does_though_one_is_killed(
    pipeline: Path, alone: dict[str, Any], tmp_path: Path
) -> None:
    root = tmp_path / "runs"
    shutil.copytree(pipeline, root)
    process = Process(evaluating(root, "engine.workers=2"), tmp_path / "errors")
    assert process.until(lambda: list(root.glob("answer/*/claims/*.lock"))), process.errors
    workers = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "spawn_main" in " ".join(child.cmdline())
    ]
    assert len(workers) == 2
    workers[0].kill()
    assert process.wait() == 0, process.errors
    assert "a worker died (signal 9); another takes its place" in process.errors
    assert outcome(root) == alone
    assert not list(root.glob("answer/*/claims/*.json")), "notes stay until the answers are scored"
