"""Several workers answer an evaluation's requests: each its share, into a file of its own, which are then put together.

What a worker did not answer, because it died, is left to the process that leads.
"""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.errors import one_line
from toolformer.progress import Bar
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.engine import POLL_SECONDS
from toolformer.stages.engine.local import processes
from toolformer.stages.engine.work import threads

if TYPE_CHECKING:
    from toolformer.decoding.recording import AnswerFile

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """What a worker has to know."""

    config: Config
    model: str
    identity: Mapping[str, Any]
    """What decides the answers; see `RecordingLM`."""
    tasks: Sequence[str]
    metadata: Mapping[str, Any]
    """Of the tasks' loaders."""
    samples: Any
    clocks: Sequence[str]
    day: datetime.date | None
    answers: Path
    """The evaluation's own file, whose answers are not given again."""

    def share(self, rank: int) -> Path:
        return self.answers.with_name(f"answers-{rank}-of-{self.config.engine.workers}.jsonl")


def gather(answers: AnswerFile) -> None:
    """Moves what workers have answered into the evaluation's own file."""
    assert answers.path is not None
    for share in sorted(answers.path.parent.glob("answers-*-of-*.jsonl")):
        answers.take(share)


def answer(asked: Asked, requests: int) -> None:
    """Has `engine.workers` workers answer, each into its own file.

    Args:
        requests: how many there are in all, for the progress bar.
    """
    engine = asked.config.engine
    shares = [asked.share(rank) for rank in range(engine.workers)]
    with Bar(total=requests, unit=" answers", desc="evaluate") as bar:

        def on_wait() -> None:
            written = sum(share.read_bytes().count(b"\n") for share in shares if share.is_file())
            bar.update(written - bar.n)

        try:
            (_by_ray if engine.kind == "ray" else _by_processes)(asked, on_wait)
        except BrokenProcessPool:
            log.warning("evaluate: a worker process died; this process answers the rest")


def answer_share(asked: Asked, rank: int, here: str = ".") -> None:
    """One worker's part: loads the model and answers its share."""
    import torch

    from benchmarks import suite
    from toolformer.decoding.lm_eval_model import ToolformerLM
    from toolformer.decoding.recording import AnswerFile
    from toolformer.stages.evaluation_identity import calls

    os.chdir(here)  # so that relative paths mean the same on a node of Ray
    config = asked.config
    instantiate.apply_paths(config)
    if count := threads(config, config.engine.workers):
        torch.set_num_threads(count)
    tools = instantiate.tools(config, inference=True) if calls(config) else {}
    loaded = suite.load(asked.tasks, asked.metadata, asked.samples, config.paths.tasks_dir)
    with AnswerFile(asked.share(rank), known=asked.answers) as answers:
        decoder = instantiate.decoder(config, asked.model, tools)
        lm = ToolformerLM(
            decoder, answers, asked.identity, progress=False, clocks=asked.clocks, day=asked.day
        )
        lm.switched_off = loaded.switched_off
        lm.answer(suite.requests(loaded), rank, config.engine.workers)


def _by_processes(asked: Asked, on_wait: Callable[[], object]) -> None:
    ranks = range(asked.config.engine.workers)
    with processes(len(ranks)) as pool:
        running = {pool.submit(answer_share, asked, rank) for rank in ranks}
        while running:
            finished, running = wait(running, POLL_SECONDS)
            on_wait()
            for future in finished:
                future.result()


def _by_ray(asked: Asked, on_wait: Callable[[], object]) -> None:
    from toolformer.stages.engine.ray import connected

    engine = asked.config.engine
    with connected(engine.address):
        import ray
        from ray.exceptions import RayError

        task = ray.remote(num_cpus=engine.cpus_per_worker, num_gpus=engine.gpus_per_worker)(answer_share)
        running = [task.remote(asked, rank, os.getcwd()) for rank in range(engine.workers)]
        try:
            while running:
                finished, running = ray.wait(running, timeout=POLL_SECONDS)
                on_wait()
                ray.get(finished)
        except RayError as error:
            log.warning("evaluate: a worker ended (%s); this process answers the rest", one_line(error))
