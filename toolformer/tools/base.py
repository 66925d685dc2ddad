"""What a tool is. This module knows no tool."""

from __future__ import annotations

import json
import logging
from asyncio import CancelledError
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol, runtime_checkable

from toolformer.credentials import said
from toolformer.documents import Document
from toolformer.errors import UserError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What a tool answered: a text, or the reason why there is none. Exactly one of the two is set."""

    text: str | None = None
    reason: str | None = None
    fault: bool = False
    """The tool broke down (a server that is away, an exception, a time limit) where otherwise it declined: a call that
    may be tried again, and that no cache keeps."""
    final: bool = False
    """Of a fault: another try now would fare no better, since the call has had its time or its server is down."""

    def __post_init__(self) -> None:
        if (self.text is None) == (self.reason is None):
            raise ValueError("a result has either a text or a reason")
        if self.fault and self.text is not None:
            raise ValueError("a fault has a reason, not a text")
        if self.final and not self.fault:
            raise ValueError("only a fault is final")


def at_least_one(tool: str, **numbers: int) -> None:
    """Refuses arguments of a tool with which it would have no answer to anything.

    Raises:
        UserError: one of `numbers` is less than 1.
    """
    for name, number in numbers.items():
        if number < 1:
            raise UserError(f"{tool}: {name} is {number}; it must be at least 1")


@runtime_checkable
class Tool(Protocol):
    """A tool of the paper's section 3: texts in, texts out.

    It may have five members more. `check()` raises a `UserError` where what it needs to work at all (a model, a server's
    address) is not there; it is asked before anything begins and loads nothing. `depends_on(document) -> str` says all of
    a document that its answers depend on (see `context_of`). `version`, a text, changes when its answers may, where
    neither its configuration nor the source of its class shows it: cached answers of another version do not count.
    `bounds_calls`, true, says that it ends each call of a batch within `event_loop.LIMIT` by itself: it is handed whole
    batches under a time limit too, and nobody else looks at its time; others get one call at a time. `elsewhere`, true,
    says that another process or machine does its work: the language model goes on while it is asked.
    """

    name: str
    """Its name in a call: `Calculator`."""

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """Answers each input; `documents[n]` is the text that input n was written in (its date, its article).

        Returns as many results as inputs. A fault is a `Result` with a reason, never an exception.
        """
        ...


@runtime_checkable
class TextGenerator(Protocol):
    """A language model as a tool needs it: greedy continuations, cut before the first stop text.

    A model that may be away gives a `Result` with the reason (a fault) for a prompt that it has no text for.
    """

    def __call__(
        self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()
    ) -> Sequence[str | Result]: ...


def works_elsewhere(part: object) -> bool:
    """Whether a tool, or a part of one, has its work done by another process or machine."""
    return bool(getattr(part, "elsewhere", False))


def check(part: object) -> None:
    """Asks a tool, or a part of one, whether what it needs is there; nothing where it has no `check` of its own.

    Raises:
        UserError: it is not.
    """
    own = getattr(part, "check", None)
    if own is not None:
        own()


def too_late(seconds: float | None) -> str:
    """Why a call has no answer that took longer than this."""
    return f"no answer within {seconds:g} s a call" if seconds else "no answer"


def context_of(tool: Tool, document: Document) -> str:
    """What of a document the tool's answers depend on; everything, unless it says otherwise by `depends_on`."""
    says = getattr(tool, "depends_on", None)
    if says is not None:
        return str(says(document))
    return json.dumps(asdict(document), default=str)


def run_safely(tool: Tool, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
    """The tool's answers; where it breaks its promise and raises, a fault.

    A batch that it raises on is handed over once more, one call at a time, so that only those that it raises for lose
    their results.
    """
    try:
        return _answers(tool, inputs, documents)
    except UserError:
        raise  # what keeps a tool from working at all (its data, its model) is the user's to mend
    except (Exception, SystemExit, CancelledError) as error:  # a user's tool may do anything
        log.warning(
            "%s failed on a batch of %d calls: %s: %s",
            tool.name,
            len(inputs),
            type(error).__name__,
            said(error, 300),
        )
        if len(inputs) == 1:
            return [Result(reason=f"tool failed ({type(error).__name__})", fault=True)]
    return [run_safely(tool, [text], [document])[0] for text, document in zip(inputs, documents, strict=True)]


def _answers(tool: Tool, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
    answered = list(tool.run(inputs, documents))
    if len(answered) != len(inputs):
        raise ValueError(f"{len(answered)} results for {len(inputs)} inputs")
    if not all(isinstance(one, Result) and isinstance(one.text, str | None) for one in answered):
        raise TypeError("not every answer is a Result with a text or a reason")
    return [_encodable(one) for one in answered]


def _encodable(result: Result) -> Result:
    """A result that can be written to a file: lone surrogates become question marks."""
    text, reason = (
        one and one.encode("utf-8", "replace").decode("utf-8") for one in (result.text, result.reason)
    )
    return (
        result
        if (text, reason) == (result.text, result.reason)
        else replace(result, text=text, reason=reason)
    )
