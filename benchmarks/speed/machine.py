"""What a speed figure was measured on."""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch
import transformers


def machine() -> str:
    """Processor, threads, GPU and versions in a line."""
    parts = [f"{_processor()}, {torch.get_num_threads()} threads"]
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_device_name())
    parts += [
        f"Python {platform.python_version()}",
        f"torch {torch.__version__}",
        f"transformers {transformers.__version__}",
    ]
    return ", ".join(parts)


class Peak:
    """The most memory beyond what was in use at the beginning, in GiB."""

    gib = 0.0


@contextmanager
def peak_memory(every: float = 0.02) -> Iterator[Peak]:
    """Watches the memory of a block: the GPU's where there is one, else this process's resident set, by looking often."""
    peak = Peak()
    if torch.cuda.is_available():
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        yield peak
        peak.gib = (torch.cuda.max_memory_allocated() - before) / 2**30
        return
    process, ended = psutil.Process(), threading.Event()
    before = process.memory_info().rss

    def watch() -> None:
        while not ended.wait(every):
            peak.gib = max(peak.gib, (process.memory_info().rss - before) / 2**30)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")
