"""What DeepSpeed needs before the Trainer starts it: a checked configuration, a set-up that compiles nothing.

Several processes are started by a launcher (`torchrun`, `deepspeed`), which sets RANK and WORLD_SIZE.
"""

from __future__ import annotations

import copy
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from toolformer.errors import UserError


def _zero(stage: int, **more: Any) -> dict[str, Any]:
    return {
        "zero_optimization": {"stage": stage, **more},
        "bf16": {"enabled": "auto"},
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
    }


_ON_CPU = {"device": "cpu", "pin_memory": True}
BUILT_IN: dict[str, dict[str, Any]] = {
    "zero2": _zero(2),
    "zero3": _zero(3),
    "zero3_offload": _zero(3, offload_optimizer=_ON_CPU, offload_param=_ON_CPU),
}
"""The configurations that have a name: optimizer and gradients spread over the processes, weights too with stage 3."""


def end_of_process(code: int) -> None:
    """Ends one of several processes once all have got here; gloo sometimes aborts at a normal exit."""
    import torch.distributed

    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or not torch.distributed.is_initialized():
        return
    if code == 0:
        torch.distributed.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def deepspeed_configuration(name: str, device: str) -> dict[str, Any]:
    """A configuration by name or from a file, made ready for this process.

    Raises:
        UserError: DeepSpeed is not installed, or the file is no JSON object.
    """
    configuration = copy.deepcopy(BUILT_IN[name]) if name in BUILT_IN else _from_file(name)
    try:
        import deepspeed
    except ImportError as error:
        raise UserError(
            "trainer.deepspeed is set, and DeepSpeed is not installed: pip install deepspeed"
        ) from error
    if "optimizer" not in configuration:
        # The Trainer's AdamW is used, which DeepSpeed runs when told that it may.
        configuration.setdefault("zero_allow_untested_optimizer", True)
        if device == "cpu":
            # DeepSpeed's own for offloaded weights would be compiled.
            configuration.setdefault("zero_force_ds_cpu_optimizer", False)
    zero = configuration.get("zero_optimization")
    if isinstance(zero, dict) and zero.get("stage") == 3:
        # Without it only DeepSpeed could read the saved model.
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    if device == "cpu":
        # Its shared-memory collectives would be compiled at start; gloo's do.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if "RANK" not in os.environ:
        _single_process()
    if device == "cpu":
        # On a CPU Accelerate starts torch.distributed alone; ZeRO-3 would believe itself the only process.
        deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    return configuration


def _from_file(path: str) -> dict[str, Any]:
    try:
        configuration = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"trainer.deepspeed: {path} is no JSON file: {error}") from error
    if not isinstance(configuration, dict):
        raise UserError(f"trainer.deepspeed: {path} holds no JSON object")
    return configuration


def _single_process() -> None:
    """Without a launcher DeepSpeed would ask MPI who it is: it is one process of one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    alone = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    for key, value in alone.items():
        os.environ.setdefault(key, value)
