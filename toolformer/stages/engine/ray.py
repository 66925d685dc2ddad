"""engine=ray: replicas of the model as Ray actors, on this machine or on a cluster, which share the folder of shards."""

import importlib.util
import logging
import os
import secrets
import socket
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from toolformer.errors import UserError, one_line
from toolformer.stages import instantiate
from toolformer.stages.config import Config, EngineConfig
from toolformer.stages.engine.plan import POLL_SECONDS, Plan
from toolformer.stages.engine.work import Outcome, Worker, threads

RETRIES = 3
"""How often a shard may take its actor with it before the run ends."""

CONNECT_SECONDS = 10.0
TOKEN = secrets.token_hex(32)
"""The secret of every Ray of our own: one a process, since Ray reads it once in a process's life."""


def check(engine: EngineConfig) -> None:
    """UserError unless Ray is installed, its cluster answers, and a Ray of our own would have room."""
    if importlib.util.find_spec("ray") is None:
        raise UserError("engine=ray needs Ray, which is not installed: make setup EXTRA=ray")
    if engine.address is None:
        cpus, wanted = len(os.sched_getaffinity(0)), engine.workers * engine.cpus_per_worker
        if wanted > cpus:
            raise UserError(
                f"engine.workers x cpus_per_worker is {wanted:g}, more than this machine's {cpus} CPUs"
            )
        return
    host, _, port = engine.address.removeprefix("ray://").rpartition(":")
    if port.isdigit():  # `auto` is for Ray to find, which would try for minutes
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise UserError(f"engine.address: nothing answers at {engine.address} ({error})") from error


def run(config: Config, folder: Path, plan: Plan) -> Generator[Outcome | None]:
    """Does the shards of the plan; an outcome each, as they are finished, and None where there is none for a while.

    UserError if no cluster answers, or shards keep killing their workers.
    """
    with connected(config.engine.address):
        import ray
        from ray.exceptions import RayError

        engine = config.engine
        replica = ray.remote(
            num_cpus=engine.cpus_per_worker,
            num_gpus=engine.gpus_per_worker,
            max_restarts=-1,
            max_task_retries=RETRIES,
        )(_Replica)
        replicas: list[Any] = [
            replica.remote(config, folder.absolute(), os.getcwd()) for _ in range(engine.workers)
        ]
        # A replica that the cluster has no room for never gets ready, and is given nothing.
        running: dict[Any, Any] = {actor.ready.remote(): actor for actor in replicas}
        idle: list[Any] = []
        unfinished = 0
        try:
            while unfinished or not plan.is_given_out:
                while idle and (name := plan.take(0 if running else POLL_SECONDS)):
                    actor = idle.pop(0)
                    running[actor.annotate.remote(name)] = actor
                    unfinished += 1
                finished, _ = ray.wait(list(running), timeout=POLL_SECONDS) if running else ([], [])
                for reference in finished:
                    actor, outcome = running.pop(reference), ray.get(reference)
                    idle.append(actor)
                    unfinished -= outcome is not None  # the answer of `ready` is None
                    yield outcome
                if not finished:
                    yield None
        except RayError as error:
            last = str(error).strip().rpartition("\n")[2].strip()[:300]
            raise UserError(
                f"engine=ray: Ray gave up ({type(error).__name__}: {last}); the same command goes on"
            ) from error


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """A connection to the cluster, or without an address a Ray of our own for as long as the block lasts."""
    settings = {"RAY_USAGE_STATS_ENABLED": "0"} | (_closed() if address is None else {})
    with mock.patch.dict(os.environ, settings), ExitStack() as stack:
        import ray

        logging.getLogger("ray").setLevel(logging.ERROR)
        if ray.is_initialized():  # by whoever calls us as a library; theirs to end
            yield
            return
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        # Short: the path of a socket in it may have 107 characters.
        logs = stack.enter_context(TemporaryDirectory(prefix="tf-ray-", ignore_cleanup_errors=True))
        stack.callback(ray.shutdown)
        if address is None:
            cpus = len(os.sched_getaffinity(0))
            ray.init("local", num_cpus=cpus, include_dashboard=False, _temp_dir=logs, **quiet)
        else:
            try:
                ray.init(address=address, **quiet)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise UserError(
                    f"engine.address: no Ray answers at {address} ({one_line(error)}); if the cluster has a token, set "
                    "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here too"
                ) from error
        yield


def _closed() -> dict[str, str]:
    """A Ray of our own listens on the loopback interface alone, for who knows a secret."""
    return {
        # Ray's switch for a node that no other joins, whatever the system: every port on 127.0.0.1.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_BACKEND_LOG_LEVEL": "fatal",
    }


class _Replica:
    """A worker as an actor of Ray."""

    def __init__(self, config: Config, folder: Path, here: str) -> None:
        self._config, self._folder, self._here = config, folder, here
        self._worker: Worker | None = None

    def ready(self) -> None:
        """Answers as soon as the actor runs."""

    def annotate(self, name: str) -> Outcome:
        try:
            self._worker = self._worker or self._start()
        except UserError as error:
            return Outcome(name, error=str(error))
        return self._worker(name)

    def _start(self) -> Worker:
        config, engine = self._config, self._config.engine
        try:
            os.chdir(self._here)  # so that relative paths mean the same here
        except OSError as error:
            raise UserError(
                f"engine=ray: the node {os.uname().nodename} has no folder {self._here} ({error.strerror}); start the "
                "run in a folder that all nodes share"
            ) from error
        instantiate.apply_paths(config)
        if engine.address is None or engine.threads is not None:
            return Worker(config, self._folder, threads(config, engine.workers))
        return Worker(config, self._folder, max(1, int(engine.cpus_per_worker)))
