"""What every tool runs in: its cache, its time limit, its tries and its threads, and the count of what became of calls.

A tool in its runtime is a tool again, with the same answers. Knows no tool and no configuration.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_exponential, wait_random

from toolformer.documents import Document
from toolformer.tools.base import Result, Tool, context_of, too_late, works_elsewhere
from toolformer.tools.cache import ResultCache, call_key
from toolformer.tools.threads import Part, Threads

log = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before a second try (and up to as many more at random), doubled with each further one."""
NOT_ASKED = "tool hangs (not asked)"
"""Of a call for which no thread was left: too many are at work on calls that do not end."""


@dataclass(frozen=True)
class Limits:
    """How a tool is handed its calls; `toolformer.config.ToolConfig` says what each means."""

    timeout: float | None = None
    tries: int = 1
    workers: int = 1
    batch_size: int | None = None


@dataclass(frozen=True)
class Usage:
    """What became of calls; usages of parts add up."""

    calls: int = 0
    executed: int = 0
    """Those that were handed to the tool; the others were answered from the cache or by an equal call beside them."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """Calls without a result because the tool broke down, by reason."""
    retries: int = 0
    """Calls handed to the tool again after a fault."""
    seconds: float = 0.0
    """From question to answer, waiting for other processes included."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.executed + other.executed,
            dict(Counter(self.faults) + Counter(other.faults)),
            self.retries + other.retries,
            self.seconds + other.seconds,
        )

    def figures(self) -> dict[str, float]:
        """Counts, calls a second and the share that needed no execution, by name; empty where there was no call."""
        if not self.calls:
            return {}
        found: dict[str, float] = {
            "calls": self.calls,
            "executed": self.executed,
            "faults": sum(self.faults.values()),
            "retries": self.retries,
            "hit_rate": 1 - self.executed / self.calls,
        }
        return found | ({"calls_per_second": self.calls / self.seconds} if self.seconds > 0 else {})


class ToolRuntime:
    """A tool, run within limits; with a cache, an equal call is executed once.

    Calls are equal if their inputs are, and what the tool says it depends on in their documents (`base.context_of`). A
    result, or the reason of a tool that declined, is kept; a fault never is.
    """

    def __init__(self, tool: Tool, limits: Limits | None = None, cache: ResultCache | None = None) -> None:
        self.tool = tool
        self.name = tool.name
        self.limits = limits or Limits()
        self.cache = cache
        self._threads = Threads(self.limits.workers)
        self._usage = Usage()
        self._mutex = threading.Lock()

    def depends_on(self, document: Document) -> str:
        """What the tool says."""
        return context_of(self.tool, document)

    @property
    def elsewhere(self) -> bool:
        """What the tool says."""
        return works_elsewhere(self.tool)

    def usage(self) -> Usage:
        """What became of the calls since the last time this was asked."""
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
        keys = self._keys(inputs, documents)
        places: dict[bytes, int] = {}
        for n, key in enumerate(keys):
            places.setdefault(key, n)
        known = cache.read(list(places))
        while missing := [key for key in places if key not in known]:
            with cache.claimed(missing) as ours:
                # Another process may have answered between our look and our claim.
                known.update(cache.read(ours))
                left = [key for key in ours if key not in known]
                asked = [inputs[places[key]] for key in left]
                about = [documents[places[key]] for key in left]
                answered = dict(zip(left, self._execute(asked, about), strict=True))
                # What changed meanwhile (the calendar's day) is no longer the answer to this call.
                same = {key for key, now in zip(left, self._keys(asked, about), strict=True) if key == now}
                cache.write({key: result for key, result in answered.items() if key in same})
                known.update(answered)
        return [known[key] for key in keys]

    def _keys(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[bytes]:
        contexts: dict[int, str] = {}
        for document in documents:
            if id(document) not in contexts:
                contexts[id(document)] = self.depends_on(document)
        return [
            call_key(text, contexts[id(document)]) for text, document in zip(inputs, documents, strict=True)
        ]

    def _execute(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """Hands calls to the tool, and those that met a fault again, as often as it may be tried."""
        if not inputs:
            return []
        self._count(Usage(executed=len(inputs)))
        results: dict[int, Result] = {}
        pending = list(range(len(inputs)))

        def once() -> bool:
            nonlocal pending
            size = self._size(len(pending))
            if results:
                self._count(Usage(retries=len(pending)))
                size = 1  # the one that breaks the tool must not take others with it again
            results.update(self._in_parts(pending, size, inputs, documents))
            pending = [n for n in pending if results[n].fault and not results[n].final]
            return bool(pending)

        Retrying(
            stop=stop_after_attempt(self.limits.tries),
            wait=wait_exponential(FIRST_WAIT, LONGEST_WAIT) + wait_random(0, FIRST_WAIT),
            retry=retry_if_result(bool),
            retry_error_callback=lambda state: None,
        )(once)
        return [results[n] for n in range(len(inputs))]

    def _size(self, calls: int) -> int:
        """How many of so many calls are handed over together."""
        if self.limits.batch_size:
            return self.limits.batch_size
        # A part ends as a whole or not at all: only a tool that bounds each call itself may be given several.
        if self.limits.timeout is not None and not getattr(self.tool, "bounds_calls", False):
            return 1
        return -(-calls // self.limits.workers)

    def _in_parts(
        self, pending: Sequence[int], size: int, inputs: Sequence[str], documents: Sequence[Document]
    ) -> Iterator[tuple[int, Result]]:
        numbers = [pending[n : n + size] for n in range(0, len(pending), size)]
        parts = [Part(self.tool, [inputs[n] for n in some], [documents[n] for n in some]) for some in numbers]
        self._threads.run(parts, self.limits.timeout)
        lost = 0
        for some, part in zip(numbers, parts, strict=True):
            if part.results is None:
                lost += len(some)
                reason = too_late(self.limits.timeout) if part.begun else NOT_ASKED
                # What was not asked may be by a further try, which waits for a thread once more.
                yield from ((n, Result(reason=reason, fault=True, final=part.begun)) for n in some)
            else:
                yield from zip(some, part.results, strict=True)
        if lost:
            log.warning("%s: %d calls got no answer in time", self.name, lost)

    def _count(self, usage: Usage) -> None:
        with self._mutex:
            self._usage += usage


def usages(tools: Mapping[str, Tool]) -> dict[str, Usage]:
    """What became of the calls of each tool since the last time this was asked, by key."""
    return {key: tool.usage() for key, tool in tools.items() if isinstance(tool, ToolRuntime)}


def added(one: Mapping[str, Usage], other: Mapping[str, Usage]) -> dict[str, Usage]:
    """Both together, tool by tool."""
    return {key: one.get(key, Usage()) + other.get(key, Usage()) for key in {**one, **other}}


def figures(used: Mapping[str, Usage]) -> dict[str, float]:
    """The figures of all tools, under `tools/<key>/`."""
    return {
        f"tools/{key}/{name}": value for key, usage in used.items() for name, value in usage.figures().items()
    }


def log_faults(used: Mapping[str, Usage]) -> None:
    """A line for each tool that broke down, with the reasons."""
    for key, usage in used.items():
        if usage.faults:
            reasons = ", ".join(f"{count} {reason}" for reason, count in Counter(usage.faults).most_common(5))
            log.warning(
                "%s: %d of %d calls met a fault: %s", key, sum(usage.faults.values()), usage.calls, reasons
            )
