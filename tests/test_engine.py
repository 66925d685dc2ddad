"""Annotation that survives and grows: killed processes, full disks, several processes, several workers, Ray.

Real processes of the real command, with a tiny model. The tool writes down which process called it for which document.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.processes import PATIENCE, SHARDS, Place, Process, save_calling_model, who_did
from toolformer.cli import main

needs_ray = pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="ray is not installed")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("engine")
    save_calling_model(folder / "model")
    return Place(folder, folder / "model")


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


def test_killed_twenty_times_at_random(place: Place, reference: bytes, tmp_path: Path) -> None:
    """SIGKILL while it starts, while it annotates and while it writes the results, then the same command."""
    chance = random.Random(3)
    kills, name, seconds_to_start, seconds_in_all = 0, 0, 2.0, 3.0
    while kills < 20:
        before = len(place.shards(tmp_path))
        began = time.monotonic()
        process = place.start(tmp_path, f"name=killed{name}")
        goal = before + chance.choice([0, 1, 1, 2])
        if before == SHARDS:
            process.until(partial(past, began + chance.uniform(0.3, 1.0) * seconds_in_all))
        elif goal == before:
            process.until(partial(past, began + chance.uniform(0, 1.2) * seconds_to_start))
        else:
            process.until(partial(place.has_shards, tmp_path, before + 1))
            seconds_to_start = time.monotonic() - began
            process.until(partial(place.has_shards, tmp_path, goal))
            time.sleep(chance.uniform(0, 0.15))
        if process.ended:
            # It was faster than its death: the next one is another experiment on the same shards.
            assert process.wait() == 0, process.errors
            seconds_in_all = time.monotonic() - began
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


def test_broken_shards_are_found_and_done_again(
    place: Place, reference: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(place.words(tmp_path)) == 0
    store, names = place.store(tmp_path), place.shards(tmp_path)
    flipped = bytearray(store.path(names[1]).read_bytes())
    flipped[len(flipped) // 2] ^= 1
    store.path(names[1]).write_bytes(flipped)
    os.truncate(store.path(names[4]), 100)
    store.path(names[6]).unlink()
    place.log.unlink()
    capsys.readouterr()
    assert main(place.words(tmp_path, "name=again")) == 0
    assert place.candidates(tmp_path) == reference
    said = re.findall(
        r"shard (\S+) does not have its checksum: it is done again", " ".join(capsys.readouterr().err.split())
    )
    assert said == [names[1], names[4]]
    (documents,) = who_did(place.log).values()
    assert sorted(documents) == sorted(f"d{n}" for shard in (1, 4, 6) for n in (2 * shard, 2 * shard + 1))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB of our own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.strip()}")
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


def test_a_read_only_folder_is_one_line_and_loses_nothing(place: Place, reference: bytes, disk: Path) -> None:
    process = place.start(disk)
    process.until(lambda: len(place.shards(disk)) >= 2)
    process.kill()
    kept = place.shards(disk)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    process = place.start(disk)
    assert process.wait() == 2
    assert len(process.last_words) == 1 and "Read-only file system" in process.last_words[0], process.errors
    assert place.shards(disk) == kept
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    finished(place, place.start(disk), disk, reference)


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
    asked = [doc for docs in did.values() for doc in docs]
    # What the killed actor was at is done a second time, and nothing else.
    assert len(set(asked)) == 2 * SHARDS and len(asked) <= 2 * SHARDS + 2


@needs_ray
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["engine.workers=999", "engine.cpus_per_worker=1"], "is 999, and the reader needs 0.25 more"),
        (["engine.address=127.0.0.1:1"], "engine.address: nothing answers at 127.0.0.1:1"),
    ],
)
def test_what_ray_cannot_have_is_one_line(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(place.words(tmp_path, "engine=ray", *arguments)) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_ray_the_line_says_how_to_install_it(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as Python marks a module that cannot be imported
    assert main(place.words(tmp_path, "engine=ray")) == 2
    assert "pip install 'toolformer[ray]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("engine.workers=0", "engine.workers is 0; it must be at least 1"),
        ("engine.gpus_per_worker=1", "engine.gpus_per_worker is for engine=ray"),
        ("engine.address=auto", "engine.address is for engine=ray"),
        ("engine.cpus_per_worker=-1", "engine.cpus_per_worker is -1.0"),
        ("engine.kind=dask", "engine.kind is 'dask'; it must be one of local, ray"),
        ("engine=dask", "engine"),
    ],
)
def test_engine_keys_are_checked(override: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", override]) == 2
    assert message in capsys.readouterr().err
