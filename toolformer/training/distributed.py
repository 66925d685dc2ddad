"""DeepSpeed, and training by several processes: those of a launcher (`torchrun`, `deepspeed`: RANK, WORLD_SIZE), or started here."""

import atexit
import copy
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolformer.errors import UserError
from toolformer.progress import configure

_ON_CPU = {"device": "cpu", "pin_memory": True}
NAMED: dict[str, dict[str, Any]] = {
    "zero2": {"zero_optimization": {"stage": 2}},
    "zero3": {"zero_optimization": {"stage": 3}},
    "zero3_offload": {
        "zero_optimization": {"stage": 3, "offload_optimizer": _ON_CPU, "offload_param": _ON_CPU}
    },
}
"""DeepSpeed by name: optimizer and gradients are spread over the processes, with stage 3 also the weights."""
_OF_THE_TRAINER = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
)


def rank() -> int:
    """The number of this process; process 0 does the bookkeeping."""
    return int(os.environ.get("RANK", "0"))


def processes() -> int:
    """The number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_launched() -> bool:
    """Whether a launcher started this process."""
    return processes() > 1 or "TORCHELASTIC_RUN_ID" in os.environ


def launch(count: int, work: Callable[..., Any], *arguments: Any) -> None:
    """Calls a module's function in `count` new processes of this machine that train together, by torchrun's launcher.

    A process that ends before the others ends them all. UserError: what one of them raised, or that one was killed;
    KeyboardInterrupt: a signal ended this process; RuntimeError: with the traceback of another error.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # As `torchrun --standalone`: the processes find each other on a free port of this machine.
    configuration = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
    )
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # errors are raised below
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        elastic_launch(configuration, _train_together)(work, arguments)
    except SignalException as error:
        raise KeyboardInterrupt from error
    except ChildFailedError as error:
        number, failure = error.get_first_failure()
        if failure.exitcode < 0:
            raise UserError(
                f"train: process {number + 1} of {count} was killed ({failure.signal_name()}), as if memory ran out; lower "
                "trainer.micro_batch_size or trainer.processes; the same command resumes"
            ) from error
        problem = failure.message
        name, _, message = (
            problem["message"].partition(": ") if isinstance(problem, dict) else ("", "", str(problem))
        )
        if name == UserError.__name__:
            raise UserError(message) from error
        trace = problem["extraInfo"]["py_callstack"] if isinstance(problem, dict) else message
        raise RuntimeError(f"process {number + 1} of {count} failed:\n{trace}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _train_together(work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """In a process that `launch` started: the work; process 0 alone logs."""
    end_with_parent()  # a killed command leaves no GPU in use, and its run to the next one
    import torch

    configure(quiet=rank() > 0)
    if rank() == 0:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it leaves its run as interrupted
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // processes()))
    work(*arguments)
    torch.distributed.barrier()
    atexit.register(os._exit, 0)  # gloo sometimes aborts at a normal exit


def end_with_parent() -> None:
    """From here on this process ends with the one that started it, even if that is killed."""

    def watch(parent: Any) -> None:
        parent.join()
        os._exit(1)

    if parent := multiprocessing.parent_process():
        threading.Thread(target=watch, args=(parent,), daemon=True).start()


def end_of_process(code: int) -> None:
    """Exits one of several processes when all have reached this point; gloo sometimes aborts at a normal exit."""
    import torch.distributed

    if processes() == 1 or not torch.distributed.is_initialized():
        return
    if code == 0:
        torch.distributed.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def read_config(name: str) -> dict[str, Any]:
    """A DeepSpeed configuration by name or from a JSON file. UserError without ZeRO, or with a scheduler."""
    if name in NAMED:
        return copy.deepcopy(NAMED[name])
    try:
        if not (path := Path(name)).is_file():
            raise OSError("there is no such file")
        configuration = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"trainer.deepspeed is {name}; it must be one of {', '.join(NAMED)}, or a JSON file ({error})"
        ) from error
    if not isinstance(configuration, dict) or not isinstance(configuration.get("zero_optimization"), dict):
        raise UserError(f'trainer.deepspeed: {name} has no zero_optimization, such as {{"stage": 3}}; add it')
    if "scheduler" in configuration:
        raise UserError(
            f"trainer.deepspeed: {name} has a scheduler, but the learning rate follows trainer.warmup_ratio and "
            "trainer.schedule; leave scheduler out"
        )
    return configuration


@contextmanager
def not_spread(arguments: Any) -> Iterator[None]:
    """In the block, ZeRO-3 does not spread loaded models over the processes."""
    from transformers.integrations import deepspeed

    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if configuration := getattr(arguments, "hf_deepspeed_config", None):
            deepspeed.set_hf_deepspeed_config(configuration)


def deepspeed_configuration(name: str, device: str) -> dict[str, Any]:
    """The configuration for this process; on a CPU also starts torch.distributed.

    Missing values are `"auto"`, which the Trainer replaces by the settings.
    """
    configuration = read_config(name)
    import deepspeed

    for key in _OF_THE_TRAINER:
        configuration.setdefault(key, "auto")
    for key in ("bf16", "fp16"):
        configuration.setdefault(key, {}).setdefault("enabled", "auto")
    if "optimizer" in configuration:
        params = configuration["optimizer"].get("params", {})
        configuration["optimizer"]["params"] = {"lr": "auto", "weight_decay": "auto", **params}
    else:
        # The Trainer's AdamW, which DeepSpeed must be allowed to use.
        configuration.setdefault("zero_allow_untested_optimizer", True)
        if device == "cpu":
            # DeepSpeed's optimizer for offloaded weights would be compiled.
            configuration.setdefault("zero_force_ds_cpu_optimizer", False)
    if configuration["zero_optimization"].get("stage") == 3:
        # Otherwise only DeepSpeed could read the saved model.
        configuration["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = True
    if "RANK" not in os.environ:
        # Without a launcher DeepSpeed would ask MPI: this is the only process.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        alone = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        for key, value in alone.items():
            os.environ.setdefault(key, str(value))
    if device == "cpu":
        # DeepSpeed's shared-memory collectives would be compiled at start; gloo's suffice.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        # On a CPU Accelerate starts only torch.distributed; ZeRO-3 would assume a single process.
        deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    return configuration
