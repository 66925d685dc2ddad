"""The threads of one tool: as many side by side as it has workers, each part of a batch within its time.

A thread cannot be stopped. One that is late is left behind and a fresh one takes its place, so that what hangs costs only
itself; with too many left behind, a batch waits for one of them to end, as long as a part may take, before it gives its
rest up. Knows no cache and no configuration.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence

from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.tools import event_loop
from toolformer.tools.base import Result, Tool, run_safely

log = logging.getLogger(__name__)

MOST_LATE = 8
"""Threads of a tool that may be left behind at once and still have others take their places; twice its workers if more."""
NO_THREAD = "no thread could be started (not asked)"


class Part:
    """Calls of a batch that are handed to the tool together."""

    def __init__(self, tool: Tool, inputs: Sequence[str], documents: Sequence[Document]) -> None:
        self.tool, self.inputs, self.documents = tool, inputs, documents
        self.results: list[Result] | None = None
        """None until there are any, and for ever if the part was late or never begun."""
        self.fault: UserError | None = None
        self.begun = self.ended = self.late = False
        self.deadline: float | None = None

    def run(self) -> None:
        self.results = run_safely(self.tool, self.inputs, self.documents)


class Threads:
    """Where the parts of a tool's batches run; several batches may share it."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._changed = threading.Condition()
        # Sets and not counts: whatever happens to a part, taking it out twice does no harm.
        self._busy: set[Part] = set()
        """Parts at work and in time."""
        self._late: set[Part] = set()
        """Parts whose threads were left behind and have not ended."""

    def run(self, parts: Sequence[Part], seconds: float | None) -> None:
        """Runs all parts, n calls for at most n times `seconds`; those that were late have no results afterwards.

        A tool that bounds its calls (`Tool`) is told the limit by `event_loop.LIMIT` and ends in time by itself. Parts that
        find no thread within the time of one, since too many are left behind, are not begun.

        Raises:
            UserError: the tool cannot work at all.
        """
        if seconds is None and self.workers == 1:
            self._run_here(parts)
            return
        waiting, running = deque(parts), set[Part]()
        patience: float | None = None
        """When the wait for a place ends; None while there is one."""
        with self._changed:
            try:
                while waiting or running:
                    self._leave_behind(running)
                    if any(part.fault is not None for part in running):
                        waiting.clear()  # it cannot work at all
                    running = {part for part in running if not (part.ended or part.late)}
                    if waiting and self._is_room:
                        patience = None
                        running.add(part := waiting.popleft())
                        self._start(part, seconds)
                        continue
                    if waiting and self._is_stuck and seconds is not None:
                        patience = patience or time.monotonic() + seconds * len(waiting[0].inputs)
                        if time.monotonic() >= patience:
                            waiting.clear()
                            continue
                    if waiting or running:
                        ends = [patience, *(part.deadline for part in running)]
                        known = [end for end in ends if end is not None]
                        self._changed.wait(max(0.0, min(known) - time.monotonic()) if known else None)
            except BaseException:  # Ctrl-C: nobody watches these any more
                for part in running:
                    self._leave(part)
                raise
        for part in parts:
            if part.fault is not None and not part.late:
                raise part.fault

    def _run_here(self, parts: Sequence[Part]) -> None:
        for part in parts:
            try:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_room)
                    self._busy.add(part)
                part.begun = True
                part.run()
            finally:
                with self._changed:
                    self._busy.discard(part)
                    self._changed.notify_all()

    @property
    def _is_room(self) -> bool:
        return len(self._busy) < self.workers and not self._is_stuck

    @property
    def _is_stuck(self) -> bool:
        """Whether nothing can be started before a thread that is late ends."""
        return len(self._late) >= max(MOST_LATE, 2 * self.workers)

    def _leave_behind(self, running: set[Part]) -> None:
        now = time.monotonic()
        for part in running:
            if part.deadline is not None and now >= part.deadline:
                self._leave(part)

    def _leave(self, part: Part) -> None:
        """Has another take the place of a part that has not ended."""
        if part in self._busy:
            part.late = True
            self._busy.remove(part)
            self._late.add(part)
            self._changed.notify_all()

    def _start(self, part: Part, seconds: float | None) -> None:
        """In a thread that the end of the process does not wait for."""

        def work() -> None:
            results, fault = None, None
            event_loop.LIMIT.set(seconds)
            try:
                results = run_safely(part.tool, part.inputs, part.documents)
            except UserError as error:
                fault = error
            finally:
                with self._changed:
                    self._busy.discard(part)
                    self._late.discard(part)
                    if not part.late:
                        part.results, part.fault = results, fault
                    part.ended = True
                    self._changed.notify_all()

        part.begun = True
        # A tool that ends each call itself is not watched: it may start a server first, and would lose what is there.
        if seconds is not None and not getattr(part.tool, "bounds_calls", False):
            part.deadline = time.monotonic() + seconds * len(part.inputs)
        self._busy.add(part)
        try:
            threading.Thread(target=work, name=f"tool {part.tool.name}", daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # the system gives no more
            log.warning("%s: %s", part.tool.name, error)
            self._busy.discard(part)
            part.results = [Result(reason=NO_THREAD, fault=True)] * len(part.inputs)
            part.ended = True
