"""What keys mean: `toolformer STAGE --help`, and `toolformer help KEY`."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from toolformer.credentials import printable
from toolformer.errors import UserError, near
from toolformer.stages.config import CONF, compose
from toolformer.stages.config.keys import CHANGED_FIRST, EVERY, Key, keys, keys_of_tool, sections

if TYPE_CHECKING:
    from omegaconf import DictConfig

_COLUMN = 36


def main(arguments: list[str]) -> int:
    """Prints what a key, a group of keys or a command means; returns the exit code."""
    from toolformer.cli import COMMANDS, STAGES, main

    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: toolformer help KEY, GROUP or COMMAND\n")
        return main([])
    name = arguments[0].partition("=")[0]
    if name in {*STAGES, *COMMANDS} - {"help"}:
        return main([name, "--help"])
    ours, paper = compose("generate", []), compose("generate", ["setting=paper"])
    every = list(keys(ours, paper))
    every += (key for tool in ours.tool for key in keys_of_tool(str(tool), ours, paper))
    chosen = [key for key in every if key.name == name or key.name.startswith(f"{name}.")]
    options = _options().get(name, [])
    if not chosen and not options:
        known = [*(key.name for key in every), *_options(), *STAGES, *COMMANDS]
        raise UserError(f"help: there is no key, group or command {name!r}{near(name, known)}")
    if options:
        print(f"{name}={'|'.join(options)} chooses a file of conf/{name}/")
    for line in _lines(chosen):
        print(line)
    if len(chosen) == 1:
        (key,) = chosen
        default, paper_value = (value or "must be given" for value in key.values)
        print(f"  read by: {', '.join(key.readers)}; with setting=paper: {paper_value}")
    return 0


def of_stage(stage: str, config: DictConfig) -> str:
    """The keys of a stage with their values in `config`: the most used ones, groups of files, all the others."""
    every = {key.name: key for key in keys(config)}
    first = [every.pop(name) for name in CHANGED_FIRST[stage]]
    parts = ["the most used keys, with their defaults:", *_lines(first), ""]
    parts += ["groups of keys (group=option):"]
    parts += [f"  {name}: {', '.join(options)}" for name, options in _options().items()]
    for section in (stage, *(other for other in sections() if other != stage), EVERY):
        rest = [key for key in every.values() if key.section == section and {stage, EVERY} & {*key.readers}]
        if rest:
            title = f"other keys of {section}:" if section != EVERY else "keys of every stage:"
            parts += ["", title, *_lines(rest)]
    return "\n".join([*parts, "", "about one key: toolformer help KEY; all as YAML: --cfg job"])


def _options() -> dict[str, list[str]]:
    """The groups of configuration files, each with its options."""
    options: dict[str, list[str]] = {}
    for path in sorted(CONF.glob("*/**/*.yaml")):
        options.setdefault(str(path.parent.relative_to(CONF)), []).append(path.stem)
    return options


def _lines(chosen: Iterable[Key]) -> Iterator[str]:
    """`  key=value   meaning`, with the meanings in a second column."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    for key in chosen:
        head = printable(f"  {key.name}={key.values[0]}")
        text = textwrap.wrap(key.meaning, max(width - _COLUMN, 30))
        if len(head) < _COLUMN - 1 and text:
            head = f"{head.ljust(_COLUMN)}{text.pop(0)}"
        yield head
        yield from (" " * _COLUMN + line for line in text)
