"""What DeepSpeed needs before the Trainer starts it: a checked configuration, a set-up that compiles nothing.

Several processes are started by a launcher (`torchrun`, `deepspeed`), which sets RANK and WORLD_SIZE.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import torch

from toolformer.errors import UserError
from toolformer.loading import choose_device, choose_dtype
from toolformer.training import zero
from toolformer.training.settings import TrainingSettings


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


def agreed_configuration(settings: TrainingSettings) -> dict[str, Any]:
    """DeepSpeed's configuration, open where the settings say a value; empty without DeepSpeed.

    Raises:
        UserError: it is in a file that is no JSON object, or that says something else than the settings.
    """
    if settings.deepspeed is None:
        return {}
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    bfloat16 = choose_dtype(settings.dtype, choose_device(settings.device)) == torch.bfloat16
    parts = "trainer.batch_size / (trainer.micro_batch_size x processes)"
    wanted: dict[str, tuple[Any, str]] = {
        "train_batch_size": (settings.batch_size, "trainer.batch_size"),
        "train_micro_batch_size_per_gpu": (settings.micro_batch_size, "trainer.micro_batch_size"),
        "gradient_accumulation_steps": (settings.accumulation(processes), parts),
        "gradient_clipping": (settings.max_grad_norm, "trainer.max_grad_norm"),
        "bf16.enabled": (bfloat16, "bfloat16 by lm.dtype"),
        "fp16.enabled": (False, "float16 by lm.dtype"),
    }
    if "optimizer" in zero.read(settings.deepspeed):
        wanted |= {
            "optimizer.params.lr": (settings.learning_rate, "trainer.learning_rate"),
            "optimizer.params.weight_decay": (settings.weight_decay, "trainer.weight_decay"),
            "optimizer.params.betas": ([0.9, 0.999], "AdamW's"),
            "optimizer.params.eps": (1e-8, "AdamW's"),
        }
    return zero.agreed(settings.deepspeed, wanted)


def deepspeed_configuration(settings: TrainingSettings, device: str) -> dict[str, Any]:
    """The configuration made ready for this process; starts torch.distributed on a CPU.

    Raises:
        UserError: DeepSpeed is not installed, or its configuration does not go with the settings.
    """
    configuration = agreed_configuration(settings)
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
    spread = configuration.get("zero_optimization")
    if isinstance(spread, dict) and spread.get("stage") == 3:
        # Without it only DeepSpeed could read the saved model.
        spread["stage3_gather_16bit_weights_on_model_save"] = True
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
