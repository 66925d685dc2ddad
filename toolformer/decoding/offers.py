"""Tools as chat models are offered them (JSON schemas of functions), and the calls that they write, as `ApiCall`s.

A model's message is read by a JSON parser only; anything but a call of an offered tool gives a reason.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic.errors import PydanticUserError

from toolformer.calls import ApiCall, CallSyntaxError
from toolformer.decoding.call_state import MALFORMED, NOT_ALLOWED
from toolformer.tools.base import Tool, encodable

_TEXT = {"type": "string"}
_BUILT_IN: Mapping[str, tuple[str, dict[str, str]]] = {
    "calculator": (
        "Evaluates an arithmetic expression of numbers, + - * / and parentheses, rounded to two decimals",
        {"expression": "The expression, such as (252 + 3) / 4"},
    ),
    "calendar": ("Tells today's date and day of the week", {}),
    "qa": ("Answers a short question about a fact", {"question": "The question, in English"}),
    "search": (
        "Searches Wikipedia and returns the passage that fits best",
        {"query": "What to look for, in a few words"},
    ),
    "translation": (
        "Translates a text from any language into English",
        {"text": "The text in its own language"},
    ),
}
"""By key: what a tool does, and its argument with its meaning."""
_MARK = re.compile(r"<tool_call>|<function_call>|\[TOOL_CALLS\]|<\|python_tag\|>")
"""Marks before a call in the formats of Hermes, Qwen and SmolLM2, of Mistral, and of Llama."""


@dataclass(frozen=True)
class Request:
    """A call that a model asks for."""

    call: ApiCall
    arguments: Mapping[str, Any]
    raw: str = ""
    """The model's message up to the call's end, if it was read from a text."""
    tokens: int = 0
    """Of the model's message, if they were counted."""


@dataclass(frozen=True)
class Offer:
    """A tool as a function with arguments."""

    name: str
    description: str
    properties: Mapping[str, Any]
    """The JSON schema of each argument."""
    required: tuple[str, ...]
    is_text: bool
    """Whether its only argument is the whole input of a call; otherwise the input has all arguments by name."""

    def schema(self) -> dict[str, Any]:
        """As `apply_chat_template(tools=...)` and OpenAI's protocol take it."""
        parameters = {"type": "object", "properties": dict(self.properties), "required": list(self.required)}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def call(self, arguments: Any) -> ApiCall:
        """The call with these arguments; CallSyntaxError if the tool does not take them."""
        if not isinstance(arguments, Mapping) or not arguments.keys() <= self.properties.keys():
            raise CallSyntaxError(MALFORMED)
        if not self.is_text:
            named = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
            return ApiCall(self.name, encodable(", ".join(named)))
        is_text = all(type(value) in (str, int, float) for value in arguments.values())
        if len(arguments) != len(self.properties) or not is_text:
            raise CallSyntaxError(MALFORMED)
        return ApiCall(self.name, encodable("".join(map(str, arguments.values()))).strip())


def offer(key: str, tool: Tool) -> Offer:
    """A tool by its key in the configuration: a built-in one, a user's with its arguments, or one that takes a single text."""
    if tool.parameters is None or tool.description is None:
        return text_offer(key if tool.parameters is None else "", tool.name)
    meanings = dict(tool.description.parameters)
    properties = {
        parameter.name: _schema(parameter.type)
        | ({"description": meanings[parameter.name]} if meanings.get(parameter.name) else {})
        for parameter in tool.parameters
    }
    required = tuple(parameter.name for parameter in tool.parameters if parameter.required)
    return Offer(tool.name, tool.description.summary, properties, required, False)


def text_offer(key: str, name: str) -> Offer:
    """A tool that takes a call's input as one text: a built-in one by its key, or any other."""
    if key in _BUILT_IN:
        summary, meanings = _BUILT_IN[key]
        properties = {argument: {**_TEXT, "description": meaning} for argument, meaning in meanings.items()}
        return Offer(name, summary, properties, tuple(properties), True)
    return Offer(name, name, {"input": _TEXT}, ("input",), True)


def _schema(adapter: Any) -> dict[str, Any]:
    try:
        return {name: value for name, value in adapter.json_schema().items() if name != "title"}
    except PydanticUserError:  # a type that JSON has no schema for: anything
        return {}


def requested(name: Any, arguments: Any, offers: Sequence[Offer]) -> Request:
    """The call that a model asks for; arguments may be JSON in a text.

    CallSyntaxError if no such tool is offered, or these are not its arguments; the message is the reason.
    """
    for offered in offers:
        if offered.name == name:
            if isinstance(arguments, str):
                arguments = _read_json(arguments, 0)[0] if arguments.strip() else {}
            return Request(offered.call(arguments or {}), arguments or {})
    raise CallSyntaxError(NOT_ALLOWED)


def written(text: str, offers: Sequence[Offer]) -> Request | None:
    """The first call in a model's message, or None where the message has none.

    A call is an object with `name` and `arguments` (or `parameters`), or the first of a list of them, after a mark or at the
    message's beginning. CallSyntaxError if a call was begun but is not valid; the message is the reason.
    """
    mark = _MARK.search(text)
    start = mark.end() if mark else 0
    start += len(text[start:]) - len(text[start:].lstrip())
    if not mark and not re.match(r'\[?\s*\{\s*"', text[start:]):
        return None
    value, end = _read_json(text, start)
    call = value[0] if isinstance(value, list) and value else value
    if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
        if mark:
            raise CallSyntaxError(MALFORMED)
        return None  # JSON that the model answers with
    arguments = call.get("arguments", call.get("parameters", {}))
    return replace(requested(call["name"], arguments, offers), raw=text[:end])


def _read_json(text: str, start: int) -> tuple[Any, int]:
    """The JSON value at `start`, and where it ends."""
    try:
        return json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):  # not JSON, or too deep, or too many digits
        raise CallSyntaxError(MALFORMED) from None
