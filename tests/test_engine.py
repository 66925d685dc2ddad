"""Annotation that survives and grows: killed processes, full disks, several processes, several workers, Ray.

Real processes of the real command, with a tiny model. The tool writes down which process called it for which document.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.conftest import tiny_model, tiny_tokenizer
from toolformer.annotation.shards import ShardStore
from toolformer.cli import main
from toolformer.config import CONF
from toolformer.tools.base import Result
from toolformer.tracking import Run, Tracker

SHARDS = 16
PATIENCE = 300  # seconds until a test gives up on a process
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "toolformer.generate",
        "toolformer.annotation.pipeline",
        "transformers.models.gpt2.modeling_gpt2",
        "mlflow.store.tracking.sqlalchemy_store",
    ]
)
needs_ray = pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="ray is not installed")


class LoggedCalendar:
    """Answers yes, and writes down who asked for which document; may wait until several processes have asked."""

    name = "Calendar"

    def __init__(self, log: str, pause: float, crowd: int, **_: object) -> None:
        self._log, self._pause, self._crowd = Path(log), pause, crowd

    def run(self, inputs: list[str], documents: list[Any]) -> list[Result]:
        with self._log.open("a") as log:
            for doc_id in sorted({document.doc_id for document in documents}):
                log.write(f"{os.getpid()} {doc_id}\n")
        deadline = time.monotonic() + 60
        while len(who_did(self._log)) < self._crowd and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(self._pause)
        return [Result("yes") for _ in inputs]


def who_did(log: Path) -> dict[int, list[str]]:
    """The documents that each process asked the tool about."""
    found: dict[int, list[str]] = defaultdict(list)
    for line in log.read_text().splitlines() if log.exists() else ():
        pid, doc_id = line.split()
        found[int(pid)].append(doc_id)
    return found


class Place:
    """A corpus and a model, and the command that annotates the one with the other under a folder of runs."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model, self.log = folder, model, folder / "calls.log"
        self.corpus = folder / "corpus.jsonl"
        rows = [
            {
                "id": f"d{n}",
                "text": f"On day {n} we met.",
                "url": f"https://example.org/2020/05/{n % 28 + 1:02d}/x",
            }
            for n in range(2 * SHARDS)
        ]
        self.corpus.write_text("\n".join(map(json.dumps, rows)))

    def words(self, root: Path, *more: str, pause: float = 0.05, crowd: int = 1) -> list[str]:
        return [
            "generate", f"model={self.model}", f"paths.root={root}", "tools=[calendar]", "generate.shard_size=2",
            "corpus=jsonl", f"corpus.path={self.corpus}", "generate.force_name=true", "lm.dtype=float32",
            "tool.calendar.samples=3", "tool.calendar.max_positions=3", "tool.calendar.max_call_tokens=8",
            "tool.calendar.start_threshold=0.0", "tool.calendar.filter_threshold=-100",
            "tool.calendar.implementation._target_=tests.test_engine.LoggedCalendar",
            f"+tool.calendar.implementation.log={self.log}", f"+tool.calendar.implementation.pause={pause}",
            f"+tool.calendar.implementation.crowd={crowd}", *more,
        ]  # fmt: skip

    def prepare(self, root: Path) -> None:
        """Lays an empty store there, so that not every test waits for MLflow to make one."""
        if not (root / "mlflow.db").exists():
            made = self.folder / "empty"
            Tracker(None, made).prepare("another experiment")
            shutil.copy(made / "mlflow.db", root / "mlflow.db")

    def start(
        self, root: Path, *more: str, pause: float = 0.05, crowd: int = 1, shell: bool = False
    ) -> Process:
        self.prepare(root)
        words = self.words(root, *more, pause=pause, crowd=crowd)
        return Process(words, self.folder / f"{random.random()}.err", shell)

    def candidates(self, root: Path) -> bytes:
        (path,) = root.glob("generate/*/*/candidates.parquet")
        return path.read_bytes()

    def shards(self, root: Path) -> list[str]:
        return sorted(path.stem for path in root.glob("generate/*/shards/0*.sha256"))

    def has_shards(self, root: Path, count: int) -> bool:
        return len(self.shards(root)) >= count

    def store(self, root: Path) -> ShardStore:
        (folder,) = root.glob("generate/*/shards")
        return ShardStore(folder)

    def runs(self, root: Path) -> list[Run]:
        return Tracker(None, root).runs("generate")


class Process:
    """A command at work, its standard error in a file.

    A process of its own either way: the shell's command, or its entry in a fork of a server that has imported the
    libraries, which spares seconds at each of many starts.
    """

    def __init__(self, words: list[str], errors: Path, shell: bool) -> None:
        self._errors = errors
        errors.touch()
        if shell:
            command = [sys.executable, "-m", "toolformer.cli", *words]
            with errors.open("wb") as stream:
                process = subprocess.Popen(command, cwd=CONF.parent, stderr=stream)
            self.pid = process.pid
            self._code: Callable[[], int | None] = process.poll
        else:
            child = FORKS.Process(target=run_entry, args=(words, str(errors)))
            child.start()
            assert child.pid is not None
            self.pid = child.pid
            self._code = lambda: child.exitcode

    @property
    def ended(self) -> bool:
        return self._code() is not None

    @property
    def errors(self) -> str:
        return self._errors.read_text(errors="replace")

    @property
    def last_words(self) -> list[str]:
        """The lines in which the command says why it failed."""
        assert "Traceback" not in self.errors, self.errors
        return [line for line in re.split(r"[\r\n]", self.errors) if line.startswith("toolformer: ")]

    def wait(self) -> int | None:
        self.until(lambda: self.ended)
        return self._code()

    def until(self, condition: Callable[[], object]) -> bool:
        """Waits for a condition; returns whether it came before the process's end."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.ended:
                return bool(condition())
            assert time.monotonic() < deadline, self.errors
            time.sleep(0.005)
        return True

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.wait()


def run_entry(words: list[str], errors: str) -> None:
    """The command in a fork: standard error to a file, and the exit code of `main`."""
    stream = os.open(errors, os.O_WRONLY)
    os.dup2(stream, 2)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    os.chdir(CONF.parent)
    sys.exit(main(words))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("engine")
    save_calling_model(folder / "model")
    return Place(folder, folder / "model")


def save_calling_model(folder: Path) -> None:
    """A tiny GPT-2 that has learnt to write the calendar's call, wherever it stands: it has no positions."""
    tokenizer = tiny_tokenizer()
    model = tiny_model("gpt2", len(tokenizer), context=1024)
    model.transformer.wpe.weight.requires_grad_(False).zero_()
    text = "On day 3 we [Calendar()] met [Calendar()] on [Calendar()] day"
    ids = tokenizer(text, return_tensors="pt").input_ids
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(120):
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


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


# ---------------------------------------------------------------------- survives


def test_killed_twenty_times_at_random(place: Place, reference: bytes, tmp_path: Path) -> None:
    """SIGKILL while it starts, while it annotates and while it writes the results, then the same command."""
    chance = random.Random(3)
    kills, name, seconds_to_start, seconds_to_end = 0, 0, 2.0, 1.0
    while kills < 20:
        before = len(place.shards(tmp_path))
        began = time.monotonic()
        process = place.start(tmp_path, f"name=killed{name}")
        goal = before + chance.choice([0, 1, 1, 2])
        if before == SHARDS:
            time.sleep(chance.uniform(0.5, 1.2) * (seconds_to_start + seconds_to_end))
        elif goal == before:
            time.sleep(chance.uniform(0, 1.2) * seconds_to_start)
        else:
            process.until(partial(place.has_shards, tmp_path, before + 1))
            seconds_to_start = time.monotonic() - began
            process.until(partial(place.has_shards, tmp_path, goal))
            time.sleep(chance.uniform(0, 0.15))
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
