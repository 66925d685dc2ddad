"""What a tool is: the protocol, its results, and a call of one that breaks its promises."""

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol, runtime_checkable

from toolformer.data import Document
from toolformer.errors import UserError, one_line

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """A tool's answer: a text, or the reason why there is none. Exactly one of the two is set."""

    text: str | None = None
    reason: str | None = None
    fault: bool = False
    """The tool failed (an exception, a server that is away) rather than declined: it may be tried again, and is never cached."""
    final: bool = False
    """Of a fault: trying again now is useless, since the call has used up its time."""

    def __post_init__(self) -> None:
        if (self.text is None) == (self.reason is None):
            raise ValueError("a result has either a text or a reason")


def at_least_one(tool: str, **numbers: int) -> None:
    """Refuses (`UserError`) arguments with which a tool could never answer."""
    for name, number in numbers.items():
        if number < 1:
            raise UserError(f"{tool}: {name} is {number}; it must be at least 1")


@runtime_checkable
class Tool(Protocol):
    """A tool of the paper's section 3: texts in, texts out. Optional members:

    - `check()` raises a `UserError` where what it needs (a model, a server's address) is missing. It is called before
      anything begins, and loads nothing.
    - `depends_on(document) -> str` returns everything of a document that its answers depend on (see `context_of`).
    - `version`, a text, changes when its answers may. A tool of the user's is cached only if it has one.
    - `side_by_side`, the number of calls that it takes at once: it is handed single calls, on so many threads.
    - `elsewhere`, true if another process or machine does the work: the language model continues meanwhile.
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

    A model that may be away returns a `Result` with the reason (a fault) in place of a text.
    """

    def __call__(
        self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()
    ) -> Sequence[str | Result]: ...


def works_elsewhere(part: object) -> bool:
    """Whether another process or machine does the work of a tool, or of a part of one."""
    return bool(getattr(part, "elsewhere", False))


def check(part: object) -> None:
    """Calls `check()` of a tool, or of a part of one, where it has one; see `Tool`."""
    getattr(part, "check", lambda: None)()


def context_of(tool: Tool, document: Document) -> str:
    """What of a document the tool's answers depend on; all of it, unless the tool has `depends_on`."""
    if hasattr(tool, "depends_on"):
        return str(tool.depends_on(document))
    return json.dumps(asdict(document), default=str)


def run_safely(tool: Tool, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
    """The tool's answers; where it raises, a fault.

    A batch that raises is repeated one call at a time, so that only the calls at fault lose their results.
    """
    try:
        return _answers(tool, inputs, documents)
    except UserError:
        raise  # what keeps a tool from working at all (its data, its model) is the user's to fix
    except BaseException as error:  # a user's tool may raise anything
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # Ctrl-C; it never reaches other threads
        kind = type(error).__name__
        log.warning("%s failed on a batch of %d calls: %s: %s", tool.name, len(inputs), kind, one_line(error))
        if len(inputs) == 1:
            return [Result(reason=f"tool failed ({kind})", fault=True)]
    return [run_safely(tool, [text], [document])[0] for text, document in zip(inputs, documents, strict=True)]


def _answers(tool: Tool, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
    results = list(tool.run(inputs, documents))
    if len(results) != len(inputs):
        raise ValueError(f"{len(results)} results for {len(inputs)} inputs")
    return [_repaired(result) for result in results]


def _repaired(result: Result) -> Result:
    """The result with texts that can be encoded; raises where it is none, or holds no text."""
    text, reason = (part if part is None else encodable(part) for part in (result.text, result.reason))
    return replace(result, text=text, reason=reason)


def encodable(text: str) -> str:
    """A text that can be written to a file or given to a tokenizer: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
