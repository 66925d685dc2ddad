"""`tool_sources`: where further tools come from. Each tool found there becomes an entry of `tool`, before validation.

A source is a Python file or module, one function of it, or an MCP server. Only tools in use are loaded; their authors'
descriptions become a few-shot prompt where nobody gave one.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from toolformer.data.bounds import Matching
from toolformer.errors import UserError, near
from toolformer.jobs.config.messages import first_error
from toolformer.jobs.config.schema import Config, DemonstrationConfig, ToolConfig
from toolformer.tools import prompt_sets
from toolformer.tools.user.describe import Description, draft
from toolformer.tools.user.functions import FunctionTool, tools_of
from toolformer.tools.user.mcp import McpServer, McpTool, schemas

FUNCTION = "toolformer.tools.user.functions.FunctionTool"
MCP = "toolformer.tools.user.mcp.McpTool"


@dataclass(config=ConfigDict(extra="forbid"))
class Source(McpServer):
    """An entry of `tool_sources`; a text alone is its `url` if it begins with http, else its `python`."""

    python: str | None = None
    """A file, a module, or one function: tools.py, my_package.tools, tools.py:square."""
    version: str | None = None
    """Any text: results are cached under it, and it must change when answers may; null caches nothing."""
    files: list[str] = Field(default_factory=list)
    """Files and folders that its tools read, such as a table: their content decides results. Those that a Python source
    names, and that lie beside it, are found without being listed."""
    only: list[str] | None = None
    """The tools to take, by name; null is all."""
    prefix: Annotated[str, Matching(r"\w*", "letters, digits and underscores")] = ""
    """Put before every name, where two sources have tools of one name."""


def add_tools(config: Config) -> None:
    """Adds the tools of all sources to `config.tool`; keys that are already set there stay.

    UserError if a source cannot be read or two tools have one name.
    """
    origin = {key: "the configuration" for key, tool in config.tool.items() if tool.implementation}
    default = config.tool_default
    if config.prompts == prompt_sets.NO_SET:  # there is nothing to measure a lift against
        default = replace(default, rank=None)
    for number, entry in enumerate(config.tool_sources):
        label = f"tool_sources[{number}]"
        try:
            source = _read(entry)
            for name, implementation in _choose(source, _offered(source)).items():
                key = source.prefix + re.sub(r"[-./ ]", "_", name)
                if key in origin:
                    raise UserError(f"its tool {key} is also in {origin[key]}; set prefix or only")
                origin[key] = label
                tool = config.tool.setdefault(key, ToolConfig(**asdict(default)))
                tool.name = tool.name or key
                for field in ("rank", "temperature", "result_ahead"):
                    if getattr(tool, field) is None:
                        setattr(tool, field, getattr(default, field))
                tool.implementation = {**implementation, "name": tool.name, "_convert_": "all"}
                if key in config.tools:
                    _describe(config, key, tool)
        except UserError as error:
            raise UserError(f"{label}: {error}") from error


def _read(entry: Any) -> Source:
    if isinstance(entry, str):
        entry = {"url" if re.match(r"https?://", entry) else "python": entry}
    if not isinstance(entry, Mapping):
        raise UserError("expected a string or a mapping; write a file, a module or an address")
    try:
        source = TypeAdapter(Source).validate_python(dict(entry))
    except ValidationError as error:
        is_text = (
            error.errors()[0]["type"] == "string_type"
        )  # YAML's 1.10 and 0123, which would be written 1.1 and 83
        raise UserError(f"{first_error(error)}{'; put it in quotes' if is_text else ''}") from error
    if sum(name is not None for name in (source.python, source.command, source.url)) != 1:
        raise UserError("name exactly one of python, command and url")
    # Not shown: it may hold a secret.
    if source.python and not _is_name(source.python):
        raise UserError("python is not a file, a module or FILE:FUNCTION; name a server's program in command")
    if source.command and not _is_name(source.command):
        raise UserError("command is the program alone; put its arguments in args")
    if source.url is not None and "@" in source.url.partition("?")[0]:
        raise UserError("url holds a name and a password; give them by headers, as $NAME")
    return source


def _is_name(text: str) -> bool:
    """Whether it can be a module, a function or a file, and not a command line."""
    return bool(re.fullmatch(r"[\w./~-]+(:\w+)?", text)) or any(
        map(os.path.isfile, (text, text.rpartition(":")[0]))
    )


def _offered(source: Source) -> dict[str, dict[str, Any]]:
    """The implementation of every tool of a source, by the tool's own name."""
    version: dict[str, Any] = {"version": source.version} if source.version else {}
    if source.files:
        version["files"] = list(source.files)
    if source.python is not None:
        return {
            name: {"_target_": FUNCTION, "function": function, **version}
            for name, function in tools_of(source.python).items()
        }
    server = {key.name: getattr(source, key.name) for key in fields(McpServer)}
    return {
        name: {"_target_": MCP, "tool": name, "schema": schema, **version, **server}
        for name, schema in schemas(McpServer(**server)).items()
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
    arguments = {name: value for name, value in tool.implementation.items() if not name.startswith("_")}
    is_function = tool.implementation["_target_"] == FUNCTION
    loaded = FunctionTool(**arguments) if is_function else McpTool(**arguments)
    description: Description = loaded.description
    if (
        tool.instruction
        and tool.demonstrations
        or prompt_sets.find_prompt(config.prompts, tool.prompt or key)
    ):
        return
    label = f"tool.{key}.example" if tool.example else f"the docstring of {key}"
    examples = [tool.example] if tool.example else description.examples
    instruction, demonstrations = draft(tool.name, description, loaded.parameters, examples, label)
    tool.instruction = tool.instruction or instruction
    tool.demonstrations = tool.demonstrations or [DemonstrationConfig(*pair) for pair in demonstrations]
