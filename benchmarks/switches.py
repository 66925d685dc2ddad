"""The tools that a task may not use, as its file says: `metadata: {switched_off: [search]}`.

Tools go by their configuration keys; one that a run does not have needs no switching off. Imports neither lm-eval nor a
model.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import yaml

from benchmarks import TASKS, TASKS_DIR
from toolformer.errors import UserError

KEY = "switched_off"
NOTHING: frozenset[str] = frozenset()


@functools.cache
def of_task(task: str | None) -> frozenset[str]:
    """What a task of this project switches off (paper, section 4.2); of any other name, nothing.

    LAMA is made of Wikipedia's sentences, and the paper's question answering tool was trained on Natural Questions.
    Texts that are scored (perplexity) never meet a tool.
    """
    if task not in TASKS:
        return NOTHING
    [path] = TASKS_DIR.glob(f"*/{task}.yaml")
    return of_metadata(yaml.load(path.read_text(encoding="utf-8"), _Values).get("metadata"), str(path))


def of_metadata(metadata: Any, place: str) -> frozenset[str]:
    """What the metadata of a task switches off; `place` is its file, for the message.

    Raises:
        UserError: `switched_off` is no list of texts.
    """
    value = metadata.get(KEY) if isinstance(metadata, Mapping) else None
    if value is None:
        return NOTHING
    if not isinstance(value, list) or not all(isinstance(tool, str) for tool in value):
        raise UserError(
            f"{place}: metadata.{KEY} is {value!r}; it must be a list of tools by key, as [search, qa]"
        )
    return frozenset(value)


class _Values(yaml.SafeLoader):
    """YAML without lm-eval's `!function`, which is of no matter here."""


_Values.add_constructor("!function", lambda loader, node: None)
