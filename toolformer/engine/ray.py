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
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolformer import build
from toolformer.config import Config
from toolformer.documents import Document
from toolformer.engine.work import Outcome, Worker, threads, wanted
from toolformer.errors import UserError

READER_CPUS = 0.25
RETRIES = 3
"""How often a shard may take its actor with it before the run ends."""

# A Ray of our own sends no statistics, and listens on the loopback interface alone: the second variable is Ray's switch
# for a node that no other joins, whatever the system.
_OWN = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def require() -> None:
    """Whether Ray can be imported.

    Raises:
        UserError: it is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError("engine=ray needs Ray, which is not installed: pip install 'toolformer[ray]'")


def run(config: Config, folder: Path, names: Set[str]) -> Generator[Outcome]:
    """Does the shards of these names; an outcome each, as they are finished.

    Raises:
        UserError: no cluster answers, it is too small, or shards keep killing their workers.
    """
    with _connected(config):
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
                ray_remote_args={"num_cpus": READER_CPUS},
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
                yield Outcome(**row)
        except RayError as error:
            line = next((line for line in reversed(str(error).splitlines()) if line.strip()), "")
            raise UserError(
                f"engine=ray: Ray gave up ({type(error).__name__}: {line.strip()[:300]}); finished shards are kept, the "
                "same command goes on"
            ) from error


@contextmanager
def _connected(config: Config) -> Iterator[None]:
    """A connection to the cluster, or a Ray of our own for as long as the block lasts."""
    engine = config.engine
    os.environ.update(_OWN if engine.address is None else {"RAY_USAGE_STATS_ENABLED": "0"})
    import ray

    if ray.is_initialized():  # by whoever calls us as a library; theirs to end
        yield
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    logging.getLogger("ray").setLevel(logging.ERROR)
    logs = None
    try:
        if engine.address is None:
            cpus = len(os.sched_getaffinity(0))
            _fits(engine.workers * engine.cpus_per_worker, cpus)
            # Short: the path of a socket in it may have 107 characters.
            logs = tempfile.mkdtemp(prefix="tf-ray-")
            ray.init(num_cpus=cpus, include_dashboard=False, _temp_dir=logs, **quiet)
        else:
            try:
                ray.init(address=engine.address, **quiet)
            except (ConnectionError, ValueError, RuntimeError) as error:
                line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
                raise UserError(
                    f"engine.address: no Ray answers at {engine.address} ({line[:300]})"
                ) from error
        yield
    finally:
        ray.shutdown()
        if logs:
            shutil.rmtree(logs, ignore_errors=True)


def _fits(share: float, cpus: int) -> None:
    """Actors that take every CPU leave none for the reader, and all wait for ever."""
    if share + READER_CPUS > cpus:
        raise UserError(
            f"engine.workers x engine.cpus_per_worker is {share:g}, and the reader needs {READER_CPUS:g} more: this "
            f"machine has {cpus} CPUs; lower one of them"
        )


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
            return asdict(Outcome(row["name"], error=row["error"]))
        return asdict(self._worker(row["name"], [_from_row(one) for one in json.loads(row["documents"])]))


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
