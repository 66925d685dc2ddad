"""The keys of a dozen steps on a made-up model: a key that moves orphans the results of everyone who has them.

`UPDATE_GOLDEN=1 pytest tests/jobs/test_keys.py` writes the pins again.
"""

import json
import os
from pathlib import Path

import pytest

from tests.build import GOLDEN as MODEL
from tests.build import smoke_words
from toolformer.jobs.plan import plan
from toolformer.jobs.versions import ORACLES, VERSIONS

PINS = Path(__file__).parents[1] / "golden" / "keys.json"
CONFIGURATIONS = {
    "smoke": [],
    "explained": ["evaluation.oracles=true", "system=toolformer"],
    "prompted": ["system=prompted", "decoding.max_calls=2", "wording=a", "evaluation.gold_nats=true"],
    "k by tool": ["decoding.k=1", "tool.calendar.k=10", "system=toolformer"],
    "filtered": ["filter.leak=drop", "filter_threshold=0.5", "seed=3", "system=toolformer"],
    "by chance": ["tool.calendar.chance=0.5", "generate.seed=7", "system=toolformer"],
    "held out": [
        "corpus@heldout=share",
        "heldout.limit=null",
        "corpus.limit=null",
        "system=model_cc",
        "data=plain",
    ],
    "adapters": ["trainer.lora_rank=2", "trainer.plain_share=0.25", "data=plain", "system=model_cc"],
}


def planned() -> dict[str, dict[str, str]]:
    """The keys of each configuration's jobs, by stage and system."""
    keys: dict[str, dict[str, str]] = {}
    for name, overrides in CONFIGURATIONS.items():
        jobs = plan("run", [*smoke_words(Path("/none")), f"model={MODEL}", *overrides])
        keys[name] = {f"{job.stage} {job.label}": job.step.key() for job in jobs if job.stage != "report"}
    return keys


def test_no_key_moves() -> None:
    now = {"versions": {**VERSIONS, "oracles": ORACLES}, "keys": planned()}
    if os.environ.get("UPDATE_GOLDEN"):
        PINS.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    pinned = json.loads(PINS.read_text(encoding="utf-8"))
    if now["versions"] != pinned["versions"]:
        pytest.fail(
            "a VERSION was raised; write the file again: UPDATE_GOLDEN=1 pytest tests/jobs/test_keys.py"
        )
    assert now["keys"] == pinned["keys"], "keys moved: raise VERSION, or undo"
