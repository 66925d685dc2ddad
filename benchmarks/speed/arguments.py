"""The words `key=value` that a script of this folder is given, and how it ends where they are wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence

from toolformer.errors import UserError


def given(
    arguments: Sequence[str], defaults: Mapping[str, str], lists: Collection[str] = ()
) -> dict[str, str]:
    """The defaults, with what the words say in their places; of the keys in `lists` several, parted by commas.

    Raises:
        UserError: a word of no key, or no number from 1 up where the default is one.
    """
    options = dict(defaults)
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if key not in defaults or not equals:
            known = ", ".join(f"{name}=..." for name in defaults)
            raise UserError(f"unknown argument {argument!r}; known are {known}")
        parts = value.split(",") if key in lists else [value]
        if defaults[key].isdecimal() and not all(part.isdecimal() and int(part) for part in parts):
            raise UserError(f"{key} is {value!r}; it must be a whole number from 1 up")
        options[key] = value
    return options


def run(script: str, main: Callable[[Sequence[str]], None]) -> None:
    """A script with the words of the command line; wrong ones are one line and exit code 2."""
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"benchmarks.speed.{script}: {error}", file=sys.stderr)
        sys.exit(2)
