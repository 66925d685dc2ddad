"""The keys of the configuration as they are read: each with its meaning, from the schema's docstrings, and its defaults."""

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from omegaconf import OmegaConf

from toolformer.credentials import SECRETS
from toolformer.results.provenance import masked, masked_words
from toolformer.stages.config.schema import Config, ToolConfig
from toolformer.step import ReadBy, all_settings, marks_of

EVERY = "Every stage"
EVALUATING = ("complete", "tool", "explain")
"""Commands with the configuration of `evaluate`."""
CHANGED_FIRST = {
    "generate": ("model", "corpus.source", "corpus.path", "corpus.limit", "tools", "tool.NAME.filter_threshold", "tool.NAME.samples", "engine.workers", "name"),
    "train": ("dataset", "data", "model", "trainer.max_steps", "trainer.learning_rate", "trainer.batch_size", "name"),
    "evaluate": ("system", "checkpoint", "benchmarks", "evaluation.limit", "decoding.k", "tools", "paths.data_dir", "name"),
    "report": ("name", "paper", "paths.root"),
}  # fmt: skip
"""What `toolformer STAGE --help` begins with."""


@dataclasses.dataclass(frozen=True)
class Key:
    """A key, what it means, and its value in each of some configurations."""

    name: str
    meaning: str
    values: tuple[str, ...]

    @property
    def readers(self) -> tuple[str, ...]:
        """The stages or the commands that read it, the one that it is listed with first."""
        return _readers().get(self.name.partition(".")[0], (EVERY,))

    @property
    def section(self) -> str:
        """The stage or command that it is listed with."""
        return self.readers[0]


@functools.cache
def _readers() -> dict[str, tuple[str, ...]]:
    """The stages that read each group of keys that not all of them read."""
    marks = {field: mark for field, mark in marks_of(Config, ReadBy).items() if mark}
    return {field: mark.stages for field, mark in marks.items()}


def sections() -> list[str]:
    """The stages and commands that keys are listed with, in the order of the schema, without `EVERY`."""
    return list(dict.fromkeys(stages[0] for stages in _readers().values()))


def default_of(key: str) -> Any:
    """The schema's default of a key, which may follow the names of the steps whose setting it is; empty if it has none."""
    key = re.sub(r"^(?:(?:train|generate|annotate|answer)(?:\[\d+\])?\.)*", "", key)
    schema, key = (
        (ToolConfig(), key.split(".", 2)[2])
        if key.count(".") > 1 and key.startswith("tool.")
        else (Config(), key)
    )
    return next((setting.default for setting in all_settings(schema) if setting.key == key), "")


def meanings(schema: type) -> dict[str, str]:
    """The docstring below each field of a dataclass and of those that it inherits from, in one line."""
    texts: dict[str, str] = {}
    for cls in filter(dataclasses.is_dataclass, reversed(schema.__mro__)):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in itertools.pairwise(tree.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                texts[ast.unparse(field.target)] = " ".join(str(ast.literal_eval(text.value)).split())
    return texts


def keys(*configs: Any) -> Iterator[Key]:
    """Every key, with its value in each of the configurations; those of a tool once, below `tool.NAME`."""
    return _below(Config(), configs, "")


def meant(name: str, value: str, command: str) -> str:
    """A hint at the keys whose last part is that of `name`, as one writes them: ` (did you mean decoding.k=3?)`.

    Of several, those that the command's stage reads; three at most. Empty where there is none.
    """
    last = name.rpartition(".")[2]
    stage = "evaluate" if command in EVALUATING else command
    found = [key for key in keys() if key.name.rpartition(".")[2] == last]
    found.sort(key=lambda key: (key.section != stage, key.name.count(".")))
    found = (
        [key for key in found if key.name == name] or [key for key in found if stage in key.readers] or found
    )
    shown = masked_words(f"{key.name}={value}" for key in found[:3])
    return f" (did you mean {', '.join(shown)}?)" if found else ""


def keys_of_tool(tool: str, *configs: Any) -> Iterator[Key]:
    """The keys of one tool."""
    return _below(ToolConfig(), [config.tool[tool] for config in configs], f"tool.{tool}.")


def _below(schema: Any, sides: Sequence[Any], above: str) -> Iterator[Key]:
    texts = meanings(type(schema))
    own = vars(type(schema))["__annotations__"]
    for field in sorted(dataclasses.fields(schema), key=lambda field: field.name not in own):
        key, default = f"{above}{field.name}", getattr(schema, field.name)
        if key == "tool":
            yield from _below(ToolConfig(), [{} for _ in sides], "tool.NAME.")
        elif dataclasses.is_dataclass(default):
            yield from _below(default, [side.get(field.name, {}) for side in sides], f"{key}.")
        else:
            values = tuple(_shown(side, field.name, default) for side in sides)
            yield Key(key, texts.get(field.name, ""), values)


def _shown(side: Any, name: str, default: Any) -> str:
    """A value as one writes it, with secrets masked; empty where there is none."""
    value = default
    if name in side and not OmegaConf.is_interpolation(side, name) and not OmegaConf.is_missing(side, name):
        value = side[name]
    if value == "???":
        return ""
    value = masked(OmegaConf.to_container(value) if OmegaConf.is_config(value) else value, name in SECRETS)
    text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    return re.sub("'", "", text) or "(empty)"
