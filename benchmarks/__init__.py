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


def lines_file(name: str) -> tuple[str, ...]:
    """The names that a JSON Lines file of a data folder may have."""
    return f"{name}.jsonl.gz", f"{name}.jsonl"


DATA_FILES: dict[str, tuple[tuple[str, ...], ...]] = {
    "lama_squad": (lines_file("lama/squad"),),
    "lama_google_re": (lines_file("lama/google_re"),),
    "lama_trex": (lines_file("lama/trex"),),
    "asdiv": (lines_file("asdiv/asdiv"),),
    "svamp": (lines_file("svamp/svamp"),),
    "mawps": (lines_file("mawps/mawps_full"),),
    "webqs": (lines_file("webquestions/test"),),
    "nq": (lines_file("nq_open/dev"),),
    "triviaqa": (lines_file("triviaqa/unfiltered_dev"),),
    "templama": (lines_file("templama/test"),),
    "wikitext_perplexity": (lines_file("wikitext2/test_raw"),),
    "mlqa_en": (lines_file("mlqa/en"),),
    "xquad_en": (lines_file("xquad/en"),),
    **{f"mlqa_{language}": (lines_file(f"mlqa/{language}"),) for language in MLQA_LANGUAGES},
    **{
        f"mlqa_all_en_{language}": (lines_file("mlqa/en"), lines_file(f"mlqa/{language}"))
        for language in MLQA_LANGUAGES
    },
    **{
        f"xquad_{language}": (lines_file(f"xquad/{language}"), lines_file("xquad/en"))
        for language in MLQA_LANGUAGES
    },
}
"""The files that a task reads from a data folder, each with the names that it may have; other tasks read none."""
