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
from toolformer.errors import UserError
from toolformer.tools.base import Result, Tool, context_of, run_safely
from toolformer.tools.cache import ResultCache, call_key

log = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before a second try (and up to as many more at random), doubled with each further one."""


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
        self._slots = threading.BoundedSemaphore(self.limits.workers)
        self._usage = Usage()
        self._mutex = threading.Lock()

    def depends_on(self, document: Document) -> str:
        """What the tool says."""
        return context_of(self.tool, document)

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
            size = self.limits.batch_size or -(-len(pending) // self.limits.workers)
            if results:
                self._count(Usage(retries=len(pending)))
                size = 1  # the one that breaks the tool must not take others with it again
            results.update(self._in_parts(pending, size, inputs, documents))
            # A call that took too long has had its time; its thread may be at work still.
            pending = [n for n in pending if results[n].fault and results[n].reason != self._too_late]
            return bool(pending)

        Retrying(
            stop=stop_after_attempt(self.limits.tries),
            wait=wait_exponential(FIRST_WAIT, LONGEST_WAIT) + wait_random(0, FIRST_WAIT),
            retry=retry_if_result(bool),
            retry_error_callback=lambda state: None,
        )(once)
        return [results[n] for n in range(len(inputs))]

    def _in_parts(
        self, pending: Sequence[int], size: int, inputs: Sequence[str], documents: Sequence[Document]
    ) -> Iterator[tuple[int, Result]]:
        parts = [pending[n : n + size] for n in range(0, len(pending), size)]
        jobs = [_Job(self.tool, [inputs[n] for n in part], [documents[n] for n in part]) for part in parts]
        if self.limits.timeout is None and self.limits.workers == 1:
            for job in jobs:
                with self._slots:
                    job.run()
        else:
            self._in_threads(jobs)
        for part, job in zip(parts, jobs, strict=True):
            yield from zip(
                part, job.results or [Result(reason=self._too_late, fault=True)] * len(part), strict=True
            )

    def _in_threads(self, jobs: Sequence[_Job]) -> None:
        deadlines: list[float | None] = []
        for job in jobs:
            seconds = None if self.limits.timeout is None else self.limits.timeout * len(job.inputs)
            # Calls that never end keep their threads: with all of them gone, others wait in vain.
            if self._slots.acquire(timeout=seconds):
                job.start(self._slots)
                deadlines.append(None if seconds is None else time.monotonic() + seconds)
            else:
                deadlines.append(0.0)
        for job, deadline in zip(jobs, deadlines, strict=True):
            job.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        late = sum(len(job.inputs) for job in jobs if job.results is None)
        if late:
            log.warning("%s: %d calls got %s", self.name, late, self._too_late)

    @property
    def _too_late(self) -> str:
        return f"no answer within {self.limits.timeout:g} s a call" if self.limits.timeout else "no answer"

    def _count(self, usage: Usage) -> None:
        with self._mutex:
            self._usage += usage


class _Job:
    """A part of a batch on its way through the tool."""

    def __init__(self, tool: Tool, inputs: Sequence[str], documents: Sequence[Document]) -> None:
        self.tool, self.inputs, self.documents = tool, inputs, documents
        self.results: list[Result] | None = None
        self._fault: UserError | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        self.results = run_safely(self.tool, self.inputs, self.documents)

    def start(self, slots: threading.BoundedSemaphore) -> None:
        """Runs in a thread that gives its slot back at the end, and that the end of the process does not wait for."""

        def work() -> None:
            try:
                self.run()
            except UserError as error:
                self._fault = error
            finally:
                slots.release()
                self._ended.set()

        threading.Thread(target=work, name=f"tool {self.tool.name}", daemon=True).start()

    def wait(self, seconds: float | None) -> None:
        """Until it has ended, or for so long.

        Raises:
            UserError: the tool cannot work at all.
        """
        if self._ended.wait(seconds) and self._fault:
            raise self._fault


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
