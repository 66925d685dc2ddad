"""Declaration of a benchmark's data in its task file: where its rows come from, and their form.

The key `metadata` of a task file has:

    version: 2.0                      lm-eval's version of the task
    published_rows: 1000              rows of the published set
    file: svamp/svamp                 its file in a data folder, without .jsonl or .jsonl.gz
    fields: [body, question, answer]  what loaders read of a row there
    licence: MIT
    measured: aa022c...               the digest (`DataFile.digest`) of the file that published results were measured with
    note: ...                         how a fetched file differs from that one
    reads: [xquad_en]                 other benchmarks whose files it reads
    columns: [question, answer]       the columns that are read of a data set on the hub with far more
    hub: {path, config, split, revision, convert, ...}  the data set on the hub, and the function of `published` that converts its rows
    source: {url, rows, convert}      what `toolformer data` fetches, if not the data set of the hub

Whether it measures perplexity is said by its `output_type`.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from toolformer.benchmarks import TASKS, TASKS_DIR


@dataclass(frozen=True)
class Benchmark:
    """The declaration of a benchmark."""

    name: str
    is_perplexity: bool = False
    version: float | None = None
    published_rows: int | None = None
    file: str = ""
    """Empty for one that is generated, or reads the files of others alone."""
    fields: tuple[str, ...] = ()
    licence: str = ""
    measured: str = ""
    note: str = ""
    reads: tuple[str, ...] = ()
    hub: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    source: Mapping[str, str] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)
    """How it is answered: its `generation_kwargs`."""


class _TaskFile(yaml.SafeLoader):
    """A task file, whose functions stay names."""


_TaskFile.add_constructor("!function", lambda _, node: str(node.value))


@functools.cache
def declared(task: str) -> Benchmark:
    """The declaration of one of the project's benchmarks; of a user's task, which has no such keys, an empty one."""
    if task not in TASKS:
        return Benchmark(task)
    (path,) = TASKS_DIR.glob(f"*/{task}.yaml")
    content = _read(path)
    shared = _read(path.parent / content["include"]) if "include" in content else {}
    output_type = content.get("output_type") or shared["output_type"]
    metadata = content.get("metadata") or shared.get("metadata", {})
    known: dict[str, Any] = {
        name: metadata[name] for name in Benchmark.__dataclass_fields__ if name in metadata
    }
    known |= {name: tuple(known[name]) for name in ("fields", "reads", "columns") if name in known}
    known["generation"] = content.get("generation_kwargs") or shared.get("generation_kwargs") or {}
    return Benchmark(task, output_type == "loglikelihood_rolling", **known)


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_TaskFile)
    return content


def is_perplexity(task: str) -> bool:
    """Whether a benchmark, the project's or a user's, measures perplexity and no score."""
    return declared(task).is_perplexity


def lines_file(name: str) -> tuple[str, ...]:
    """The names that a JSON Lines file of a data folder may have."""
    return f"{name}.jsonl.gz", f"{name}.jsonl"


def data_files(task: str) -> tuple[tuple[str, ...], ...]:
    """The files that a task reads from a data folder, each with the names that it may have; none of other tasks."""
    benchmark = declared(task)
    own = (lines_file(benchmark.file),) if benchmark.file else ()
    return (*own, *(lines_file(declared(name).file) for name in benchmark.reads))
