"""Tools of an MCP server: what it lists, a call's arguments by its schemas, its answers as results.

What a server says of itself is text for prompts and errors only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.tools.arguments import ArgumentError, Parameter, bind
from toolformer.tools.base import Result
from toolformer.tools.describe import Description, one_sentence
from toolformer.tools.functions import show
from toolformer.tools.mcp_connection import ENDED, McpServer, connection

if TYPE_CHECKING:
    from mcp.types import CallToolResult

log = logging.getLogger(__name__)

_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[Any],
    "object": dict[str, Any],
    "null": None,
}


class McpTool:
    """A tool of a server.

    Args:
        tool: its name there.
        name: its name in a call; the server's own if there is none.
        version: a digest of what the server says of it, which tells one state of the tool from another in configuration.
        server: the arguments of `McpServer.of`.

    Raises:
        UserError: the server does not answer, or has no such tool.
    """

    bounds_calls = True
    elsewhere = True

    def __init__(self, tool: str, name: str | None = None, version: str | None = None, **server: Any) -> None:
        self.tool = tool
        self.name = name or tool
        self.server = McpServer.of(**server)
        listed = connection(self.server).listed()
        if tool not in listed:
            raise UserError(f"{self.server.shown} has no tool {tool!r}; it has {', '.join(listed)}")
        schema = listed[tool].input_schema
        self.parameters = _parameters(schema)
        meanings = _properties(schema)
        self.description = Description(
            one_sentence((listed[tool].description or listed[tool].title or tool).strip().split("\n\n")[0]),
            tuple((key, one_sentence(str(one.get("description") or ""))) for key, one in meanings.items()),
        )

    def depends_on(self, document: Document) -> str:
        """Nothing: it is not shown the document."""
        return ""

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        """The server's answers, several calls at once."""
        results: list[Result | None] = [None] * len(inputs)
        calls: dict[int, dict[str, Any]] = {}
        for n, text in enumerate(inputs):
            try:
                calls[n] = bind(text, self.parameters)
            except ArgumentError as error:
                results[n] = Result(reason=str(error))
        for n, result in connection(self.server).call(self.tool, calls, _result).items():
            results[n] = result
        return [result or Result(reason=ENDED, fault=True) for result in results]


def versions(server: McpServer) -> dict[str, str]:
    """The tools of a server, each with a digest of what it says of it.

    Raises:
        UserError: it does not answer.
    """
    found = {}
    for name, tool in connection(server).listed().items():
        said = json.dumps([tool.description, tool.input_schema], sort_keys=True)
        if all(character.isalnum() or character in "_-./ " for character in name):
            found[name] = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        else:
            log.warning("%s: the tool %.60r is left out: its name does not fit a call", server.shown, name)
    return found


def _result(answer: CallToolResult) -> Result:
    """Text content joined; else structured content as JSON; an error is no result."""
    if answer.is_error:
        return Result(reason="tool answered with an error")
    texts = [block.text for block in answer.content if block.type == "text"]
    if not texts:
        return (
            show(answer.structured_content)
            if answer.content == []
            else Result(reason="no text in the answer")
        )
    text = "\n".join(texts)
    if text.lstrip()[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            return show(json.loads(text))
    return show(text)


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found = schema.get("properties")
    if not isinstance(found, Mapping):
        return {}
    return {str(key): one if isinstance(one, Mapping) else {} for key, one in found.items()}


def _parameters(schema: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """The arguments of a JSON schema; what else it asks for, the server checks."""
    required = schema.get("required")
    needed = set(map(str, required)) if isinstance(required, list) else set()
    # Those that must be given come first: a call without names begins with them.
    names = sorted(_properties(schema).items(), key=lambda item: item[0] not in needed)
    return tuple(Parameter(name, TypeAdapter(_type(one)), name in needed) for name, one in names)


def _type(schema: Mapping[str, Any]) -> Any:
    """A Python type for the simple part of a JSON schema; anything for the rest."""
    kinds = schema.get("type")
    choices = schema.get("anyOf")
    if isinstance(kinds, str) and kinds in _TYPES:
        return _TYPES[kinds]
    found: list[Any] = [_TYPES.get(str(one), Any) for one in kinds] if isinstance(kinds, list) else []
    if isinstance(choices, list):
        found = [_type(one) if isinstance(one, Mapping) else Any for one in choices]
    made: Any = found[0] if found else Any
    for one in found[1:]:
        made = made | one if Any not in (made, one) else Any
    return made
