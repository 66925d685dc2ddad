"""The table of keys, made from the schema: docs/keys.md (`python scripts/keys.py > docs/keys.md`)."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from toolformer.stages.config.composition import compose
from toolformer.stages.config.schema import Config, ToolConfig

EVERY = "Every stage"
SECTIONS = {
    "generate": ("corpus", "tools", "tool", "tool_default", "tool_sources", "prompts", "filter_threshold", "propose", "screen", "score", "filter", "generate", "engine"),
    "train": ("dataset", "data", "trainer", "heldout"),
    "evaluate": ("system", "checkpoint", "decoding", "benchmarks", "evaluation", "chat", "endpoint"),
    "report": ("paper",),
    "run": ("run",),
    "index": ("index",),
}  # fmt: skip
"""Where the keys of each stage and command stand; `evaluate` reads those of tools too. All others are every stage's."""

_HEAD = """\
# Keys

Every key of the configuration, with its default and its meaning; made from the schema by
`python scripts/keys.py`. Set one on the command line as `key=value`. Where the paper's setting
(`setting=paper`) has another default, it stands behind the first.
"""


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


def markdown() -> str:
    """The page of all keys."""
    ours, paper = (compose("generate", words) for words in ([], ["setting=paper"]))
    sections = {name: section for section, names in SECTIONS.items() for name in names}
    tables: dict[str, list[str]] = {section: [] for section in (EVERY, *SECTIONS)}
    for key, row in _rows(Config(), ours, paper):
        tables[sections.get(key.partition(".")[0], EVERY)].append(row)
    head = "| key | default | meaning |\n|---|---|---|\n"
    pages = [f"## {section}\n\n{head}{''.join(rows)}" for section, rows in tables.items()]
    return "\n".join([_HEAD, *pages])


def _rows(schema: Any, ours: Any, paper: Any, above: str = "") -> Iterator[tuple[str, str]]:
    """Each key below `above`, and its row."""
    texts = meanings(type(schema))
    own = vars(type(schema))["__annotations__"]
    for field in sorted(dataclasses.fields(schema), key=lambda field: field.name not in own):
        key, default = f"{above}{field.name}", getattr(schema, field.name)
        if key == "tool":
            yield from _rows(ToolConfig(), {}, {}, "tool.NAME.")
        elif dataclasses.is_dataclass(default):
            yield from _rows(default, ours.get(field.name, {}), paper.get(field.name, {}), f"{key}.")
        else:
            values = dict.fromkeys(_shown(side, field.name, default) for side in (ours, paper))
            text = texts.get(field.name, "").replace("|", "\\|")
            yield key, f"| `{key}` | {'; paper: '.join(values)} | {text} |\n"


def _shown(side: Any, name: str, default: Any) -> str:
    value = default
    if name in side and not OmegaConf.is_interpolation(side, name) and not OmegaConf.is_missing(side, name):
        value = side[name]
    if value == "???":
        return ""
    text = json.dumps(value) if value is None or isinstance(value, bool) else str(value).replace("'", "")
    return f"`{text or '(empty)'}`"


if __name__ == "__main__":
    print(markdown(), end="")
