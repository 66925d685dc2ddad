"""What the scripts of this folder share: their words `key=value`, memory, the machine, and how figures are printed."""

from __future__ import annotations

import json
import platform
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

import psutil
import torch
import transformers
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table

from toolformer.errors import UserError, one_line

Options = TypeVar("Options")


def run(options: type[Options], main: Callable[[Options], None]) -> None:
    """Calls a script with the command line's words as its options; wrong ones are one line and exit code 2."""
    name = Path(sys.argv[0]).stem
    try:
        try:
            words = OmegaConf.merge(OmegaConf.structured(options), OmegaConf.from_cli())
        except OmegaConfBaseException as error:
            raise UserError(one_line(error)) from error
        main(cast(Options, OmegaConf.to_object(words)))
    except UserError as error:
        print(f"benchmarks.speed.{name}: {error}", file=sys.stderr)
        sys.exit(2)


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


def show(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    figures: Mapping[str, object],
    notes: Sequence[str] = (),
) -> None:
    """Prints a table, what the machine is, and the figures as one JSON object on the last line."""
    table = Table(title=title)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    console = Console()
    console.print(table)
    for note in (*notes, machine()):
        console.print(note, soft_wrap=True)
    print(json.dumps(figures))


class Peak:
    """The most memory beyond what was in use at the beginning, in GiB."""

    gib = 0.0


@contextmanager
def peak_memory() -> Iterator[Peak]:
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
        while not ended.wait(0.02):
            peak.gib = max(peak.gib, (process.memory_info().rss - before) / 2**30)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    yield peak
    ended.set()
    watcher.join()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")
