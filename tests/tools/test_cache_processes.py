"""The cache between processes: killed while they write, and asking for the same at once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from toolformer.documents import Document
from toolformer.tools.base import Result
from toolformer.tools.cache import ResultCache, call_key
from toolformer.tools.runtime import ToolRuntime

ROOT = Path(__file__).resolve().parents[2]
KILLS = 30
BATCH = 40
PATIENCE = 120


def answer(n: int) -> Result:
    """Short and long, refused and hostile: so that transactions span many pages of the file."""
    if n % 5 == 0:
        return Result(reason=f"refused {n}")
    return Result(f"{n}\x00\u2028" + "x" * (n * 37 % 9000))


class Logged:
    """Writes down every input that it is really asked, in one write each."""

    name = "Logged"

    def __init__(self, log: Path) -> None:
        self.log = log

    def depends_on(self, document: Document) -> str:
        return ""

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        with self.log.open("ab", buffering=0) as log:
            for text in inputs:
                log.write(f"{text}\n".encode())
        time.sleep(0.01)  # so that processes meet
        return [answer(int(text)) for text in inputs]


def write_until_killed(path: Path) -> None:
    """For each number on stdin a process that writes batches from there on: its id on stdout, a line for each batch
    that is kept, and `dead` when it is. Forked here, where no thread runs and everything is imported."""
    for line in sys.stdin:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            os.write(1, b"dead\n")
            continue
        os.write(1, b"%d\n" % os.getpid())
        cache = ResultCache(path)
        for n in range(int(line), sys.maxsize, BATCH):
            cache.write({call_key(str(one), ""): answer(one) for one in range(n, n + BATCH)})
            os.write(1, b"%d\n" % (n + BATCH))


def ask(path: Path, log: Path, seed: int, count: int) -> None:
    """The same calls as every other process, in an order of its own."""
    numbers = list(range(count))
    random.Random(seed).shuffle(numbers)
    tool = ToolRuntime(Logged(log), cache=ResultCache(path))
    sys.stdin.readline()
    for n in range(0, count, 25):
        batch = numbers[n : n + 25]
        assert tool.run([str(one) for one in batch], [Document("d", "")] * len(batch)) == [
            answer(one) for one in batch
        ]


def started(call: str) -> subprocess.Popen[str]:
    code = f"from pathlib import Path; from tests.tools.test_cache_processes import *; {call}"
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_killed_while_it_writes(tmp_path: Path) -> None:
    """SIGKILL at random moments, thirty times on one file: what was kept is there, and nothing else is."""
    path = tmp_path / "x.sqlite"
    chance, kept, journals = random.Random(5), 0, 0
    process = started(f"write_until_killed(Path({str(path)!r}))")
    assert process.stdin is not None and process.stdout is not None
    for _ in range(KILLS):
        process.stdin.write(f"{kept}\n")
        process.stdin.flush()
        writer = int(process.stdout.readline())
        kept = int(process.stdout.readline())  # it is at work
        time.sleep(chance.uniform(0, 0.03))
        os.kill(writer, signal.SIGKILL)
        while (line := process.stdout.readline()) != "dead\n":
            kept = int(line)
        journal = path.with_name("x.sqlite-journal")
        journals += journal.exists() and journal.stat().st_size > 0
        keys = {call_key(str(n), ""): n for n in range(kept + 2 * BATCH)}
        found = ResultCache(path).read(list(keys))
        assert {keys[key]: result for key, result in found.items()} == {
            n: answer(n) for n in range(len(found))
        }
        assert len(found) in (kept, kept + BATCH), "a transaction is there whole or not at all"
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    process.stdin.close()
    assert process.wait(PATIENCE) == 0
    process.stdout.close()
    assert journals, "no process was killed in the middle of a transaction"


def test_processes_at_once_execute_each_call_once(tmp_path: Path) -> None:
    """Three start together on an empty folder; a fourth is killed among them, and what it had claimed is done."""
    path, log = tmp_path / "tools" / "x.sqlite", tmp_path / "log"
    count = 500
    processes = [started(f"ask(Path({str(path)!r}), Path({str(log)!r}), {n}, {count})") for n in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    while not log.exists() or log.stat().st_size < 400:
        assert not any(process.poll() for process in processes), "one has failed"
        time.sleep(0.002)
    processes[0].kill()
    assert [process.wait(PATIENCE) for process in processes[1:]] == [0, 0, 0]
    processes[0].wait(PATIENCE)
    for process in processes:
        assert process.stdin and process.stdout
        process.stdin.close()
        process.stdout.close()
    executed = [int(line) for line in log.read_text().splitlines()]
    assert set(executed) == set(range(count))
    # Only a batch that died with its process before it was kept is executed again.
    assert len(executed) <= count + 25
    keys = [call_key(str(n), "") for n in range(count)]
    assert len(ResultCache(path).read(keys)) == count
