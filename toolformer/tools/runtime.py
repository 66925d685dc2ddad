"""What every tool runs in: its cache, time limit, retries and threads, and the counts of its calls."""

from __future__ import annotations

import functools
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, PositiveInt

from toolformer.data import Document
from toolformer.tools.base import Result, Tool, context_of, run_safely, works_elsewhere
from toolformer.tools.cache import ResultCache, call_key
from toolformer.tools.threads import Late, Threads

log = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before a second try (and up to FIRST_WAIT more at random), doubled with each further one."""
NOT_ASKED = "tool hangs (not asked)"
"""The reason for a call for which no thread was left: too many are busy with calls that do not end."""
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass
class Limits:
    """How a tool is handed its calls."""

    timeout: Seconds | None = None
    """Seconds a call may take, calls handed over together n times as long; null: no limit."""
    tries: PositiveInt = 1
    """How often a call that met a fault (an exception, a server that is away) is made, with growing pauses."""
    workers: PositiveInt = 1
    """Threads that call the tool side by side; above 1 only for a tool that may be called so."""
    batch_size: PositiveInt | None = None
    """Calls handed to the tool at once; null: all there are, shared among its workers, but under a timeout one."""


@dataclass(frozen=True)
class Usage:
    """Counts of calls; usages add up."""

    calls: int = 0
    executed: int = 0
    """Calls handed to the tool; the others were answered from the cache, or by an equal call of the same batch."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """Calls without a result because the tool broke down, by reason."""
    retries: int = 0
    """Calls handed to the tool again after a fault."""
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


class ToolRuntime:
    """A tool, run within limits; a tool again, with the same answers.

    With a cache, calls whose inputs and contexts (`base.context_of`) are equal are executed once; faults are never cached.
    The tool always runs on threads of its own: whatever it raises is a fault, and Ctrl-C ends the wait for it.
    """

    def __init__(self, tool: Tool, limits: Limits | None = None, cache: ResultCache | None = None) -> None:
        self.tool = tool
        self.name = tool.name
        self.limits = limits or Limits()
        self.cache = cache
        self.elsewhere = works_elsewhere(tool)
        self.parameters = getattr(tool, "parameters", ())
        self._side_by_side = getattr(tool, "side_by_side", 1)
        self._threads = Threads(max(self.limits.workers, self._side_by_side))
        self._usage = Usage()
        self._mutex = threading.Lock()

    def depends_on(self, document: Document) -> str:
        """See `Tool`."""
        return context_of(self.tool, document)

    def usage(self) -> Usage:
        """The counts since the last time this was called."""
        with self._mutex:
            usage, self._usage = self._usage, Usage()
        return usage

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """See `Tool`."""
        started = time.monotonic()
        if self.cache is None:
            results = self._execute(inputs, documents)
        else:
            results = self._remembered(self.cache, inputs, documents)
        faults = Counter(result.reason or "" for result in results if result.fault)
        self._count(Usage(len(inputs), faults=faults, seconds=time.monotonic() - started))
        return results

    def _remembered(
        self, cache: ResultCache, inputs: Sequence[str], documents: Sequence[Document]
    ) -> list[Result]:
        """The results in the cache, and those of the other calls, each asked for once."""
        keys = [
            call_key(text, self.depends_on(document))
            for text, document in zip(inputs, documents, strict=True)
        ]
        known = cache.read(set(keys))
        missing: dict[bytes, int] = {}
        for n, key in enumerate(keys):
            if key not in known:
                missing.setdefault(key, n)
        asked = list(missing.values())
        results = self._execute([inputs[n] for n in asked], [documents[n] for n in asked])
        answers = dict(zip(missing, results, strict=True))
        cache.write(answers)
        known |= answers
        return [known[key] for key in keys]

    def _execute(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """Hands calls to the tool, and those that met a fault again, as often as it may be tried."""
        self._count(Usage(executed=len(inputs)))
        results = self._in_parts(self._size(len(inputs)), inputs, documents)
        wait = FIRST_WAIT
        for _ in range(1, self.limits.tries):
            again = [n for n, result in enumerate(results) if result.fault and not result.final]
            if not again:
                break
            time.sleep(wait + random.uniform(0, FIRST_WAIT))
            wait = min(2 * wait, LONGEST_WAIT)
            self._count(Usage(retries=len(again)))
            # One at a time: the one that breaks the tool must not take others with it again.
            answers = self._in_parts(1, [inputs[n] for n in again], [documents[n] for n in again])
            for n, answer in zip(again, answers, strict=True):
                results[n] = answer
        return results

    def _size(self, calls: int) -> int:
        """How many of so many calls are handed over together; a part that is late is lost as a whole."""
        if self.limits.batch_size:
            return self.limits.batch_size
        if self.limits.timeout is not None or self._side_by_side > 1:
            return 1
        return max(1, -(-calls // self.limits.workers))

    def _in_parts(self, size: int, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        seconds = self.limits.timeout
        parts = [slice(n, n + size) for n in range(0, len(inputs), size)]
        jobs = [functools.partial(run_safely, self.tool, inputs[part], documents[part]) for part in parts]
        answered = self._threads.run(jobs, seconds and seconds * min(size, len(inputs)))
        results: list[Result] = []
        for part, answers in zip(parts, answered, strict=True):
            if isinstance(answers, Late):
                # A call that was not begun may be tried again, which waits for a thread once more.
                begun = answers is Late.RUNNING
                reason = f"no answer within {seconds:g} s a call" if begun else NOT_ASKED
                answers = [Result(reason=reason, fault=True, final=begun)] * len(inputs[part])
            results += answers
        if lost := sum(isinstance(answers, Late) for answers in answered):
            log.warning("%s: %d of %d times no answer in time", self.name, lost, len(parts))
        return results

    def _count(self, usage: Usage) -> None:
        with self._mutex:
            self._usage += usage


def usages(tools: Mapping[str, Tool]) -> dict[str, Usage]:
    """The counts of each tool since the last time this was called, by key."""
    return {key: tool.usage() for key, tool in tools.items() if isinstance(tool, ToolRuntime)}


def added(first: Mapping[str, Usage], second: Mapping[str, Usage]) -> dict[str, Usage]:
    """The sum of both, tool by tool."""
    return {key: first.get(key, Usage()) + second.get(key, Usage()) for key in {**first, **second}}


def figures(used: Mapping[str, Usage]) -> dict[str, float]:
    """Of each tool that was called: counts, the share that needed no execution, calls a second, under `tools/<key>/`."""
    found: dict[str, float] = {}
    for key, usage in used.items():
        if usage.calls:
            found |= {
                f"tools/{key}/calls": usage.calls,
                f"tools/{key}/executed": usage.executed,
                f"tools/{key}/faults": sum(usage.faults.values()),
                f"tools/{key}/retries": usage.retries,
                f"tools/{key}/hit_rate": 1 - usage.executed / usage.calls,
                f"tools/{key}/calls_per_second": usage.calls / max(usage.seconds, 1e-9),
            }
    return found


def log_faults(used: Mapping[str, Usage]) -> None:
    """Logs a line for each tool that had faults, with the reasons."""
    for key, usage in used.items():
        if usage.faults:
            reasons = ", ".join(f"{count} {reason}" for reason, count in Counter(usage.faults).most_common(5))
            log.warning(
                "%s: %d of %d calls met a fault: %s", key, sum(usage.faults.values()), usage.calls, reasons
            )
