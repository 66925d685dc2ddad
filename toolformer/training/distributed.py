"""What DeepSpeed needs before the Trainer starts it: a checked configuration, a set-up that compiles nothing.

Several processes are started by a launcher (`torchrun`, `deepspeed`), which sets RANK and WORLD_SIZE.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from toolformer.errors import UserError


def deepspeed_configuration(path: str, device: str) -> dict[str, Any]:
    """The configuration of a file, made ready for this process.

    Raises:
        UserError: DeepSpeed is not installed, or the file is no JSON object.
    """
    try:
        configuration = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"trainer.deepspeed: {path} is no JSON file: {error}") from error
    if not isinstance(configuration, dict):
        raise UserError(f"trainer.deepspeed: {path} holds no JSON object")
    try:
        import deepspeed
    except ImportError as error:
        raise UserError(
            "trainer.deepspeed is set, and DeepSpeed is not installed: pip install deepspeed"
        ) from error
    if "optimizer" not in configuration:
        # The Trainer's AdamW is used, which DeepSpeed runs when told that it may.
        configuration.setdefault("zero_allow_untested_optimizer", True)
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
