"""A job is divided into shards; a worker claims a shard, does it with its replica of the model, and says what came of it.

The job is an evaluation, whose shards are of questions (`answering`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolformer.errors import UserError
from toolformer.jobs.config import Config
from toolformer.tools.runtime import Usage


@dataclass(frozen=True)
class Outcome:
    """The outcome of one shard in one worker."""

    name: str
    is_done: bool = False
    """Whether this worker did it; if not, another process holds or has finished it."""
    used: Mapping[str, Usage] = field(default_factory=dict)
    """Counts of the calls that it made, by tool."""
    error: str | None = None
    """Bad input, in one line: carried as a value, since Ray wraps exceptions in its own."""


class Job(Protocol):
    """Work divided into shards; it can be sent to another process."""

    @property
    def config(self) -> Config: ...

    def claim(self, name: str) -> AbstractContextManager[bool]:
        """Yields whether this process has the shard to itself until the end of the block, and it is still to be done."""

    def is_claimed(self, name: str) -> bool:
        """Whether a running process has claimed the shard."""

    def is_there(self, name: str) -> bool:
        """Whether the shard is known to be finished."""

    def load_replica(self) -> Any:
        """A replica of the model with its tools."""

    def do_shard(self, replica: Any, name: str) -> Outcome:
        """Does a claimed shard."""


class Worker:
    """A replica of the model at work on shards; it is loaded when the first shard is really to be done.

    Args:
        threads: of PyTorch; None leaves them.
        replica: one that is loaded already.
    """

    def __init__(self, job: Job, threads: int | None = None, replica: Any = None) -> None:
        self._job, self._threads, self._replica = job, threads, replica

    def __call__(self, name: str) -> Outcome:
        """Does a shard, unless another process holds it or has done it."""
        try:
            with self._job.claim(name) as ours:
                if not ours:
                    return Outcome(name)
                if threads := self._job.config.engine.threads or self._threads:
                    import torch

                    torch.set_num_threads(threads)
                if self._replica is None:
                    self._replica = self._job.load_replica()
                return self._job.do_shard(self._replica, name)
        except UserError as error:
            return Outcome(name, error=str(error))


def threads_per_worker(workers: int) -> int | None:
    """This machine's cores shared out among its workers; None leaves a single worker PyTorch's own number."""
    return max(1, len(os.sched_getaffinity(0)) // workers) if workers > 1 else None
