"""Shared by the scripts of this folder: options `key=value`, memory and use of a GPU, and the printing of results."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, cast
from unittest import mock

import pandas
import psutil
import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from transformers.integrations import sdpa_attention

from toolformer.data import Document
from toolformer.errors import UserError, one_line
from toolformer.lm import fast_linear
from toolformer.results.provenance import provenance

Options = TypeVar("Options")


def run_script(options: type[Options], main: Callable[[Options], None]) -> None:
    """Calls a script's `main` with the options of the command line."""
    with refused_in_one_line():
        merged = OmegaConf.merge(OmegaConf.structured(options), OmegaConf.from_cli())
        main(cast(Options, OmegaConf.to_object(merged)))


@contextmanager
def refused_in_one_line() -> Iterator[None]:
    """Bad input prints one line and exits with code 2."""
    try:
        yield
    except (UserError, OmegaConfBaseException) as error:
        print(f"benchmarks.speed.{Path(sys.argv[0]).stem}: {one_line(error)}", file=sys.stderr)
        sys.exit(2)


@contextmanager
def stock_layers() -> Iterator[None]:
    """Uses the libraries' own linear layers and attention."""
    stock = mock.patch.object(sdpa_attention, "use_gqa_in_sdpa", fast_linear.STOCK_SHARING)
    with mock.patch.object(fast_linear, "MAX_ROWS", 0), stock:
        yield


def print_timings(title: str, rows: Mapping[str, Mapping[str, float]], results: Mapping[str, object]) -> None:
    """Prints a table, the machine and versions, and the results as one JSON object on the last line."""
    print(title)
    if rows:
        print(pandas.DataFrame(rows).T.to_string(float_format="{:.4g}".format))
    tags = provenance() | {"threads": torch.get_num_threads()}
    names = ("device_name", "threads", "git_commit", "version.torch", "version.transformers")
    print(", ".join(f"{name} {tags[name]}" for name in names))
    print(json.dumps(results))


@dataclass
class Usage:
    """Usage of a block of code."""

    peak_memory_gib: float = 0.0
    """This process's resident set beyond that at its beginning, 50 times a second; of a GPU all that PyTorch reserved, the
    model's weights included."""
    gpu_busy: float | None = None
    """Share of the time in which the GPU ran a kernel; None without a GPU."""

    def results(self) -> dict[str, float]:
        """As they are printed."""
        busy = {} if self.gpu_busy is None else {"gpu_busy": round(self.gpu_busy, 2)}
        return {"peak_memory_gib": round(self.peak_memory_gib, 2)} | busy


@contextmanager
def measured_usage() -> Iterator[Usage]:
    """Measures memory, and how busy the GPU is."""
    usage = Usage()
    if torch.cuda.is_available() and shutil.which("nvidia-smi"):
        torch.cuda.reset_peak_memory_stats()
        query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"]
        device = ["-i", str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)]
        if not device[1].startswith("GPU-"):
            device[1] = f"GPU-{device[1]}"
        with subprocess.Popen([*query, *device], stdout=subprocess.PIPE, text=True) as watcher:
            yield usage
            torch.cuda.synchronize()
            watcher.terminate()
            shares = [int(line) for line in (watcher.stdout or []) if line.strip().isdigit()]
        usage.gpu_busy = sum(shares) / len(shares) / 100 if shares else None
        usage.peak_memory_gib = torch.cuda.max_memory_reserved() / 2**30
        return
    process, ended = psutil.Process(), threading.Event()
    before = process.memory_info().rss

    def watch() -> None:
        while not ended.wait(0.02):
            used = (process.memory_info().rss - before) / 2**30
            usage.peak_memory_gib = max(usage.peak_memory_gib, used)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    yield usage
    ended.set()
    watching.join()


def repeated(documents: Sequence[Document], count: int) -> list[Document]:
    """The first `count` documents; more than there are begin again under other ids."""
    rounds = range(-(-count // len(documents)))
    again = [replace(document, doc_id=f"{document.doc_id} {n}") for n in rounds[1:] for document in documents]
    return [*documents, *again][:count]
