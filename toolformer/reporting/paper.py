"""The paper's published figures, for comparison. Data only.

Source: Schick et al., "Toolformer: Language Models Can Teach Themselves to Use Tools", 2023
(arXiv:2302.04761), tables 2 to 9, and the shares of tool use given in the text of section 4.2.
M is GPT-J with 6.7B parameters.
"""

from collections.abc import Mapping

from toolformer.benchmarks import GROUPS

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

GPT_J_PARAMETERS = 6.7e9

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

_FIGURES: Mapping[str, tuple[float | None, ...]] = {
    # Table 3
    "lama_squad": (17.8, 19.2, 22.1, 33.8, 21.6, 26.8),
    "lama_google_re": (4.9, 5.6, 6.3, 11.5, 2.9, 7.0),
    "lama_trex": (31.9, 33.2, 34.9, 53.5, 30.1, 39.8),
    # Table 4
    "asdiv": (7.5, 9.6, 14.8, 40.4, 6.0, 14.0),
    "svamp": (5.2, 5.0, 6.3, 29.4, 4.9, 10.0),
    "mawps": (9.9, 9.3, 15.0, 44.0, 7.9, 19.8),
    # Table 5
    "webqs": (18.5, 18.4, 18.9, 26.3, 18.6, 29.0),
    "nq": (12.8, 12.2, 12.6, 17.7, 11.4, 22.6),
    "triviaqa": (43.9, 45.6, 46.7, 48.8, 45.7, 65.9),
    # Table 6
    "mlqa_es": (15.2, 15.7, 19.8, 20.6, 0.3, 3.4),
    "mlqa_de": (16.5, 14.9, 11.9, 13.5, 0.1, 1.1),
    "mlqa_hi": (1.3, 0.5, 1.2, 1.4, 1.1, 0.1),
    "mlqa_vi": (8.2, 8.3, 10.1, 10.6, 0.2, 1.7),
    "mlqa_zh": (18.2, 13.7, 15.0, 16.8, 0.7, 17.7),
    "mlqa_ar": (8.2, 4.6, 3.1, 3.7, 0.1, 0.1),
    # The same questions in English: Table 6's rows "All En"
    "mlqa_all_en_es": (24.3, None, None, None, None, 24.7),
    "mlqa_all_en_de": (27.0, None, None, None, None, 27.2),
    "mlqa_all_en_hi": (23.9, None, None, None, None, 26.1),
    "mlqa_all_en_vi": (23.3, None, None, None, None, 24.9),
    "mlqa_all_en_zh": (23.1, None, None, None, None, 23.6),
    "mlqa_all_en_ar": (23.6, None, None, None, None, 24.0),
    # Table 7
    "templama": (13.7, 12.9, 12.7, 16.3, 14.5, 15.5),
    "dateset": (3.9, 2.9, 5.9, 27.3, 1.3, 0.8),
    # Table 8, perplexity; the paper's second column is CCNet
    "wikitext_perplexity": (9.9, 10.3, 10.3),
    "heldout_perplexity": (10.6, 10.5, 10.5),
}
"""Task -> figures of the four systems and of the larger models, in their order above."""

SCORES: Mapping[str, Mapping[str, float]] = {
    task: {
        name: figure
        for name, figure in zip((*SYSTEMS.values(), *LARGER), figures, strict=False)
        if figure is not None
    }
    for task, figures in _FIGURES.items()
}
"""Task -> the paper's name of a system -> its score in percent, or its perplexity."""

TOOL_USE: Mapping[str, tuple[str, float]] = {
    **dict.fromkeys(GROUPS["lama"], ("qa", 98.1)),
    **dict.fromkeys(GROUPS["math"], ("calculator", 97.9)),
    **dict.fromkeys(GROUPS["qa"], ("search", 99.3)),
    "mlqa_hi": ("translation", 7.3),
    "templama": ("calendar", 0.2),
    "dateset": ("calendar", 54.8),
}
"""Task -> the tool that Toolformer calls, and percent of examples in which it does; 97.9, 98.1 and 99.3 are over all three
sets of their tables. For the other languages of MLQA the paper gives a range, 63.8 to 94.9."""

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
