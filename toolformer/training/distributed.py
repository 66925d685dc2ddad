"""Several processes under a launcher (`torchrun`, `deepspeed`), which sets RANK and WORLD_SIZE; and DeepSpeed."""

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
"""DeepSpeed by name: optimizer and gradients spread over the processes; with stage 3 the weights too."""
_OF_THE_TRAINER = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
)


def rank() -> int:
    """This process among those that train together; the first one, 0, does the book-keeping."""
    return int(os.environ.get("RANK", "0"))


def processes() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def end_of_process(code: int) -> None:
    """Ends one of several processes once all have got here; gloo sometimes aborts at a normal exit."""
    import torch.distributed

    if processes() == 1 or not torch.distributed.is_initialized():
        return
    if code == 0:
        torch.distributed.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def read(name: str) -> dict[str, Any]:
    """A DeepSpeed configuration by name, or from a JSON file. UserError if it is none for ZeRO, or has a scheduler."""
    if name in NAMED:
        return copy.deepcopy(NAMED[name])
    try:
        configuration = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
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
    """Models loaded in the block are whole in this process, where ZeRO-3 would spread them over all."""
    from transformers.integrations import deepspeed

    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if configuration := getattr(arguments, "hf_deepspeed_config", None):
            deepspeed.set_hf_deepspeed_config(configuration)


def deepspeed_configuration(name: str, device: str) -> dict[str, Any]:
    """The configuration made ready for this process; on a CPU starts torch.distributed.

    What it leaves open is `"auto"`, which the Trainer fills in from the settings.
    """
    configuration = read(name)
    import deepspeed

    for key in _OF_THE_TRAINER:
        configuration.setdefault(key, "auto")
    for key in ("bf16", "fp16"):
        configuration.setdefault(key, {}).setdefault("enabled", "auto")
    if "optimizer" in configuration:
        own = configuration["optimizer"].get("params", {})
        configuration["optimizer"]["params"] = {"lr": "auto", "weight_decay": "auto", **own}
    else:
        # The Trainer's AdamW, which DeepSpeed runs where it is allowed to.
        configuration.setdefault("zero_allow_untested_optimizer", True)
        if device == "cpu":
            # DeepSpeed's own for offloaded weights would be compiled.
            configuration.setdefault("zero_force_ds_cpu_optimizer", False)
    if configuration["zero_optimization"].get("stage") == 3:
        # Without it only DeepSpeed could read the saved model.
        configuration["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = True
    if "RANK" not in os.environ:
        # Without a launcher DeepSpeed would ask MPI who it is: it is one process of one.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        alone = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        for key, value in alone.items():
            os.environ.setdefault(key, str(value))
    if device == "cpu":
        # DeepSpeed's shared-memory collectives would be compiled at start; gloo's do.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        # On a CPU Accelerate starts torch.distributed alone; ZeRO-3 would believe itself the only process.
        deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    return configuration
