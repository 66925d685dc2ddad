"""Benchmarks as lm-eval tasks. This module only names them; it imports neither lm-eval nor a model."""

from pathlib import Path

import yaml

TASKS_DIR = Path(__file__).parent
"""The folder of the task files, for lm-eval's `--include_path`."""

MLQA_LANGUAGES = ("es", "de", "hi", "vi", "zh", "ar")
"""The columns of Table 6."""

_GROUPS = (
    "lama",
    "math",
    "qa",
    "mlqa",
    "mlqa_all_en",
    "xquad",
    "temporal",
    "perplexity",
    "paper",
)
GROUPS: dict[str, tuple[str, ...]] = {
    name: tuple(yaml.safe_load((TASKS_DIR / f"{name}.yaml").read_text(encoding="utf-8"))["task"])
    for name in _GROUPS
}
"""Groups by name; `paper` is Tables 3 to 8, `mlqa_all_en` the rows "All En" of Table 6; XQuAD is not in the paper."""

TASKS = (*GROUPS["paper"], "arithmetic", *GROUPS["xquad"], "xquad_en")
"""Every task. In `mlqa_en` and `xquad_en` all questions are in English. Not in the paper: arithmetic and XQuAD."""

PAPER = "paper"
WORDINGS = (PAPER, *"abcd")
"""The prompts of a benchmark: the paper's, or paraphrases (`wordings.TEMPLATES`)."""
