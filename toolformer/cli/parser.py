"""Parts that commands share: options whose errors are one line, the configuration of their overrides, and a console."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from toolformer.errors import UsageError, near

if TYPE_CHECKING:
    from rich.console import Console

    from toolformer.jobs.config import Config


class Parser(argparse.ArgumentParser):
    """argparse's, whose errors are a `UsageError` that suggests the nearest option, or the key that was meant."""

    _arguments: Sequence[str] = ()
    """Those of a command that takes overrides."""

    def __init__(self, command: str, meaning: str, **options: Any) -> None:
        super().__init__(f"toolformer {command}", description=meaning, **options)

    def error(self, message: str) -> NoReturn:
        unknown = re.search(r"unrecognized arguments: (\S+)", message)
        hint = ""
        if unknown:
            hint = self._key(unknown[1]) or near(unknown[1].partition("=")[0], self._option_string_actions)
        raise UsageError(f"{message}{hint}")

    def _key(self, option: str) -> str:
        """A hint at the keys that `--limit 8` may have meant, as they are written: `evaluation.limit=8`."""
        from toolformer.jobs.config.keys import suggest

        if not self._arguments:
            return ""
        name, sign, value = option.lstrip("-").partition("=")
        position = [*self._arguments, option].index(option) + 1
        if not sign and position < len(self._arguments) and "=" not in self._arguments[position]:
            value = self._arguments[position]
        return suggest(name.replace("-", "_"), value or "...", self.prog.split()[-1])

    def parsed(self, arguments: Sequence[str], example: str) -> argparse.Namespace:
        """The options; the other arguments are `overrides` of the configuration."""
        self._arguments = arguments
        self.add_argument(
            "overrides", nargs="*", default=[], help=f"overrides of the configuration, for example {example}"
        )
        return self.parse_intermixed_args(arguments)


def configured(stage: str, overrides: Sequence[str], checked_as: str = "") -> Config:
    """The valid configuration of a stage with these overrides."""
    from toolformer.jobs.config import compose, validate

    return validate(compose(stage, overrides), checked_as)


def console(stream: TextIO | None = None) -> Console:
    """Where to print a table; without a terminal 160 columns wide."""
    from rich.console import Console

    stream = stream or sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 160, highlight=False)
