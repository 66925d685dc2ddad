"""Benchmarks as lm-eval tasks. This module only names them; it imports neither lm-eval nor a model."""

from __future__ import annotations

from pathlib import Path

TASKS_DIR = Path(__file__).parent
"""The folder of the task files, for lm-eval's `--include_path`."""

TASKS = ("dateset", "svamp", "asdiv", "mawps", "heldout_perplexity", "wikitext_perplexity")
GROUPS = {
    "math": ("asdiv", "svamp", "mawps"),
    "temporal": ("dateset",),
    "perplexity": ("heldout_perplexity", "wikitext_perplexity"),
}

ALL_TOOLS = frozenset({"calculator", "calendar", "search", "qa", "translation"})

SWITCHED_OFF: dict[str, frozenset[str]] = {
    "lama_squad": frozenset({"search"}),
    "lama_google_re": frozenset({"search"}),
    "lama_trex": frozenset({"search"}),
    "webqs": frozenset({"qa"}),
    "nq": frozenset({"qa"}),
    "triviaqa": frozenset({"qa"}),
    "heldout_perplexity": ALL_TOOLS,
    "wikitext_perplexity": ALL_TOOLS,
}
"""The tools (configuration keys) a task may not use (paper, section 4.2); a task not named here may use all.

LAMA is made of Wikipedia sentences, and the paper's question answering tool was trained on Natural Questions.
"""


def switched_off(task: str | None) -> frozenset[str]:
    """The configuration keys of the tools that `task` may not use."""
    return SWITCHED_OFF.get(task or "", frozenset())
