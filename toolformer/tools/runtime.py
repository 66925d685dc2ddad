"""The wrapper that every tool runs in: cache, time limit, retries and threads, and counts of calls."""

from __future__ import annotations

import functools
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field, PositiveInt

from toolformer.data import Document
from toolformer.errors import UserError, one_line
from toolformer.step import NOTHING
from toolformer.tools.base import Fault, Result, Tool, encodable, is_full_gpu
from toolformer.tools.cache import ResultCache, call_key
from toolformer.tools.threads import Late, Threads

log = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before the first retry (and up to FIRST_WAIT more at random), doubled with each further one."""
NOT_CALLED = "tool hangs (not asked)"
"""The reason for a call that got no thread: too many are busy with calls that hang."""
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass
class Limits:
    """How a tool is handed its calls."""

    timeout: Annotated[Seconds | None, NOTHING] = None
    """Time limit of a call in seconds. A batch of n calls gets n times the limit. null: no limit."""
    tries: Annotated[PositiveInt, NOTHING] = 1
    """Attempts at a call that fails (an exception, a server that does not answer), with growing pauses."""
    workers: Annotated[PositiveInt, NOTHING] = 1
    """Threads that call the tool in parallel; above 1 only if the tool is thread-safe."""
    batch_size: Annotated[PositiveInt | None, NOTHING] = None
    """Calls handed to the tool at once; null: all of them, divided among its workers, or one if there is a timeout."""


@dataclass(frozen=True)
class Usage:
    """Counts of calls; usages add up."""

    calls: int = 0
    executed: int = 0
    """Calls handed to the tool; the others were answered from the cache, or by an equal call in the same batch."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """Calls without a result because the tool failed, by reason."""
    retries: int = 0
    """Retried calls."""
    seconds: float = 0.0
    """Wall-clock time of the batches."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.executed + other.executed,
            dict(Counter(self.faults) + Counter(other.faults)),
            self.retries + other.retries,
            self.seconds + other.seconds,
        )


class ToolRuntime(Tool):
    """A tool, run within limits: a tool with the same answers.

    With a cache, calls with the same input and the same `Tool.depends_on` are executed once; faults are never cached.
    The tool always runs on separate threads: whatever it raises is a fault, and Ctrl-C ends the wait for it.
    """

    def __init__(
        self, tool: Tool, limits: Limits | None = None, cache: ResultCache | None = None, key: str = "NAME"
    ) -> None:
        self.tool = tool
        self._key = key
        """In the configuration."""
        self._most: int | None = None
        """Calls that may be handed over at once, since more have filled a GPU's memory."""
        self.name = self.tool.name
        self.is_remote = self.tool.is_remote
        self.parameters = self.tool.parameters
        self.description = self.tool.description
        self.examples = self.tool.examples
        self.benchmarks = self.tool.benchmarks
        self.is_exact = self.tool.is_exact
        self.is_quick = self.tool.is_quick
        self.limits = limits or Limits()
        self.cache = cache
        self._threads = Threads(max(self.limits.workers, self.tool.max_parallel_calls))
        self._usage = Usage()
        self._mutex = threading.Lock()

    def depends_on(self, document: Document) -> str:
        """See `Tool`."""
        return self.tool.depends_on(document)

    def usage(self) -> Usage:
        """The counts since the last time this was called."""
        with self._mutex:
            usage, self._usage = self._usage, Usage()
        return usage

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """See `Tool`."""
        started = time.monotonic()
        results = (self._execute if self.cache is None else self._cached)(inputs, documents)
        faults = Counter(result.reason or "" for result in results if result.fault)
        self._count(Usage(len(inputs), faults=faults, seconds=time.monotonic() - started))
        return results

    def _cached(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """The results from the cache; calls that it lacks are executed, equal ones once."""
        assert self.cache is not None
        calls = zip(inputs, documents, strict=True)
        keys = [call_key(text, self.depends_on(document)) for text, document in calls]
        known = self.cache.read(set(keys))
        missing: dict[bytes, int] = {}
        for n, key in enumerate(keys):
            if key not in known:
                missing.setdefault(key, n)
        results = self._execute(
            [inputs[n] for n in missing.values()], [documents[n] for n in missing.values()]
        )
        answers = dict(zip(missing, results, strict=True))
        self.cache.write(answers)
        known |= answers
        return [known[key] for key in keys]

    def _execute(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """Hands calls to the tool; retries those that met a fault, up to `tries` times in all."""
        self._count(Usage(executed=len(inputs)))
        results = self._tried(inputs, documents)
        wait = FIRST_WAIT
        for _ in range(1, self.limits.tries):
            again = [n for n, result in enumerate(results) if result.fault and not result.final]
            if not again:
                break
            time.sleep(wait + random.uniform(0, FIRST_WAIT))
            wait = min(2 * wait, LONGEST_WAIT)
            self._count(Usage(retries=len(again)))
            # One at a time: a call that breaks the tool must not fail the others again.
            answers = self._in_parts(1, [inputs[n] for n in again], [documents[n] for n in again])
            for n, answer in zip(again, answers, strict=True):
                results[n] = answer
        return results

    def _tried(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """The results of the first try; half as many calls at once where the tool's own model fills a GPU for the first time."""
        size = min(self._part_size(len(inputs)), self._most or max(1, len(inputs)))
        try:
            return self._in_parts(size, inputs, documents)
        except Exception as error:
            if not is_full_gpu(error):
                raise
            setting = f"tool.{self._key}.batch_size"
            if self._most or size == 1:
                calls, lower = (
                    (f"{size} calls at once", f"set a lower {setting}, or ") if size > 1 else ("one call", "")
                )
                raise UserError(
                    f"the GPU's memory is full in the tool's own model, with {calls}; finished work is kept: {lower}see with "
                    "nvidia-smi what else uses the GPU"
                ) from error
        from toolformer.lm.devices import release_memory

        release_memory()  # after the block, since the error's traceback holds tensors
        self._most = size // 2
        log.warning(
            "the GPU's memory is full in a tool's own model; going on with %s=%d", setting, self._most
        )
        return self._tried(inputs, documents)

    def _part_size(self, calls: int) -> int:
        """Calls handed over together. A part that is late is lost as a whole, so under a time limit it is one."""
        if self.limits.batch_size:
            return self.limits.batch_size
        if self.limits.timeout is not None or self.tool.max_parallel_calls > 1:
            return 1
        return max(1, -(-calls // self.limits.workers))

    def _in_parts(self, size: int, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        seconds = self.limits.timeout
        parts = [slice(n, n + size) for n in range(0, len(inputs), size)]
        jobs = [functools.partial(_run_safely, self.tool, inputs[part], documents[part]) for part in parts]
        answered = self._threads.run(jobs, seconds and seconds * min(size, len(inputs)))
        results: list[Result] = []
        for part, answers in zip(parts, answered, strict=True):
            if isinstance(answers, Late):
                # A call that was not begun may be retried, which waits for a thread again.
                begun = answers is Late.RUNNING
                reason = f"no answer within {seconds:g} s a call" if begun else NOT_CALLED
                answers = [Result(reason=reason, fault=True, final=begun)] * len(inputs[part])
            results += answers
        if late := sum(isinstance(answers, Late) for answers in answered):
            log.warning("%s: no answer in time to %d of %d requests", self.name, late, len(parts))
        return results

    def _count(self, usage: Usage) -> None:
        with self._mutex:
            self._usage += usage


def _run_safely(tool: Tool, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
    """The tool's answers; a fault where it raises.

    A batch that raises is repeated one call at a time, so that only the failing calls lose their results.
    """
    try:
        return _checked_results(tool, inputs, documents)
    except UserError:
        raise  # missing data or a missing model is the user's to fix
    except Fault as error:
        return [Result(reason=str(error), fault=True)] * len(inputs)
    except BaseException as error:  # a user's tool may raise anything; Ctrl-C never reaches its threads
        if is_full_gpu(error):
            raise  # the tool is handed fewer calls at once
        kind = type(error).__name__
        log.warning("%s failed on a batch of %d calls: %s: %s", tool.name, len(inputs), kind, one_line(error))
        if len(inputs) == 1:
            return [Result(reason=f"tool failed ({kind})", fault=True)]
    return [
        _run_safely(tool, [text], [document])[0] for text, document in zip(inputs, documents, strict=True)
    ]


def _checked_results(tool: Tool, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
    results = list(tool.run(inputs, documents))
    if len(results) != len(inputs):
        raise ValueError(f"{len(results)} results for {len(inputs)} inputs")
    return [_repaired(result) for result in results]


def _repaired(result: Result) -> Result:
    """The result with texts that can be encoded; raises if it is not a `Result` of texts."""
    text, reason = (part if part is None else encodable(part) for part in (result.text, result.reason))
    return replace(result, text=text, reason=reason)


def usages(tools: Mapping[str, Tool]) -> dict[str, Usage]:
    """The counts per tool since the last time this was called."""
    return {key: tool.usage() for key, tool in tools.items() if isinstance(tool, ToolRuntime)}


def added(first: Mapping[str, Usage], second: Mapping[str, Usage]) -> dict[str, Usage]:
    """The sum of both, tool by tool."""
    return {key: first.get(key, Usage()) + second.get(key, Usage()) for key in {**first, **second}}


def metrics(used: Mapping[str, Usage]) -> dict[str, float]:
    """Metrics of each called tool under `tools/<key>/`: counts, the share answered without execution, calls per
    second."""
    return {
        f"tools/{key}/{name}": value
        for key, usage in used.items()
        if usage.calls
        for name, value in {
            "calls": usage.calls,
            "executed": usage.executed,
            "faults": sum(usage.faults.values()),
            "retries": usage.retries,
            "hit_rate": 1 - usage.executed / usage.calls,
            "calls_per_second": usage.calls / max(usage.seconds, 1e-9),
        }.items()
    }


def log_faults(used: Mapping[str, Usage]) -> None:
    """Logs one line per tool that had faults, with the reasons."""
    for key, usage in used.items():
        if usage.faults:
            reasons = ", ".join(f"{count} {reason}" for reason, count in Counter(usage.faults).most_common(5))
            log.warning(
                "%s: %d of %d calls failed: %s", key, sum(usage.faults.values()), usage.calls, reasons
            )
