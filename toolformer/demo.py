"""The whole pipeline on the embedded defaults: generate, train twice, evaluate four systems, report.

Every step is a tracked stage, and a step that is already done is not done again: interrupted and started again, the
demo goes on where it was.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from toolformer.config import PAPER_SYSTEMS, SYSTEMS, Config, compose, validate
from toolformer.evaluate import evaluate
from toolformer.generate import generate
from toolformer.report import report
from toolformer.train import train

log = logging.getLogger(__name__)


def demo(overrides: Sequence[str] = ()) -> None:
    """Runs `experiment=demo`; `overrides` change its configuration as on any stage's command line."""
    started = time.monotonic()

    def config(stage: str, *more: str) -> Config:
        return validate(compose(stage, ["experiment=demo", *overrides, *more]))

    dataset = generate(config("generate"))
    trained = {}
    for data in ("plain", "augmented"):
        log.info(
            "demo: training on %s",
            "C*, the texts with calls" if data == "augmented" else "C, the same texts without",
        )
        trained[data] = train(config("train", f"dataset={dataset.run_id}", f"data={data}"))
    for system in PAPER_SYSTEMS:
        log.info("demo: evaluating %s", SYSTEMS[system])
        run = trained["plain" if system == "model_cc" else "augmented"].run_id
        evaluate(config("evaluate", f"system={system}", f"checkpoint={run}"))
    report(config("report"))
    log.info("demo: done in %.1f minutes", (time.monotonic() - started) / 60)
