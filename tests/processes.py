"""What tests of the stages share: evaluations of tiny models, and the real annotation command as a process, to be killed, crowded
and starved.
"""

import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.build import teach, tiny_model, tiny_tokenizer
from toolformer.annotation.shards import ShardStore
from toolformer.data import Document
from toolformer.jobs import perform as performing
from toolformer.jobs.config import CONF, Config, compose, validate
from toolformer.jobs.plan import make_job
from toolformer.jobs.versions import VERSIONS
from toolformer.results import Folder, Results, Run, RunInfo
from toolformer.step import Step
from toolformer.tools.base import Result, Tool

SHARDS = 16
LOG = "calls.log"
"""Named by its folder: a file that a tool's configuration names is part of what decides a run."""
needs_ray = pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="ray is not installed")
"""Ray is not imported in the tests' own process before a command does: it reads its settings then."""
PATIENCE = 300  # seconds until a test gives up on a process


class LoggedCalendar(Tool):
    """Answers yes, and writes down who asked for which document; may wait until several processes have asked."""

    name = "Calendar"
    version = "1"  # without one, a tool from outside the package is not cached

    def __init__(self, folder: str, pause: float, crowd: int, **_: object) -> None:
        self._log, self._pause, self._crowd = Path(folder) / LOG, pause, crowd

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        with self._log.open("a") as log:
            for doc_id in sorted({document.doc_id for document in documents}):
                log.write(f"{os.getpid()} {doc_id} {os.environ.get('CUDA_VISIBLE_DEVICES')}\n")
        deadline = time.monotonic() + 60
        while len(who_did(self._log)) < self._crowd and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(self._pause)
        return [Result("yes") for _ in inputs]


class Killed(LoggedCalendar):
    """Is killed as soon as it is made, as if memory ran out."""

    def __init__(self, **_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def who_did(log: Path) -> dict[int, list[str]]:
    """The documents that each process asked the tool about."""
    found: dict[int, list[str]] = defaultdict(list)
    for line in log.read_text().splitlines() if log.exists() else ():
        pid, doc_id, _ = line.split()
        found[int(pid)].append(doc_id)
    return found


def visible_gpus(log: Path) -> set[str]:
    """The GPUs that each process saw which asked the tool."""
    return {line.split()[2] for line in log.read_text().splitlines()}


class Process:
    """A command at work, its standard error in a file."""

    def __init__(self, words: list[str], errors: Path) -> None:
        self._errors = errors
        command = [sys.executable, "-m", "toolformer.cli", *words]
        with errors.open("wb") as stream:
            self._process = subprocess.Popen(command, cwd=CONF.parent, stderr=stream)
        self.pid = self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def errors(self) -> str:
        return self._errors.read_text(errors="replace")

    def wait(self) -> int | None:
        self.until(lambda: self.ended)
        return self._process.poll()

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
        self._process.kill()
        self.wait()


class Place:
    """A corpus and a model, and the command that annotates the one with the other under a folder of runs."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model, self.log = folder, model, folder / LOG
        self.corpus = folder / "corpus.jsonl"
        url, documents = "https://example.org/2020/05/{:02d}/x", range(2 * SHARDS)
        rows = [
            {"id": f"d{n}", "text": f"On day {n} we met.", "url": url.format(n % 28 + 1)} for n in documents
        ]
        self.corpus.write_text("\n".join(map(json.dumps, rows)))

    def words(self, root: Path, *more: str, pause: float = 0.05, crowd: int = 1) -> list[str]:
        return [
            "generate", f"model={self.model}", f"paths.root={root}", "tools=[calendar]", "generate.shard_size=2",
            "corpus=jsonl", f"corpus.path={self.corpus}", "corpus@heldout=demo_heldout", "propose.force_name=true", "lm.dtype=float32",
            "engine.threads=1",  # another number rounds differently on some processors
            "tool.calendar.samples=3", "tool.calendar.max_positions=3", "tool.calendar.max_call_tokens=8",
            "tool.calendar.start_threshold=0.0", "tool.calendar.filter_threshold=-100",
            "tool.calendar.implementation._target_=tests.processes.LoggedCalendar",
            f"+tool.calendar.implementation.folder={self.folder}", f"+tool.calendar.implementation.pause={pause}",
            f"+tool.calendar.implementation.crowd={crowd}", *more,
        ]  # fmt: skip

    def start(self, root: Path, *more: str, pause: float = 0.05, crowd: int = 1) -> Process:
        words = self.words(root, *more, pause=pause, crowd=crowd)
        return Process(words, self.folder / f"{random.random()}.err")

    def candidates(self, root: Path) -> bytes:
        (path,) = root.glob("generate/*/candidates.parquet")
        return path.read_bytes()

    def candidates_of_all_thresholds(self, root: Path) -> list[Any]:
        """The candidates of each annotation, without the thresholds that they had to reach."""
        tables = map(pq.read_table, root.glob("generate/*/candidates.parquet"))
        return [table.drop_columns(["threshold"]).to_pylist() for table in tables]

    def shards(self, root: Path) -> list[str]:
        return sorted(path.stem for path in root.glob("annotate/*/0*.sha256"))

    def store(self, root: Path) -> ShardStore:
        (folder,) = root.glob("annotate/" + "?" * 16)
        return ShardStore(folder)

    def runs(self, root: Path) -> list[Run]:
        return Results(root).runs("generate")


def save_calling_model(folder: Path, result: str = "") -> None:
    """A tiny model that has learnt to write the calendar's call, at any position: it has no embeddings of them."""
    call = f"[Calendar() -> {result}]" if result else "[Calendar()]"
    save_taught_model(folder, [f"On day 3 we {call} met {call} on {call} day"] * 120)


def save_taught_model(folder: Path, texts: Iterable[str], tokenizer: Any = None, context: int = 1024) -> None:
    """A tiny GPT-2 that has learnt these texts, a step each."""
    tokenizer = tokenizer or tiny_tokenizer()
    model = tiny_model("gpt2", len(tokenizer), context)
    teach(model, tokenizer, texts)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def words(root: Path, *more: str) -> list[str]:
    return [
        f"paths.root={root}", "name=tiny", "corpus@heldout=demo_heldout", "heldout.limit=3",
        "benchmarks=[dateset]", *more,
    ]  # fmt: skip


def config(root: Path, *more: str) -> Config:
    return validate(compose("evaluate", words(root, *more)))


def run_stage(stage: str, config: Config) -> Run:
    """The run of a stage with this configuration, which is made unless it is done."""
    run = performing.perform(make_job(stage, config))
    assert run
    return run


def finished(stage: str, config: Config) -> Run | None:
    """The run of a stage with this configuration, if it is done."""
    return performing.finished(make_job(stage, config), Results(Path(config.paths.root)))


def trained(root: Path, folder: Path, experiment: str = "tiny") -> str:
    """A train run with a copy of this model; its id."""
    step = Step("train", VERSIONS["train"], {"seed": 0}, {"model": str(folder)})
    beginning = RunInfo("t", {}, experiment=experiment, facts={"data": "augmented"})
    with Results(root).open(step, beginning, done=lambda: None) as run:
        assert isinstance(run, Folder)
        shutil.copytree(folder, run.path / "model", dirs_exist_ok=True)
        run.add_facts(model="model")
        return run.id
