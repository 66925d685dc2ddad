"""Folders that are made once, whoever asks, fails or is killed; and one event loop a process, whatever becomes of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from toolformer.tools import event_loop
from toolformer.tools.made_once import made_once

ROOT = Path(__file__).resolve().parents[2]
KILLED = """
import os, signal, sys
from pathlib import Path
from toolformer.tools.made_once import made_once

def make(folder):
    (folder / "half").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)

made_once(Path(sys.argv[1]) / "in" / "thing", make, Path(sys.argv[1]))
"""


def fill(folder: Path) -> None:
    (folder / "file").write_text("whole")


def test_it_is_made_once(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        fill(folder)

    askers = [threading.Thread(target=made_once, args=(tmp_path / "thing", make, tmp_path)) for _ in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(made) == 1 and [file.name for file in (tmp_path / "thing").iterdir()] == ["file"]
    assert not list(tmp_path.glob(".making-*"))


def test_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [file.name for file in tmp_path.glob(".making-thing-*/made/*")] == ["half"]
    assert not (tmp_path / "in").exists()
    made_once(tmp_path / "in" / "thing", fill, tmp_path)
    assert [file.name for file in (tmp_path / "in" / "thing").iterdir()] == ["file"]
    assert not list(tmp_path.glob(".making-*"))


def test_one_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        fill(folder)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        made_once(tmp_path / "in" / "thing", make, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [".locks"]


def test_what_is_not_whole_goes_only_where_that_was_asked_for(tmp_path: Path) -> None:
    place = tmp_path / "thing"
    place.mkdir()
    (place / "mine").write_text("x")

    def is_whole(folder: Path) -> bool:
        return (folder / "file").is_file()

    with pytest.raises(OSError):
        made_once(place, fill, tmp_path, is_whole)
    assert [file.name for file in place.iterdir()] == ["mine"]
    made_once(place, fill, tmp_path, is_whole, replaces=True)
    assert [file.name for file in place.iterdir()] == ["file"]


REPLACED = """
import os, signal, sys
from pathlib import Path
from toolformer.tools import made_once

replace = os.replace

def killed(source, target):
    replace(source, target)
    os.kill(os.getpid(), signal.SIGKILL)

os.replace = killed
place = Path(sys.argv[1]) / "thing"
made_once.made_once(place, lambda folder: None, place.parent, lambda folder: False, replaces=True)
"""


def test_one_killed_between_the_old_and_the_new_leaves_neither(tmp_path: Path) -> None:
    place = tmp_path / "thing"
    place.mkdir()
    (place / "half").write_text("x")
    done = subprocess.run([sys.executable, "-c", REPLACED, str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL and not place.exists()
    made_once(place, fill, tmp_path, replaces=True)
    assert [file.name for file in place.iterdir()] == ["file"]
    assert not list(tmp_path.glob(".making-*"))


MANY = """
import sys
from pathlib import Path
from toolformer.tools.made_once import made_once

for n in range(150):
    place = Path(sys.argv[1]) / sys.argv[2] / str(n)
    made_once(place, lambda folder: (folder / "file").write_text("x"), Path(sys.argv[1]))
"""


def test_processes_that_make_different_things_leave_each_other_alone(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", MANY, str(tmp_path), name], cwd=ROOT) for name in ("a", "b")
    ]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    assert len(list(tmp_path.glob("[ab]/*/file"))) == 300


def test_a_users_folder_stays(tmp_path: Path) -> None:
    for name in (".scratch/thing", ".making-thing", "made"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "mine").write_text("x")
    made_once(tmp_path / "thing", fill, tmp_path)
    assert len(list(tmp_path.rglob("mine"))) == 3


async def answered() -> int:
    await asyncio.sleep(0)
    return os.getpid()


def test_a_loop_that_has_ended_is_begun_anew() -> None:
    assert event_loop.SERVERS.run(answered()) == os.getpid()
    ended = event_loop.SERVERS.now()
    assert event_loop.SERVERS._running is not None
    ended.call_soon_threadsafe(ended.stop)
    event_loop.SERVERS._running[1].join(timeout=60)
    assert event_loop.SERVERS.now() is not ended
    assert event_loop.SERVERS.run(answered()) == os.getpid()


FORKED = """
import os
from tests.tools.test_made_once import answered
from toolformer.tools import event_loop

event_loop.SERVERS.run(answered())
child = os.fork()
if not child:
    os._exit(0 if event_loop.SERVERS.run(answered()) == os.getpid() else 3)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_has_a_loop_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], cwd=ROOT, check=False, timeout=120)
    assert done.returncode == 0
