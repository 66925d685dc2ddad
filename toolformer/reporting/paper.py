"""The paper's figures, to stand beside ours. Data only.

Source: Schick et al., "Toolformer: Language Models Can Teach Themselves to Use Tools", 2023
(arXiv:2302.04761), tables 2 to 9, and the shares of tool use given in the text of section 4.2.
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

PARAMETERS: Mapping[str, float] = {
    "gpt2": 124e6,
    "gpt2-medium": 355e6,
    "gpt2-large": 775e6,
    "gpt2-xl": 1.6e9,
    "gpt-j-6b": 6.7e9,
    "gpt-j-6B": 6.7e9,
}
"""Figure 4's models by the last part of their hub names, with the sizes that the paper gives."""

FIGURE4_TOOLS = ("qa", "calculator", "search")
"""The tools of Figure 4."""

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
    # Table 3
    "lama_squad": {
        "GPT-J": 17.8,
        "GPT-J + CC": 19.2,
        "Toolformer (disabled)": 22.1,
        "Toolformer": 33.8,
        "OPT (66B)": 21.6,
        "GPT-3 (175B)": 26.8,
    },
    "lama_google_re": {
        "GPT-J": 4.9,
        "GPT-J + CC": 5.6,
        "Toolformer (disabled)": 6.3,
        "Toolformer": 11.5,
        "OPT (66B)": 2.9,
        "GPT-3 (175B)": 7.0,
    },
    "lama_trex": {
        "GPT-J": 31.9,
        "GPT-J + CC": 33.2,
        "Toolformer (disabled)": 34.9,
        "Toolformer": 53.5,
        "OPT (66B)": 30.1,
        "GPT-3 (175B)": 39.8,
    },
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
    # Table 5
    "webqs": {
        "GPT-J": 18.5,
        "GPT-J + CC": 18.4,
        "Toolformer (disabled)": 18.9,
        "Toolformer": 26.3,
        "OPT (66B)": 18.6,
        "GPT-3 (175B)": 29.0,
    },
    "nq": {
        "GPT-J": 12.8,
        "GPT-J + CC": 12.2,
        "Toolformer (disabled)": 12.6,
        "Toolformer": 17.7,
        "OPT (66B)": 11.4,
        "GPT-3 (175B)": 22.6,
    },
    "triviaqa": {
        "GPT-J": 43.9,
        "GPT-J + CC": 45.6,
        "Toolformer (disabled)": 46.7,
        "Toolformer": 48.8,
        "OPT (66B)": 45.7,
        "GPT-3 (175B)": 65.9,
    },
    # Table 6
    "mlqa_es": {
        "GPT-J": 15.2,
        "GPT-J + CC": 15.7,
        "Toolformer (disabled)": 19.8,
        "Toolformer": 20.6,
        "OPT (66B)": 0.3,
        "GPT-3 (175B)": 3.4,
    },
    "mlqa_de": {
        "GPT-J": 16.5,
        "GPT-J + CC": 14.9,
        "Toolformer (disabled)": 11.9,
        "Toolformer": 13.5,
        "OPT (66B)": 0.1,
        "GPT-3 (175B)": 1.1,
    },
    "mlqa_hi": {
        "GPT-J": 1.3,
        "GPT-J + CC": 0.5,
        "Toolformer (disabled)": 1.2,
        "Toolformer": 1.4,
        "OPT (66B)": 1.1,
        "GPT-3 (175B)": 0.1,
    },
    "mlqa_vi": {
        "GPT-J": 8.2,
        "GPT-J + CC": 8.3,
        "Toolformer (disabled)": 10.1,
        "Toolformer": 10.6,
        "OPT (66B)": 0.2,
        "GPT-3 (175B)": 1.7,
    },
    "mlqa_zh": {
        "GPT-J": 18.2,
        "GPT-J + CC": 13.7,
        "Toolformer (disabled)": 15.0,
        "Toolformer": 16.8,
        "OPT (66B)": 0.7,
        "GPT-3 (175B)": 17.7,
    },
    "mlqa_ar": {
        "GPT-J": 8.2,
        "GPT-J + CC": 4.6,
        "Toolformer (disabled)": 3.1,
        "Toolformer": 3.7,
        "OPT (66B)": 0.1,
        "GPT-3 (175B)": 0.1,
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

ALL_ENGLISH: Mapping[str, Mapping[str, float]] = {
    "mlqa_all_en_es": {"GPT-J": 24.3, "GPT-3 (175B)": 24.7},
    "mlqa_all_en_de": {"GPT-J": 27.0, "GPT-3 (175B)": 27.2},
    "mlqa_all_en_hi": {"GPT-J": 23.9, "GPT-3 (175B)": 26.1},
    "mlqa_all_en_vi": {"GPT-J": 23.3, "GPT-3 (175B)": 24.9},
    "mlqa_all_en_zh": {"GPT-J": 23.1, "GPT-3 (175B)": 23.6},
    "mlqa_all_en_ar": {"GPT-J": 23.6, "GPT-3 (175B)": 24.0},
}
"""Table 6's rows "All En": the same questions in English."""

TOOL_USE: Mapping[tuple[str, str], float] = {
    ("lama_squad", "qa"): 98.1,
    ("lama_google_re", "qa"): 98.1,
    ("lama_trex", "qa"): 98.1,
    ("webqs", "search"): 99.3,
    ("nq", "search"): 99.3,
    ("triviaqa", "search"): 99.3,
    ("mlqa_hi", "translation"): 7.3,
    ("asdiv", "calculator"): 97.9,
    ("svamp", "calculator"): 97.9,
    ("mawps", "calculator"): 97.9,
    ("templama", "calendar"): 0.2,
    ("dateset", "calendar"): 54.8,
}
"""(task, tool) -> percent of examples in which Toolformer calls it; 97.9, 98.1 and 99.3 are over all three sets of their
tables. For the other languages of MLQA the paper gives a range, 63.8 to 94.9."""

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
