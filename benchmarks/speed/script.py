"""Shared by the scripts of this folder: options `key=value`, memory, and the printing of results."""

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast
from unittest import mock

import pandas
import psutil
import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from transformers.integrations import sdpa_attention

from toolformer.errors import UserError, one_line
from toolformer.lm import fast_linear
from toolformer.results.provenance import provenance

Options = TypeVar("Options")


def run(options: type[Options], main: Callable[[Options], None]) -> None:
    """Calls a script's `main` with the options of the command line."""
    with refused_in_one_line():
        given = OmegaConf.merge(OmegaConf.structured(options), OmegaConf.from_cli())
        main(cast(Options, OmegaConf.to_object(given)))


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


def show(title: str, rows: Mapping[str, Mapping[str, float]], results: Mapping[str, object]) -> None:
    """Prints a table, the machine and versions, and the results as one JSON object on the last line."""
    print(title)
    if rows:
        print(pandas.DataFrame(rows).T.to_string(float_format="{:.4g}".format))
    tags = provenance() | {"threads": torch.get_num_threads()}
    names = ("device_name", "threads", "git_commit", "version.torch", "version.transformers")
    print(", ".join(f"{name} {tags[name]}" for name in names))
    print(json.dumps(results))


class Peak:
    """Peak memory minus that at the beginning, in GiB."""

    gib = 0.0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measures the memory of a block: the GPU's if there is one, else this process's resident set, 50 times a second."""
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
        while not ended.wait(0.02):
            peak.gib = max(peak.gib, (process.memory_info().rss - before) / 2**30)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    yield peak
    ended.set()
    watcher.join()
