"""`tool_sources`: where further tools come from. Each tool found there becomes an entry of `tool`, before validation.

A source is a Python file or module (functions, or an Open WebUI `Tools` class), one function of it, or an MCP server. Only
tools in use are loaded; what their authors say of them becomes a few-shot prompt where nobody gave one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from toolformer.config.checks import near
from toolformer.config.schema import Config, DemonstrationConfig, ToolConfig
from toolformer.errors import UserError
from toolformer.tools import prompt_sets
from toolformer.tools.describe import Description, check_example, draft
from toolformer.tools.keys import OF_SOURCES

FUNCTION, MCP = OF_SOURCES


@dataclass
class Source:
    """An entry of `tool_sources`; a text alone is its `url` if it begins with http, else its `python`."""

    python: str | None = None
    """A file, a module, or one function: tools.py, my_package.tools, tools.py:square."""
    valves: dict[str, Any] = field(default_factory=dict)
    """python: values of the `Valves` of an Open WebUI class; $NAME stands for an environment variable."""
    command: str | None = None
    """MCP over standard input and output: the server's program."""
    args: list[str] = field(default_factory=list)
    """command: its arguments."""
    env: dict[str, str] = field(default_factory=dict)
    """command: environment variables beside the few that every program gets; $NAME as above."""
    url: str | None = None
    """MCP over HTTP: the server's address."""
    headers: dict[str, str] = field(default_factory=dict)
    """url: headers of every request; $NAME as above."""
    timeout: float = 30.0
    """MCP: seconds that an answer may take."""
    start_timeout: float = 60.0
    """MCP: seconds until the server must have answered for the first time, and listed its tools."""
    only: list[str] | None = None
    """The tools to take, by name; null is all."""
    prefix: str = ""
    """Put before every name, where two sources have tools of one name."""


def add_tools(config: Config) -> None:
    """Adds the tools of all sources to `config.tool`; keys that are already set there stay.

    Raises:
        UserError: a source cannot be read, a tool in use cannot be loaded, two tools have one name.
    """
    origin = {key: "the configuration" for key, tool in config.tool.items() if tool.implementation}
    for number, given in enumerate(config.tool_sources):
        place = f"tool_sources[{number}]"
        try:
            source = _read(given)
            for name, implementation in _choose(source, _offered(source)).items():
                key = source.prefix + re.sub(r"[-./ ]", "_", name)
                if key in origin:
                    raise UserError(
                        f"it has a tool {key}, and so has {origin[key]}; tell them apart with prefix, or leave one out "
                        "with only"
                    )
                origin[key] = place
                tool = config.tool.setdefault(key, ToolConfig())
                tool.name = tool.name or key
                tool.implementation = {**implementation, "name": tool.name, "_convert_": "all"}
                if key in config.tools:
                    _describe(config, key, tool)
        except UserError as error:
            raise UserError(f"{place}: {error}") from error


def _read(given: Any) -> Source:
    if isinstance(given, str):
        given = {"url" if re.match(r"https?://", given) else "python": given}
    if not isinstance(given, Mapping):
        raise UserError("it is neither a text nor a mapping; write a file, a module or an address")
    known = [one.name for one in fields(Source)]
    unknown = next((str(key) for key in given if key not in known), None)
    if unknown is not None:
        raise UserError(f"there is no key {unknown!r}{near(unknown, known)}; known are {', '.join(known)}")
    try:
        source = OmegaConf.to_object(
            OmegaConf.merge(OmegaConf.structured(Source), OmegaConf.create(dict(given)))
        )
    except OmegaConfBaseException as error:
        raise UserError(" ".join(str(error).split("\n")[0].split())) from error
    assert isinstance(source, Source)
    if sum(one is not None for one in (source.python, source.command, source.url)) != 1:
        raise UserError("name exactly one of python, command and url")
    if source.url is not None and re.search(r"//[^/]*@", source.url):
        raise UserError(
            "url holds a name and a password; give them by headers, with $NAME for an environment variable"
        )
    for key in ("timeout", "start_timeout"):
        if not 0 < getattr(source, key) < math.inf:
            raise UserError(f"{key} is {getattr(source, key)}; it must be more than 0 seconds")
    if re.search(r"\W", source.prefix, re.ASCII):
        raise UserError(f"prefix is {source.prefix!r}; write letters, digits and underscores")
    return source


def _offered(source: Source) -> dict[str, dict[str, Any]]:
    """The implementation of every tool of a source, by the tool's own name."""
    if source.python is not None:
        from toolformer.tools.functions import tools_of

        valves = {"valves": source.valves} if source.valves else {}
        return {
            name: {"_target_": FUNCTION, "function": place, **valves}
            for name, place in tools_of(source.python).items()
        }
    from toolformer.tools.mcp_connection import McpServer
    from toolformer.tools.mcp_tools import versions

    server: dict[str, Any] = {
        "command": source.command,
        "args": source.args,
        "env": source.env,
        "url": source.url,
        "headers": source.headers,
        "timeout": source.timeout,
        "start_timeout": source.start_timeout,
    }
    return {
        name: {"_target_": MCP, "tool": name, "version": version, **server}
        for name, version in versions(McpServer.of(**server)).items()
    }


def _choose(source: Source, offered: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    if source.only is None:
        return dict(offered)
    absent = next((name for name in source.only if name not in offered), None)
    if absent is not None:
        raise UserError(
            f"only: there is no tool {absent!r}{near(absent, offered)}; it has {', '.join(offered)}"
        )
    return {name: offered[name] for name in source.only}


def _describe(config: Config, key: str, tool: ToolConfig) -> None:
    """Loads the tool, and drafts its prompt unless the user or the set has one."""
    from toolformer.tools import functions, mcp_tools

    arguments = {name: value for name, value in tool.implementation.items() if not name.startswith("_")}
    is_function = tool.implementation["_target_"] == FUNCTION
    made = functions.FunctionTool(**arguments) if is_function else mcp_tools.McpTool(**arguments)
    description: Description = made.description
    if tool.instruction and tool.demonstrations or prompt_sets.find(config.prompts, tool.prompt or key):
        return
    place = f"tool.{key}.example" if tool.example else f"the docstring of {key}"
    examples = [tool.example] if tool.example else description.examples
    instruction, demonstrations = draft(tool.name, description, examples, place)
    for text in examples:
        check_example(text, made.parameters, place)
    tool.instruction = tool.instruction or instruction
    tool.demonstrations = tool.demonstrations or [DemonstrationConfig(*pair) for pair in demonstrations]
