"""The paper's figures, to stand beside ours. Data only.

Source: Schick et al., "Toolformer: Language Models Can Teach Themselves to Use Tools", 2023
(arXiv:2302.04761), tables 2, 4, 7, 8 and 9, and the shares of tool use given in the text of section 4.2.
M is GPT-J with 6.7B parameters.
"""

from __future__ import annotations

from collections.abc import Mapping

CITATION = "Schick et al., 2023, arXiv:2302.04761"
MODEL = "GPT-J (6.7B)"

SYSTEMS: Mapping[str, str] = {
    "model": "GPT-J",
    "model_cc": "GPT-J + CC",
    "toolformer_disabled": "Toolformer (disabled)",
    "toolformer": "Toolformer",
}
"""Our key of a system -> the paper's name for it."""

LARGER = ("OPT (66B)", "GPT-3 (175B)")
"""The larger models that the paper compares with."""

TOOLS: Mapping[str, str] = {
    "qa": "Question Answering",
    "search": "Wikipedia Search",
    "calculator": "Calculator",
    "calendar": "Calendar",
    "translation": "Machine Translation",
}
"""Our key of a tool -> its row in Table 2, in the paper's order."""

THRESHOLDS = (0.5, 1.0, 2.0)
"""τ_f of Table 2's columns."""

EXAMPLES_KEPT: Mapping[str, tuple[int, int, int]] = {
    "qa": (51_987, 18_526, 5_135),
    "search": (207_241, 60_974, 13_944),
    "calculator": (3_680, 994, 138),
    "calendar": (61_811, 20_587, 3_007),
    "translation": (3_156, 1_034, 229),
}
"""Table 2: examples with calls in C*, by τ_f."""

SCORES: Mapping[str, Mapping[str, float]] = {
    # Table 4
    "asdiv": {
        "GPT-J": 7.5,
        "GPT-J + CC": 9.6,
        "Toolformer (disabled)": 14.8,
        "Toolformer": 40.4,
        "OPT (66B)": 6.0,
        "GPT-3 (175B)": 14.0,
    },
    "svamp": {
        "GPT-J": 5.2,
        "GPT-J + CC": 5.0,
        "Toolformer (disabled)": 6.3,
        "Toolformer": 29.4,
        "OPT (66B)": 4.9,
        "GPT-3 (175B)": 10.0,
    },
    "mawps": {
        "GPT-J": 9.9,
        "GPT-J + CC": 9.3,
        "Toolformer (disabled)": 15.0,
        "Toolformer": 44.0,
        "OPT (66B)": 7.9,
        "GPT-3 (175B)": 19.8,
    },
    # Table 7
    "templama": {
        "GPT-J": 13.7,
        "GPT-J + CC": 12.9,
        "Toolformer (disabled)": 12.7,
        "Toolformer": 16.3,
        "OPT (66B)": 14.5,
        "GPT-3 (175B)": 15.5,
    },
    "dateset": {
        "GPT-J": 3.9,
        "GPT-J + CC": 2.9,
        "Toolformer (disabled)": 5.9,
        "Toolformer": 27.3,
        "OPT (66B)": 1.3,
        "GPT-3 (175B)": 0.8,
    },
    # Table 8 (perplexity); the paper's second column is CCNet
    "wikitext_perplexity": {"GPT-J": 9.9, "GPT-J + CC": 10.3, "Toolformer (disabled)": 10.3},
    "heldout_perplexity": {"GPT-J": 10.6, "GPT-J + CC": 10.5, "Toolformer (disabled)": 10.5},
}
"""Task -> the paper's name of a system -> its score in percent, or its perplexity."""

TOOL_USE: Mapping[tuple[str, str], float] = {
    ("asdiv", "calculator"): 97.9,
    ("svamp", "calculator"): 97.9,
    ("mawps", "calculator"): 97.9,
    ("templama", "calendar"): 0.2,
    ("dateset", "calendar"): 54.8,
}
"""(task, tool) -> percent of examples in which Toolformer calls it; 97.9 is over all three math sets."""

KS = (0, 1, 3, 10)
"""The values of k in Table 9."""

BY_K: Mapping[str, Mapping[int, tuple[float | None, ...]]] = {
    "lama_trex": {
        0: (34.9, None, 34.9, 0.0),
        1: (47.8, 53.0, 44.3, 40.3),
        3: (52.9, 58.0, 29.0, 82.8),
        10: (53.5, 54.0, 22.5, 98.1),
    },
    "webqs": {
        0: (18.9, None, 18.9, 0.0),
        1: (19.3, 17.1, 19.9, 8.5),
        3: (26.3, 26.5, 6.6, 99.3),
        10: (26.3, 26.4, None, 100.0),
    },
}
"""Table 9: task -> k -> score over all examples, those with a call, those without, and percent with a call."""
