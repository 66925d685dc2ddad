"""Several workers answer an evaluation's requests: each writes its share into a separate file; the files are then merged.

What a worker did not answer, because it died, is left to the process that leads.
"""

from __future__ import annotations

import datetime
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.errors import UserError
from toolformer.progress import Bar
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.engine.local import follow_parent
from toolformer.stages.engine.ray import connected
from toolformer.stages.engine.work import devices, threads, use_device

if TYPE_CHECKING:
    from toolformer.decoding.decoder import Decoder
    from toolformer.decoding.lm_eval_model import ToolformerLM
    from toolformer.decoding.recording import AnswerFile
    from toolformer.evaluation.suite import Loaded

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Asked:
    """What a model is asked, and what its answers depend on: all that a worker has to know."""

    config: Config
    model: str
    identity: Mapping[str, Any]
    """What decides the answers; see `ToolformerLM`."""
    tasks: Sequence[str]
    metadata: Mapping[str, Any]
    """Of the tasks' loaders."""
    samples: Any
    clocks: Sequence[str]
    day: datetime.date | None
    answers: Path
    """The evaluation's own file, whose answers are not given again."""

    def load(self) -> Loaded:
        """Reads the tasks' documents."""
        from toolformer.evaluation import suite

        return suite.load(self.tasks, self.metadata, self.samples, self.config.paths.tasks_dir)

    def lm(
        self,
        decoder: Decoder,
        answers: AnswerFile,
        more: Mapping[str, str] | None = None,
        progress: bool = True,
    ) -> ToolformerLM:
        """Who answers; `more` is what else tells these answers from others."""
        from toolformer.decoding.lm_eval_model import ToolformerLM

        identity = {**self.identity, **(more or {})}
        return ToolformerLM(decoder, answers, identity, progress, self.clocks, self.day)

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

        (_by_ray if engine.kind == "ray" else _by_processes)(asked, on_wait)
        on_wait()


def answer_share(asked: Asked, rank: int) -> None:
    """One worker's part: loads the model and answers its share."""
    import torch

    from toolformer.decoding.recording import AnswerFile
    from toolformer.evaluation import suite
    from toolformer.stages.system import System

    config = asked.config
    instantiate.apply_paths(config)
    if count := threads(config, config.engine.workers):
        torch.set_num_threads(count)
    tools = System(config).tools()
    loaded = asked.load()
    with AnswerFile(asked.share(rank), known=asked.answers) as answers:
        lm = asked.lm(instantiate.decoder(config, asked.model, tools), answers, progress=False)
        lm.switched_off = loaded.switched_off
        requests = suite.requests(loaded)
        lm.answer({kind: several[rank :: config.engine.workers] for kind, several in requests.items()})


def _by_processes(asked: Asked, on_wait: Callable[[], object]) -> None:
    context = multiprocessing.get_context("spawn")  # a forked child would share torch's threads and locks
    workers = [
        context.Process(target=_in_process, args=(asked, rank, device), name=f"worker {rank}")
        for rank, device in enumerate(devices(asked.config))
    ]
    try:
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            time.sleep(POLL_SECONDS)
            on_wait()
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    for worker in workers:
        if worker.exitcode:
            log.warning(
                "evaluate: %s ended with code %d; this process answers the rest", worker.name, worker.exitcode
            )


def _in_process(asked: Asked, rank: int, device: str | None) -> None:
    follow_parent()
    use_device(device)
    try:
        answer_share(asked, rank)
    except UserError:
        sys.exit(2)  # the parent meets the same, and says so


def _by_ray(asked: Asked, on_wait: Callable[[], object]) -> None:
    engine = asked.config.engine
    with connected(engine.address):
        import ray
        from ray.exceptions import RayError

        task = ray.remote(num_cpus=engine.cpus_per_worker, num_gpus=engine.gpus_per_worker, max_retries=0)(
            _on_node
        )
        running = {task.remote(asked, rank, os.getcwd()): rank for rank in range(engine.workers)}
        while running:
            finished, _ = ray.wait(list(running), timeout=POLL_SECONDS)
            on_wait()
            for reference in finished:
                rank = running.pop(reference)
                try:
                    ray.get(reference)
                except RayError as error:
                    line = next(iter(str(error).splitlines()), type(error).__name__)
                    log.warning(
                        "evaluate: worker %d ended (%.200s); this process answers the rest", rank, line
                    )


def _on_node(asked: Asked, rank: int, here: str) -> None:
    os.chdir(here)  # so that relative paths mean the same here
    answer_share(asked, rank)
