"""Ray: a cluster that is there, or one of our own on this machine that ends with the run."""

import importlib.util
import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from toolformer.errors import UserError, one_line
from toolformer.jobs.config import EngineConfig

CONNECT_SECONDS = 10.0
TOKEN = secrets.token_hex(32)
"""The secret of every Ray of our own: one a process, since Ray reads it once in a process's life."""


def check_cluster(engine: EngineConfig) -> None:
    """UserError unless Ray is installed and its cluster answers, if there is one."""
    if engine.address is None:
        return
    if importlib.util.find_spec("ray") is None:
        raise UserError("engine.address needs Ray, which is not installed: make setup EXTRA=ray")
    host, _, port = engine.address.removeprefix("ray://").rpartition(":")
    if port.isdigit():  # `auto` is for Ray to find, which would try for minutes
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise UserError(f"engine.address: nothing answers at {engine.address} ({error})") from error


@contextmanager
def connected(address: str | None, gpus: int | None = None) -> Iterator[None]:
    """A connection to the cluster, or without an address a Ray of our own for as long as the block lasts.

    Args:
        gpus: that a Ray of our own has; by default those that it finds.
    """
    settings = {"RAY_USAGE_STATS_ENABLED": "0"} | (_closed() if address is None else {})
    with mock.patch.dict(os.environ, settings), ExitStack() as stack:
        import ray

        logging.getLogger("ray").setLevel(logging.ERROR)
        if ray.is_initialized():  # by a program that uses this as a library, and ends it itself
            yield
            return
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        # Short: the path of a socket in it may have 107 characters.
        logs = stack.enter_context(TemporaryDirectory(prefix="tf-ray-", ignore_cleanup_errors=True))
        stack.callback(ray.shutdown)
        if address is None:
            cpus = len(os.sched_getaffinity(0))
            ray.init("local", num_cpus=cpus, num_gpus=gpus, include_dashboard=False, _temp_dir=logs, **quiet)
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
        # A worker that reserves no GPU sees those that this process sees, as for lm.device=cuda:1.
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
