"""The whole pipeline on the embedded defaults: generate, train twice, evaluate four systems, report.

Every step is a tracked stage, and a step that is already done is not done again: interrupted and started again, the
demo goes on where it was.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from toolformer.cli import compose, run_stage
from toolformer.config import SYSTEMS, validate

log = logging.getLogger(__name__)


def demo(overrides: Sequence[str] = ()) -> None:
    """Runs `experiment=demo`; `overrides` change its configuration as on any stage's command line."""
    started = time.monotonic()
    words = ["experiment=demo", *overrides]
    config = validate(compose("generate", words))
    dataset = run_stage("generate", config)
    trained = {}
    for data in ("plain", "augmented"):
        log.info("demo: training on %s", "C*, the texts with calls" if data == "augmented" else "C, the same texts without")
        trained[data] = run_stage("train", validate(compose("train", [*words, f"dataset={dataset.run_id}", f"data={data}"])))
    for system, label in SYSTEMS.items():
        log.info("demo: evaluating %s", label)
        run = trained["plain" if system == "model_cc" else "augmented"].run_id
        run_stage("evaluate", validate(compose("evaluate", [*words, f"system={system}", f"checkpoint={run}"])))
    run_stage("report", validate(compose("report", words)))
    log.info("demo: done in %.1f minutes", (time.monotonic() - started) / 60)
