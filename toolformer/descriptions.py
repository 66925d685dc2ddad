"""What a run is called and how it is described on MLflow's pages: command, what was done to which model, and from what.

Markdown, as plain text. Knows no store.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolformer.provenance import masked_words

if TYPE_CHECKING:
    from toolformer.tracking import Run


_NO_MARKUP = str.maketrans("`[]<>", "'()\u2039\u203a")


def model_name(model: str) -> str:
    """What tells a model from others: a folder's own name, anything else as it is."""
    is_path = model.startswith(("/", "~", ".")) or Path(model).expanduser().is_dir()
    return Path(model).name if is_path else model


def command_of(stage: str, words: Sequence[str], *flags: str) -> str:
    """The command line of a stage, without secrets."""
    return shlex.join(["toolformer", stage, *flags, *masked_words(words)])


def describe(command: str, facts: Mapping[str, object], made_from: Sequence[Run | None] = ()) -> str:
    """A run's description: facts (`{"model": "gpt2"}`), the command, links to the runs that it was made from."""
    lines = [f"- {key}: `{_plain(value)}`" for key, value in facts.items() if value not in (None, "")]
    lines += [f"- made from [{_plain(run.name)}](#/runs/{run.run_id})" for run in made_from if run]
    return "\n".join([*lines, *(["", *_block(command)] if command else [])])


def _block(command: str) -> list[str]:
    """A command as it is, between fences that are longer than any in it; nothing in there is markup."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", command)), default=0))
    return [fence, " ".join(command.splitlines()), fence]


def _plain(value: object) -> str:
    """Text that is no markup within Markdown."""
    text = " ".join(str(value).split())
    return text.translate(_NO_MARKUP)
