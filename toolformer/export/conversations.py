"""C* as conversations: a conversion, for the text before a call becomes the user's turn.

The texts of the turns, one after another, are the plain text; calls and results are turns of their own. How a call was written
(quoted or not), its gain and its text's date are left out.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from toolformer.calls import ApiCall, parse

Row = Mapping[str, Any]
_TOOLS: Mapping[str, tuple[str, dict[str, str]]] = {
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


def parts(row: Row) -> tuple[list[str], list[ApiCall]]:
    """The pieces of the plain text around its calls, one more than there are calls; and the calls."""
    bounds = [0, *(call["position"] for call in row["calls"]), len(row["plain"])]
    return [row["plain"][start:end] for start, end in pairwise(bounds)], [
        parse(call["written"]) for call in row["calls"]
    ]


def tool_schemas(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The tools that the rows call, as functions with a JSON schema."""
    names = {parse(call["written"]).tool: call["tool"] for row in rows for call in row["calls"]}
    return [_schema(key, name) for name, key in sorted(names.items())]


def _schema(key: str, name: str) -> dict[str, Any]:
    """A tool as a function of one text: a built-in one by its key, or any other."""
    text = {"type": "string"}
    description, meanings = _TOOLS.get(key, (name, {}))
    properties = {argument: {**text, "description": meaning} for argument, meaning in meanings.items()}
    properties = properties if key in _TOOLS else {"input": text}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def arguments(key: str, call: ApiCall) -> dict[str, str]:
    """A call's input as the argument of its tool's schema; a tool without one gets none, unless there is an input."""
    name = next(
        iter(_schema(key, call.tool)["function"]["parameters"]["properties"]), "input" if call.input else None
    )
    return {name: call.input} if name else {}


def conversation(row: Row) -> list[dict[str, Any]]:
    """A row as messages: user, then for each call an assistant's with the call and a tool's with the result, then the rest.

    The text between two calls is the content of the message that makes the second one.
    """
    (before, *between), calls = parts(row)
    messages: list[dict[str, Any]] = [{"role": "user", "content": before}]
    for index, (call, kept) in enumerate(zip(calls, row["calls"], strict=True)):
        call_id = f"call{index:05}"  # nine letters and digits, as Mistral's templates require
        function = {"name": call.tool, "arguments": arguments(kept["tool"], call)}
        request = {"id": call_id, "type": "function", "function": function}
        content = between[index - 1] if index else ""
        messages.append({"role": "assistant", "content": content, "tool_calls": [request]})
        messages.append(
            {"role": "tool", "tool_call_id": call_id, "name": call.tool, "content": call.result or ""}
        )
    return [*messages, {"role": "assistant", "content": between[-1]}]


def sharegpt(row: Row, tools: str) -> Iterator[dict[str, Any]]:
    """A row as conversations of four turns, one per call: human, function_call, observation, gpt.

    The human's turn is the plain text up to the call, without the calls before it: turns must alternate, so that a conversation
    has one call.
    """
    texts, calls = parts(row)
    for index, (call, kept) in enumerate(zip(calls, row["calls"], strict=True)):
        request = {"name": call.tool, "arguments": arguments(kept["tool"], call)}
        turns = {
            "human": "".join(texts[: index + 1]),
            "function_call": json.dumps(request, ensure_ascii=False),
            "observation": call.result or "",
            "gpt": texts[index + 1],
        }
        yield {
            "conversations": [{"from": role, "value": value} for role, value in turns.items()],
            "tools": tools,
        }
