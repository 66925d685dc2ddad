"""Benchmarks as lm-eval tasks. This module only names them; it imports neither lm-eval nor a model."""

from __future__ import annotations

from pathlib import Path

TASKS_DIR = Path(__file__).parent
"""The folder of the task files, for lm-eval's `--include_path`."""

DATA_FOLDERS = frozenset(
    {"asdiv", "lama", "mawps", "MLQA_V1", "mlqa", "nq_open", "svamp", "templama", "triviaqa", "webquestions"}
    | {"wikitext2", "wikitext103", "xquad"}
)
"""The folders in a data folder that loaders read."""

MLQA_LANGUAGES = ("es", "de", "hi", "vi", "zh", "ar")
"""The columns of Table 6."""

GROUPS: dict[str, tuple[str, ...]] = {
    "lama": ("lama_squad", "lama_google_re", "lama_trex"),
    "math": ("asdiv", "svamp", "mawps"),
    "qa": ("webqs", "nq", "triviaqa"),
    "mlqa": tuple(f"mlqa_{language}" for language in MLQA_LANGUAGES),
    "mlqa_all_en": tuple(f"mlqa_all_en_{language}" for language in MLQA_LANGUAGES),
    "xquad": tuple(f"xquad_{language}" for language in MLQA_LANGUAGES),
    "temporal": ("templama", "dateset"),
    "perplexity": ("heldout_perplexity", "wikitext_perplexity"),
}
GROUPS["paper"] = (
    *GROUPS["lama"],
    *GROUPS["math"],
    *GROUPS["qa"],
    *GROUPS["mlqa"],
    *GROUPS["mlqa_all_en"],
    "mlqa_en",
    *GROUPS["temporal"],
    *GROUPS["perplexity"],
)
"""Groups by name; `paper` is tables 3 to 8, `mlqa_all_en` the rows "All En" of Table 6, XQuAD is not the paper's."""

TASKS = (*GROUPS["paper"], *GROUPS["xquad"], "xquad_en")
"""Every task. `mlqa_en` and `xquad_en` ask all questions in English."""
