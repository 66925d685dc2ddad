"""DeepSpeed, and training by several processes of a launcher (`torchrun`, `deepspeed`: RANK, WORLD_SIZE)."""

import copy
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolformer.errors import UserError

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
            f"trainer.deepspeed: {name} has a scheduler, and the learning rate follows trainer.warmup_ratio and "
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
