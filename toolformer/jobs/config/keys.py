"""The keys of the configuration, each with its meaning, its type and its default: the JSON schema that pydantic makes of
`schema`."""

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf

from toolformer.credentials import is_secret, masked
from toolformer.jobs.config import schema
from toolformer.jobs.config.overrides import masked_overrides
from toolformer.jobs.config.schema import Config, ToolConfig, adapter
from toolformer.step import ReadBy, all_settings, marks_of

EVERY = "Every stage"
EVALUATING = ("complete", "tool", "explain")
"""Commands with the configuration of `evaluate`."""


@dataclass(frozen=True)
class Key:
    """A key; those of a tool are below `tool.NAME`."""

    name: str
    meaning: str
    default: Any
    is_text: bool
    """Whether it is a text or a list of texts."""
    is_open: bool
    """Whether anything may be below it."""
    readers: tuple[str, ...]
    """The stages or commands that read it, the one that it is listed with first."""

    @property
    def section(self) -> str:
        """The stage or command that it is listed with."""
        return self.readers[0]

    def of_tool(self, tool: str) -> "Key":
        return replace(self, name=self.name.replace("NAME", tool))

    def value(self, config: DictConfig) -> str:
        """Its value in a configuration as one writes it, with secrets masked; empty where there is none."""
        above, _, name = self.name.rpartition(".")
        node = OmegaConf.select(config, above) if above else config
        value = self.default
        if node and name in node and not OmegaConf.is_interpolation(node, name):
            value = MISSING if OmegaConf.is_missing(node, name) else node[name]
        if value == MISSING:
            return ""
        plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        plain = masked(plain, is_secret(name))
        text = json.dumps(plain) if plain is None or isinstance(plain, bool) else str(plain)
        return text.replace("'", "") or "(empty)"


@functools.cache
def all_keys() -> tuple[Key, ...]:
    """Every key of the schema."""
    definitions = adapter(Config).json_schema()["$defs"]
    readers = {field: mark.stages for field, mark in marks_of(Config, ReadBy).items() if mark}

    def visit(definition: str, above: str) -> Iterator[Key]:
        inherited = _inherited_meanings(getattr(schema, definition))
        for name, part in definitions[definition]["properties"].items():
            path = f"{above}{name}"
            if path == "tool":
                yield from visit("ToolConfig", "tool.NAME.")
            elif "$ref" in part:
                yield from visit(part["$ref"].rpartition("/")[2], f"{path}.")
            else:
                kinds = {
                    kind.get("items", {}).get("type") if kind.get("type") == "array" else kind.get("type")
                    for kind in (part, *part.get("anyOf", ()))
                }
                default = part.get("default", {"object": {}, "array": []}.get(part.get("type"), MISSING))
                meaning = " ".join(part.get("description", inherited.get(name, "")).split())
                stages = readers.get(path.partition(".")[0], (EVERY,))
                is_open = part.get("type") == "object" or kinds == {None}
                yield Key(path, meaning, default, "string" in kinds, is_open, stages)

    return tuple(visit("Config", ""))


def _inherited_meanings(cls: type) -> dict[str, str]:
    """The docstrings of the fields that a dataclass inherits, which pydantic leaves out."""
    meanings: dict[str, str] = {}
    for base in filter(is_dataclass, cls.__mro__[1:]):
        properties = adapter(base).json_schema()["$defs"][base.__name__]["properties"]
        meanings |= {name: part["description"] for name, part in properties.items() if "description" in part}
    return meanings


def sections() -> list[str]:
    """The stages and commands that keys are listed with, in the order of the schema, without `EVERY`."""
    return [section for section in dict.fromkeys(key.section for key in all_keys()) if section != EVERY]


def is_key(name: str) -> bool:
    """Whether there is a key or a section of this name, or it is below a mapping, such as the arguments of a tool."""
    name = re.sub(r"^tool\.\w+", "tool.NAME", name)
    return any(
        f"{key.name}.".startswith(f"{name}.") or (key.is_open and name.startswith(f"{key.name}."))
        for key in all_keys()
    )


def is_text(name: str) -> bool:
    """Whether the value of a key is a text or a list of texts. Of a tool's arguments the schema has no type, and paths are texts."""
    if name == "evaluation.samples" or (name.startswith("tool.") and name.endswith("_path")):
        return True
    name = re.sub(r"^tool\.\w+\.", "tool.NAME.", name)
    return any(key.name == name and key.is_text for key in all_keys())


def suggest(name: str, value: str, command: str) -> str:
    """A hint at the keys whose last part is that of `name`, as one writes them: ` (did you mean decoding.k=3?)`.

    Of several, those that the command's stage reads; three at most. Empty where there is none.
    """
    last = name.rpartition(".")[2]
    stage = "evaluate" if command in EVALUATING else command
    keys = [key for key in all_keys() if key.name.rpartition(".")[2] == last]
    keys.sort(key=lambda key: (key.section != stage, key.name.count(".")))
    keys = [key for key in keys if key.name == name] or [key for key in keys if stage in key.readers] or keys
    suggestions = masked_overrides(f"{key.name}={value}" for key in keys[:3])
    return f" (did you mean {', '.join(suggestions)}?)" if keys else ""


def default_of(key: str) -> Any:
    """The schema's default of a key, which may follow the names of the steps whose setting it is; empty if it has none."""
    key = re.sub(r"^(?:(?:train|generate|annotate|answer)(?:\[\d+\])?\.)*", "", key)
    config, key = (
        (ToolConfig(), key.split(".", 2)[2])
        if key.count(".") > 1 and key.startswith("tool.")
        else (Config(), key)
    )
    return next((setting.default for setting in all_settings(config) if setting.key == key), "")
