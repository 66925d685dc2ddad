"""engine=ray: Ray Data over shards, with replicas of the model as actors, on this machine or on a cluster.

A reader streams the corpus, one shard a block; actors annotate and write into the folder that all nodes share, and only
outcomes come back. An actor that dies is started again, and its shard with it.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolformer import build
from toolformer.config import Config, EngineConfig
from toolformer.documents import Document
from toolformer.engine.work import Outcome, Worker, threads, wanted
from toolformer.errors import UserError
from toolformer.tools.runtime import Usage

READER_CPUS = 0.25
RETRIES = 3
"""How often a shard may take its actor with it before the run ends."""

CONNECT_SECONDS = 10.0


def check(engine: EngineConfig) -> None:
    """Whether Ray is installed, its cluster answers, and a Ray of our own would have room.

    Raises:
        UserError: it is not so.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError("engine=ray needs Ray, which is not installed: pip install 'toolformer[ray]'")
    if engine.address is None:
        _fits(engine.workers * engine.cpus_per_worker, len(os.sched_getaffinity(0)))
        return
    host, separator, port = engine.address.removeprefix("ray://").rpartition(":")
    if not separator or not port.isdigit():
        return  # `auto` and the like are for Ray to find
    try:
        # Ray itself would try for minutes.
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"engine.address: nothing answers at {engine.address} ({error})") from error


def _fits(share: float, cpus: int) -> None:
    """Actors that take every CPU leave none for the reader, and all wait for ever."""
    if share + READER_CPUS > cpus:
        raise UserError(
            f"engine.workers x engine.cpus_per_worker is {share:g}, and the reader needs {READER_CPUS:g} more: this "
            f"machine has {cpus} CPUs; lower one of them"
        )


def run(config: Config, folder: Path, names: Set[str]) -> Generator[Outcome]:
    """Does the shards of these names; an outcome each, as they are finished.

    Raises:
        UserError: no cluster answers, it is too small, or shards keep killing their workers.
    """
    with connected(config.engine.address):
        import ray
        from ray.data import ActorPoolStrategy, DataContext
        from ray.exceptions import RayError

        context = DataContext.get_current()
        context.enable_progress_bars = False
        # Blocks of one shard each: Ray would put small ones together, and hand one actor all of them.
        context.target_max_block_size = 1
        engine = config.engine
        here = os.getcwd()
        try:
            outcomes = ray.data.read_datasource(
                _source(_Reader(config, frozenset(names), here)),
                override_num_blocks=1,
                num_cpus=READER_CPUS,
            ).map(
                _Actor,
                fn_constructor_args=(config, folder.absolute(), here),
                compute=ActorPoolStrategy(
                    size=min(engine.workers, len(names)), max_tasks_in_flight_per_actor=2
                ),
                num_cpus=engine.cpus_per_worker,
                num_gpus=engine.gpus_per_worker,
                max_restarts=-1,
                max_task_retries=RETRIES,
            )
            for row in outcomes.iter_rows():
                yield _outcome(row)
        except RayError as error:
            line = next((line for line in reversed(str(error).splitlines()) if line.strip()), "")
            raise UserError(
                f"engine=ray: Ray gave up ({type(error).__name__}: {line.strip()[:300]}); finished shards are kept, the "
                "same command goes on"
            ) from error


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """A connection to the cluster, or without an address a Ray of our own for as long as the block lasts."""
    logs = None
    with _environment({"RAY_USAGE_STATS_ENABLED": "0"} if address else _own_environment()):
        import ray
        import ray.data

        for name in ("ray", "ray.data"):
            logging.getLogger(name).setLevel(logging.ERROR)
        if ray.is_initialized():  # by whoever calls us as a library; theirs to end
            yield
            return
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address is None:
                cpus = len(os.sched_getaffinity(0))
                # Short: the path of a socket in it may have 107 characters.
                logs = tempfile.mkdtemp(prefix="tf-ray-")
                ray.init(num_cpus=cpus, include_dashboard=False, _temp_dir=logs, **quiet)
            else:
                try:
                    ray.init(address=address, **quiet)
                except (ConnectionError, ValueError, RuntimeError) as error:
                    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
                    raise UserError(
                        f"engine.address: no Ray answers at {address} ({line[:300]}); if the cluster has a token, set "
                        "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here too"
                    ) from error
            yield
        finally:
            ray.shutdown()
            if logs:
                shutil.rmtree(logs, ignore_errors=True)


def _own_environment() -> dict[str, str]:
    """A Ray of our own sends no statistics and listens on the loopback interface alone, for who knows a secret."""
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray's switch for a node that no other joins, whatever the system: every port on 127.0.0.1.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_BACKEND_LOG_LEVEL": "fatal",
    }


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _Actor:
    """A worker as Ray Data calls it: a row in, a row out."""

    def __init__(self, config: Config, folder: Path, here: str) -> None:
        _settle(config, here)
        share = config.engine.workers if config.engine.address is None else 1
        count = threads(config, share)
        if count is None and config.engine.address is not None:
            count = max(1, int(config.engine.cpus_per_worker))
        self._worker = Worker(config, folder, count)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["error"]:
            return _row(Outcome(row["name"], error=row["error"]))
        return _row(self._worker(row["name"], [_from_row(one) for one in json.loads(row["documents"])]))


def _row(outcome: Outcome) -> dict[str, Any]:
    """An outcome as Ray carries it: Arrow has no mapping whose keys differ from row to row."""
    row = asdict(outcome)
    return {**row, "tools": json.dumps(row["tools"])}


def _outcome(row: Mapping[str, Any]) -> Outcome:
    tools = {key: Usage(**usage) for key, usage in json.loads(row["tools"]).items()}
    return Outcome(**{**row, "tools": tools})


class _Reader:
    """Streams the shards of these names as Arrow blocks; runs in a task of its own."""

    def __init__(self, config: Config, names: frozenset[str], here: str) -> None:
        self._config, self._names, self._here = config, names, here

    def __call__(self) -> Iterable[Any]:
        import pyarrow as pa

        try:
            _settle(self._config, self._here)
            for name, documents in wanted(self._config, self._names):
                rows = json.dumps([asdict(document) for document in documents], default=str)
                yield pa.table({"name": [name], "documents": [rows], "error": [""]})
        except UserError as error:
            yield pa.table({"name": [""], "documents": ["[]"], "error": [str(error)]})


def _source(read: Callable[[], Iterable[Any]]) -> Any:
    """A Ray data source with one task; made here, since its base class comes with Ray."""
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    class Shards(Datasource):  # type: ignore[misc]  # Ray is optional, and without types
        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:
            unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
            return [ReadTask(read, unknown)]

    return Shards()


def _settle(config: Config, here: str) -> None:
    """Makes relative paths of the configuration mean in this process what they mean where the run was started.

    Raises:
        UserError: this node does not see that folder.
    """
    try:
        os.chdir(here)
    except OSError as error:
        raise UserError(
            f"engine=ray: the node {os.uname().nodename} has no folder {here} ({error.strerror}); start the run in a "
            "folder that all nodes share"
        ) from error
    build.apply_paths(config)


def _from_row(row: Mapping[str, Any]) -> Document:
    date = row["date"]
    return Document(**{**row, "date": datetime.date.fromisoformat(date) if date else None})
