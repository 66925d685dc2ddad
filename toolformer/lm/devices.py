"""Devices: which there are, which one a name means, the dtype that is fast there, and their memory. Knows no model."""

import ctypes
import gc
from contextlib import suppress

import torch

from toolformer.errors import UserError

ALL_GPUS = "all"
"""The device of a model whose layers are spread over all GPUs."""
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def native_bfloat16(device: str | torch.device) -> bool:
    """Whether the device multiplies bfloat16 in hardware; elsewhere it is up to a hundred times slower than fp32."""
    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def gpus(device: str = "auto") -> int:
    """Number of CUDA devices that a device's name leaves to choose from: all of auto, cuda and all, none of any other."""
    is_open = device in ("auto", "cuda", ALL_GPUS)
    return torch.cuda.device_count() if is_open and torch.cuda.is_available() else 0


def choose_device(device: str = "auto") -> str:
    """The device by name; `auto` is the first CUDA device, or the CPU; of a model on all GPUs, the first, where its inputs are.

    UserError for a missing CUDA device.
    """
    count = gpus()
    if device == "auto":
        return "cuda" if count else "cpu"
    if device == ALL_GPUS and count:
        return "cuda"
    if device.startswith(("cuda", ALL_GPUS)) and int(device.partition(":")[2] or 0) >= count:
        available = f"{count or 'no'} CUDA device{'s' if count > 1 else ''} here"
        raise UserError(
            f"lm.device={device} cannot be used: PyTorch finds {available}; set lm.device=auto or lm.device=cpu"
        )
    return device


def choose_dtype(dtype: str, device: str) -> torch.dtype:
    """`auto` is bfloat16 where it is native, float32 elsewhere."""
    if dtype == "auto":
        return torch.bfloat16 if native_bfloat16(device) else torch.float32
    return _DTYPES[dtype]


def dtype_name(dtype: str, device: str) -> str:
    """The dtype's name on a device, as in the tags of runs: `bfloat16`."""
    return str(choose_dtype(dtype, choose_device(device))).removeprefix("torch.")


def gpu_memory() -> list[int]:
    """Bytes of memory of each GPU, whatever uses it."""
    return [torch.cuda.get_device_properties(number).total_memory for number in range(gpus())]


def free_memory() -> dict[int, int]:
    """Bytes that other processes leave of the memory of each GPU, by its number."""
    return {number: torch.cuda.mem_get_info(number)[0] for number in range(gpus())}


def release_memory() -> None:
    """Returns unused memory to the system: models left in reference cycles, and freed blocks that glibc keeps."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    with suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
