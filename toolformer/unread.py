"""What each stage does not read of the configuration that serves all of them. Knows neither a configuration nor a run."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from toolformer.tools.keys import ANNOTATING

RULES = ("propose", "score", "filter", "generate", "prompts")
"""How a corpus is annotated; of a tool, `keys.ANNOTATING`."""
_ASKING = (
    *("run", "index", "benchmarks", "evaluation", "decoding", "system", "endpoint", "checkpoint"),
    *("paths.data_dir", "paths.tasks_dir"),
)
UNREAD: Mapping[str, tuple[str, ...]] = {
    # What a tool is at inference is part of what tells annotations apart.
    "generate": (*_ASKING, "dataset", "data", "trainer", "heldout"),
    "train": (*_ASKING, "corpus", *RULES, "engine", "tool"),
    "evaluate": (
        *("run", "index", "corpus", *RULES, "engine", "dataset", "data", "trainer"),
        *(f"tool.*.{key}" for key in ANNOTATING),
    ),
}
"""By stage, keys that decide nothing in it, with all below them; `*` stands for any one part of a key."""
OF_TOOLS = ("tools", "tool", "tool_sources")
"""Keys that an evaluation reads only where tools are called."""


def is_below(key: str, above: tuple[str, ...]) -> bool:
    """Whether a key, written with dots, is one of these or below one; `*` as in `UNREAD`."""
    return bool(_pattern(above).match(key))


@functools.cache
def _pattern(keys: tuple[str, ...]) -> re.Pattern[str]:
    any_of = "|".join(re.escape(one).replace(r"\*", r"[^.]+") for one in keys)
    return re.compile(rf"(?:{any_of})(?:\.|\Z)")


def without(config: Mapping[str, Any], left_out: tuple[str, ...], above: str = "") -> dict[str, Any]:
    """A configuration without these keys."""
    return {
        key: without(value, left_out, f"{above}{key}.") if isinstance(value, Mapping) else value
        for key, value in config.items()
        if not is_below(f"{above}{key}", left_out)
    }
