"""How fast a processor multiplies matrices, for estimates of time."""

import time

import torch

_SHAPE = 512, 576, 1536
"""Tokens, and the sizes of a layer of the bundled model."""


def teraflops(dtype: torch.dtype, seconds: float = 0.3) -> float:
    """10^12 floating-point operations per second of this process on a CPU, measured in so many seconds; the best of its tries."""
    rows, size, wide = _SHAPE
    left, right = torch.ones(rows, size, dtype=dtype), torch.ones(size, wide, dtype=dtype)
    best, end = float("inf"), time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        torch.mm(left, right)
        best = min(best, time.perf_counter() - start)
    return 2 * rows * size * wide / best / 1e12
