"""Decisions of each rule of positions, way to sample, pre-filter and filter, as `tests/golden/annotation.json` has them.

`UPDATE_GOLDEN=1 pytest tests/annotation/test_golden.py` writes the file again; a change needs a VERSION of `annotate` or
`generate` (`toolformer/jobs/versions.py`).
"""

import datetime
import functools
import json
import os
import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.build import GOLDEN, Recorder
from toolformer.annotation.candidates import Candidate, Filtering, PreFilters, ToolSettings
from toolformer.annotation.merge import Chance, row
from toolformer.annotation.pipeline import Annotator
from toolformer.annotation.results import KeepRules, filtered
from toolformer.annotation.score import PLAIN
from toolformer.annotation.variants import pre_filter
from toolformer.annotation.windows import Window
from toolformer.calls import ApiCall, linearise
from toolformer.data import Document
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Result
from toolformer.tools.prompt_sets import Prompt

CHANGED = "if they should: UPDATE_GOLDEN=1 writes the pins again, and a VERSION is raised"

PIN = GOLDEN.parent / "annotation.json"
DOCUMENTS = [
    Document(f"d{n}", text, date=datetime.date(2021, 8, 14 + n))
    for n, text in enumerate(
        [
            "Today is Saturday, August 14, 2021. She reads 24 pages a day, so 120 pages take 120/24 = 5 days, says Ada.",
            "In 1,536 games he scored 3 x 512 = 1536 points, and Zürich paid $2 = 200 cents for each of the 12 in May.",
        ]
    )
]  # fmt: skip
PROMPT = Prompt(
    'Call the API by writing "[Calendar()]".', (("Today is Friday.", "Today is [Calendar()] Friday."),)
)
CALENDAR = ToolSettings(
    "calendar", "Calendar", PROMPT, start_threshold=0.0, max_positions=4, samples=3, max_call_tokens=12,
    filter_threshold=0.0,
)  # fmt: skip
SAMPLING: dict[str, dict[str, Any]] = {
    "any": {},
    "number": {"places": "number"},
    "equals": {"places": "equals"},
    "name": {"places": "name"},
    "lift": {"rank": "lift"},
    "force_name": {"force_name": True},
    "close": {"close": True, "temperature": 1.3},
    "temperature": {"temperature": 0.5},
    "windows": {"window_tokens": 24, "window_overlap": 6},
}
PRE_FILTERS = {
    "result_ahead": PreFilters(result_ahead=8),
    "new_result": PreFilters(new_result=True),
    "both": PreFilters(result_ahead=16, new_result=True),
}
THRESHOLDS = {"calendar": 0.5}
FILTERS = {
    "paper": KeepRules(THRESHOLDS),
    "plain": KeepRules(THRESHOLDS, Filtering(PLAIN)),
    "leak": KeepRules(THRESHOLDS, Filtering(leak="drop")),
    "chance": KeepRules(THRESHOLDS, chance=Chance({"calendar": 0.5}, seed=3)),
}


@functools.cache
def model() -> LanguageModel:
    return LanguageModel.from_pretrained(str(GOLDEN), "float32", "cpu")


def sampled(case: str) -> dict[str, Any]:
    settings = replace(CALENDAR, **SAMPLING[case])
    tool = Recorder(lambda text: Result(f"Today is Saturday {text}".strip()), "Calendar")
    rows = Annotator(model(), settings, tool, seed=5, floor=0.0).annotate(DOCUMENTS).rows
    names = ("doc_id", "token_position", "position", "sample", "written", "status")
    numbers = ("start_probability", "loss_result", "loss_no_result", "loss_none")
    return {
        "decisions": [[*(row[name] for name in names), as_text(row["call"])] for row in rows],
        "numbers": [row[name] for row in rows for name in numbers],
    }


def as_text(call: Any) -> str | None:
    return linearise(ApiCall.of_row(call)) if call else None


def made_up() -> list[Candidate]:
    """Candidates at random positions, whose inputs and results are words and numbers of their texts, with random losses."""
    chance = random.Random(0)
    candidates = []
    for document in DOCUMENTS:
        encoding = model().encode_text(document.text)
        window = Window(document, encoding, 0, len(encoding.ids))
        words = re.findall(r"[\w,]*\w", document.text)
        for i in chance.sample([n for n, place in enumerate(encoding.positions) if place is not None], 16):
            for sample in range(2):
                call = ApiCall(
                    "Calendar", " ".join(chance.sample(words, 2)), " ".join(chance.sample(words, 2))
                )
                losses = {f"loss_{name}": chance.uniform(0, 3) for name in ("result", "no_result", "none")}
                candidates.append(Candidate(window, "calendar", i, 0.5, sample, "", call, **losses))
    return candidates


def pre_filtered(case: str) -> dict[str, Any]:
    return {"decisions": [one.status for one in pre_filter(made_up(), PRE_FILTERS[case])], "numbers": []}


def kept(case: str) -> dict[str, Any]:
    decisions, leaks = filtered([row(one) for one in made_up()], DOCUMENTS, FILTERS[case])
    return {
        "decisions": [[decision.reason, leaks.get(n, "")] for n, decision in enumerate(decisions)],
        "numbers": [decision.gain for decision in decisions],
    }


CASES: dict[str, tuple[Callable[[str], dict[str, Any]], str]] = {
    **{f"sampling {case}": (sampled, case) for case in SAMPLING},
    **{f"pre-filter {case}": (pre_filtered, case) for case in PRE_FILTERS},
    **{f"filter {case}": (kept, case) for case in FILTERS},
}


@pytest.mark.parametrize("case", CASES)
def test_decisions_are_the_pinned_ones(case: str) -> None:
    make, name = CASES[case]
    now = json.loads(json.dumps(make(name)))
    pins = json.loads(PIN.read_text(encoding="utf-8")) if PIN.exists() else {}
    if os.environ.get("UPDATE_GOLDEN"):
        rounded = [number and round(number, 4) for number in now["numbers"]]
        pins[case] = {**now, "numbers": rounded}
        PIN.write_text(json.dumps(pins, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert now["decisions"] == pins[case]["decisions"], CHANGED
    assert [number for number in now["numbers"] if number is not None] == pytest.approx(
        [number for number in pins[case]["numbers"] if number is not None], rel=1e-3, abs=2e-3
    ), CHANGED
