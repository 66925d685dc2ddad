"""Annotation that survives and grows: killed processes, full disks, several processes, several workers, Ray.

Real processes of the real command, with a tiny model. The tool writes down which process called it for which document.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.processes import PATIENCE, SHARDS, Place, Process, who_did
from toolformer.cli import main
from toolformer.stages.engine.ray import connected

pytestmark = pytest.mark.chaos
needs_ray = pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="ray is not installed")


@pytest.fixture(scope="module")
def reference(place: Place) -> bytes:
    """The candidates of a run that nothing disturbed."""
    place.log.unlink(missing_ok=True)
    root = place.folder / "undisturbed"
    assert main(place.words(root)) == 0
    assert len(place.shards(root)) == SHARDS
    assert {len(docs) for docs in who_did(place.log).values()} == {2 * SHARDS}, (
        "not every document had a call"
    )
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


def past(moment: float) -> bool:
    """Whether a moment of the monotonic clock is over."""
    return time.monotonic() > moment


# ---------------------------------------------------------------------- survives


def test_killed_ten_times_at_random(place: Place, reference: bytes, tmp_path: Path) -> None:
    """SIGKILL while it starts, while it annotates and while it writes the results, then the same command."""
    chance = random.Random(3)
    kills, name = 0, 0
    while kills < 10:
        goal = min(len(place.shards(tmp_path)) + chance.choice([0, 1, 1, 2]), SHARDS)
        process = place.start(tmp_path, f"name=killed{name}")
        process.until(partial(place.has_shards, tmp_path, goal))
        process.until(partial(past, time.monotonic() + chance.uniform(0, 2.0)))
        if process.ended:
            # It was faster than its death: the next one is another experiment on the same shards.
            assert process.wait() == 0, process.errors
            name += 1
        else:
            process.kill()
            kills += 1
    assert main(place.words(tmp_path, f"name=killed{name}")) == 0
    assert place.candidates(tmp_path) == reference
    assert len(place.shards(tmp_path)) == SHARDS
    assert [run.tags["experiment"] for run in place.runs(tmp_path)][0] == f"killed{name}"
    assert all(run.status == "FINISHED" for run in place.runs(tmp_path))
    assert not list(tmp_path.rglob("*.part"))


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
    assert len(process.last_words) == 1 and "No space left on device" in process.last_words[0], process.errors
    kept = place.shards(disk)
    assert 2 <= len(kept) < SHARDS
    ballast.unlink()
    place.log.unlink()
    finished(place, place.start(disk, pause=0.3), disk, reference)
    assert sum(map(len, who_did(place.log).values())) == 2 * (SHARDS - len(kept))


# -------------------------------------------------------------- several processes


def test_two_processes_share_a_run(place: Place, reference: bytes, tmp_path: Path) -> None:
    """Each shard is done by one of them, both work, both end well, and there is one tracked run."""
    processes = [place.start(tmp_path, crowd=2, shell=True) for _ in range(2)]
    for process in processes:
        finished(place, process, tmp_path, reference)
    did = who_did(place.log)
    assert set(did) == {process.pid for process in processes} and all(did.values())
    assert sorted(doc for docs in did.values() for doc in docs) == sorted(f"d{n}" for n in range(2 * SHARDS))
    assert "shares the work" in "".join(process.errors for process in processes)
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
    assert "shares the work" in helper.errors


# ----------------------------------------------------------------- several workers


def test_local_workers_give_the_same_bytes_though_one_is_killed(
    place: Place, reference: bytes, tmp_path: Path
) -> None:
    process = place.start(tmp_path, "engine.workers=2", crowd=2, pause=0.2, shell=True)
    process.until(lambda: len(who_did(place.log)) == 2 and len(place.shards(tmp_path)) >= 2)
    os.kill(next(iter(who_did(place.log))), signal.SIGKILL)
    finished(place, process, tmp_path, reference)
    assert "a worker process died" in process.errors
    assert process.pid not in who_did(place.log)


def test_workers_end_with_a_killed_parent(place: Place, tmp_path: Path) -> None:
    process = place.start(tmp_path, "engine.workers=2", crowd=2, pause=0.2, shell=True)
    process.until(lambda: len(who_did(place.log)) == 2)
    workers = list(who_did(place.log))
    process.kill()
    deadline = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_ray
def test_a_killed_ray_run_leaves_no_folder_behind(place: Place, tmp_path: Path) -> None:
    process = place.start(tmp_path, "engine=ray", pause=0.2, shell=True)
    process.until(lambda: who_did(place.log))
    process.kill()
    left = list(Path(tempfile.gettempdir()).glob(f"tf-ray-{process.pid}-*"))
    assert left and main(place.words(tmp_path, "engine=ray")) == 0
    assert not any(folder.exists() for folder in left)


@needs_ray
def test_one_process_may_start_ray_twice() -> None:
    for _ in range(2):
        with connected(None):
            pass


@needs_ray
def test_ray_gives_the_same_bytes_though_an_actor_is_killed(
    place: Place, reference: bytes, tmp_path: Path
) -> None:
    process = place.start(tmp_path, "engine=ray", "engine.workers=2", crowd=2, pause=0.2, shell=True)
    process.until(lambda: len(who_did(place.log)) == 2 and len(place.shards(tmp_path)) >= 2)
    ours = psutil.Process(process.pid).children(recursive=True)
    addresses = {
        connection.laddr.ip
        for one in ours
        for connection in one.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses and all(address.removeprefix("::ffff:") == "127.0.0.1" for address in addresses)
    victim = next(iter(who_did(place.log)))
    os.kill(victim, signal.SIGKILL)
    finished(place, process, tmp_path, reference)
    did = who_did(place.log)
    assert len(did) == 3 and process.pid not in did, "the killed actor was not started again"
    assert list(Path(tempfile.gettempdir()).glob(f"tf-ray-{process.pid}-*")) == []
    asked = [doc for docs in did.values() for doc in docs]
    # What the killed actor was at is done a second time, and nothing else.
    assert len(set(asked)) == 2 * SHARDS and len(asked) <= 2 * SHARDS + 2
