"""The base class of tools, and their results."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from toolformer.data import Document
from toolformer.errors import UserError

if TYPE_CHECKING:
    from toolformer.tools.user.arguments import Parameter
    from toolformer.tools.user.describe import Description


@dataclass(frozen=True)
class Result:
    """A tool's answer: a text, or the reason why there is none. Exactly one of the two is set."""

    text: str | None = None
    reason: str | None = None
    fault: bool = False
    """The tool failed (an exception, an unreachable server) rather than declined: retried if configured, never cached."""
    final: bool = False
    """Whether not to retry after a fault, since the call has used up its time."""

    def __post_init__(self) -> None:
        if (self.text is None) == (self.reason is None):
            raise ValueError("a result has either a text or a reason")


class Fault(Exception):
    """Raised by a part of a tool that cannot work now, such as a server that is away; the message becomes the reason."""


def at_least_one(tool: str, **numbers: int) -> None:
    """`UserError` for a number below 1."""
    for name, number in numbers.items():
        if number < 1:
            raise UserError(f"{tool}: {name} is {number}; it must be at least 1")


@dataclass(frozen=True)
class Need:
    """Something that a tool needs beside this package."""

    name: str
    """Name of the need: `Atlas's checkpoint xxl/model.pth.tar`."""
    missing: str = ""
    """Problem and remedy; empty if there is none."""
    size: str = ""
    """Disk and memory that it takes."""
    is_fetched: bool = False
    """Whether it is fetched at first use, with network."""


class Part:
    """Common interface of a tool and its parts (a translator, a language model), with defaults."""

    VERSION: ClassVar[int | None] = None
    """Version of a class of this package: raise it in the commit that changes results. Caches and runs depend on it."""
    is_remote: bool = False
    """Whether another process or machine does the work: the language model continues meanwhile."""

    def check(self) -> None:
        """Raises a `UserError` if something is missing (a model, a server's address); loads nothing."""

    @classmethod
    def describe(cls, settings: Mapping[str, Any]) -> str:
        """Short description of the implementation, by these arguments of the class; empty if a part describes it."""
        return ""

    @classmethod
    def needs(cls, settings: Mapping[str, Any]) -> Sequence[Need]:
        """Needs besides this package, by these arguments of the class."""
        return ()


class Tool(Part, ABC):
    """A tool of the paper's section 3: texts in, texts out. A user's class derives from it."""

    name: str
    """Its name in a call: `Calculator`."""
    version: str = ""
    """Version of a user's tool: any text, changed when its answers may change. Without one, results are not cached."""
    max_parallel_calls: int = 1
    """Calls that it takes at once; above 1 it is handed single calls, on that many threads."""
    parameters: tuple[Parameter, ...] | None = None
    """The parameters of a call; None for a tool that takes the call's input as one text."""
    description: Description | None = None
    """Its author's description, if there is one."""
    examples: tuple[str, ...] = ()
    """Sentences with a call and its result, for a model that was not trained to call it (`system=prompted`), and for the few-shot
    prompt of a class that has a `description`, where no set of prompts has one for it.

    Without any they are made of the examples in `description`.
    """
    benchmarks: tuple[str, ...] = ()
    """Benchmarks, or groups of them, whose questions it can answer, for the analysis of errors with oracles."""
    is_exact: bool = False
    """Whether its answer to the right call is right, as a calculator's is and a search's need not be."""

    is_quick: bool = False
    """Whether a call takes less time than a model's step: it is run at once, and does not wait for others to be run with."""

    def depends_on(self, document: Document) -> str:
        """Everything in a document that answers depend on: by default all of it."""
        return json.dumps(asdict(document), default=str)

    @abstractmethod
    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """Answers each input; `documents[n]` is the text that input n was written in (its date, its article).

        Returns as many results as inputs. `ToolRuntime`, which every configured tool runs in, turns exceptions into faults.
        """


class ClosedTool(Tool):
    """A tool whose answers depend on the input alone."""

    def depends_on(self, document: Document) -> str:
        """Nothing."""
        return ""


@runtime_checkable
class TextGenerator(Protocol):
    """A language model as a tool needs it (see `Part`): greedy continuations, cut before the first stop text.

    A model that may be away returns a `Result` with the reason (a fault) in place of a text.
    """

    @property
    def is_remote(self) -> bool: ...

    def check(self) -> None: ...

    def __call__(
        self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()
    ) -> Sequence[str | Result]: ...


def encodable(text: str) -> str:
    """A text that can be written to a file or given to a tokenizer: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def is_full_gpu(error: BaseException) -> bool:
    """Whether an exception says that a device's memory is full, which is not the tool's fault."""
    torch = sys.modules.get("torch")  # where it was not imported, nothing can have filled a GPU
    return torch is not None and isinstance(error, torch.OutOfMemoryError)
