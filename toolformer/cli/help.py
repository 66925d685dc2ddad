"""Meaning of keys: `toolformer STAGE --help`, and `toolformer help KEY`."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from toolformer.credentials import printable
from toolformer.errors import UserError, near
from toolformer.jobs.config import CONF, compose
from toolformer.jobs.config.keys import EVERY, Key, all_keys, sections
from toolformer.step import STAGES

if TYPE_CHECKING:
    from omegaconf import DictConfig

_COLUMN = 36


def main(arguments: list[str]) -> int:
    """Prints what a key, a group of keys or a command means; returns the exit code."""
    from toolformer.cli import COMMANDS, main

    if not arguments or {"-h", "--help"} & {*arguments}:
        print("usage: toolformer help KEY, GROUP or COMMAND\n")
        return main([])
    if len(arguments) > 1:
        raise UserError(f"help: it takes one key, group or command, and {arguments[1]!r} is a second one")
    name = arguments[0].partition("=")[0]
    if name in {*STAGES, *COMMANDS} - {"help"}:
        return main([name, "--help"])
    ours, paper = compose("generate", []), compose("generate", ["setting=paper"])
    keys = [*all_keys()]
    keys += [key.of_tool(str(tool)) for tool in ours.tool for key in keys if "NAME" in key.name]
    chosen = [key for key in keys if key.name == name or key.name.startswith(f"{name}.")]
    options = _options().get(name, [])
    if not chosen and not options:
        known = [*(key.name for key in keys), *_options(), *STAGES, *COMMANDS]
        raise UserError(f"help: there is no key, group or command {name!r}{near(name, known)}")
    if options:
        print(f"{name}={'|'.join(options)} chooses a file of conf/{name}/")
    for line in _lines(chosen, ours):
        print(line)
    if len(chosen) == 1:
        (key,) = chosen
        print(
            f"  read by: {', '.join(key.readers)}; with setting=paper: {key.value(paper) or 'must be given'}"
        )
    return 0


def stage_help(stage: str, config: DictConfig) -> str:
    """The keys of a stage with their values in `config`, and the groups of configuration files."""
    groups = [f"  {name}: {', '.join(options)}" for name, options in _options().items()]
    parts = [
        f"usage: toolformer {stage} [key=value ...]: {STAGES[stage]}",
        "",
        "groups of keys (group=option):",
        *groups,
    ]
    for section in (stage, *(other for other in sections() if other != stage), EVERY):
        keys = [key for key in all_keys() if key.section == section and {stage, EVERY} & {*key.readers}]
        if keys:
            title = f"keys of {section}:" if section != EVERY else "keys of every stage:"
            parts += ["", title, *_lines(keys, config)]
    return "\n".join(
        [
            *parts,
            "",
            "about one key: toolformer help KEY; all as YAML: --cfg job; what is done and what is to do: --plan",
        ]
    )


def run_help(config: DictConfig) -> str:
    """The experiments and the options."""
    from toolformer.cli import COMMANDS

    return "\n".join(
        [
            f"usage: toolformer run experiment=NAME [key=value ...]: {COMMANDS['run']}",
            "",
            f"experiments: {', '.join(_options()['experiment'])}",
            "--plan : only print what is done and what is to do",
            "--json : the same as JSON",
            "The same command resumes where it stopped; -m repeats it for each value of key=a,b,c.",
        ]
    )


def _options() -> dict[str, list[str]]:
    """The groups of configuration files, each with its options."""
    options: dict[str, list[str]] = {}
    for path in sorted(CONF.glob("*/**/*.yaml")):
        options.setdefault(str(path.parent.relative_to(CONF)), []).append(path.stem)
    return options


def _lines(chosen: Iterable[Key], config: DictConfig) -> Iterator[str]:
    """`  key=value   meaning`, with the meanings in a second column."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    for key in chosen:
        head = printable(f"  {key.name}={key.value(config)}")
        text = textwrap.wrap(key.meaning, max(width - _COLUMN, 30))
        if len(head) < _COLUMN - 1 and text:
            head = f"{head.ljust(_COLUMN)}{text.pop(0)}"
        yield head
        yield from (" " * _COLUMN + line for line in text)
