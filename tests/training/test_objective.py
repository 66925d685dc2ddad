"""An objective is one object: its loss is minimised, and its metrics are logged."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.build import ANNOTATED, SETTINGS, run
from toolformer.training.objective import LanguageModelling


class Half(LanguageModelling):
    """Half the loss of all tokens."""

    def loss(self, *arguments: Any, **options: Any) -> Any:
        return super().loss(*arguments, **options) / 2

    def logs(self, reduce: Any) -> dict[str, float]:
        return {**super().logs(reduce), "share": 0.5}


def test_another_objective_is_minimised_and_logged(gpt2_folder: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_steps=1)
    logs = [
        run(gpt2_folder, tmp_path / kind.__name__, settings, texts=ANNOTATED, objective=kind)[1]
        for kind in (LanguageModelling, Half)
    ]
    assert logs[1].of("loss")[1] == pytest.approx(logs[0].of("loss")[1] / 2)
    assert logs[1].of("grad_norm")[1] == pytest.approx(logs[0].of("grad_norm")[1] / 2, rel=1e-4)
    assert logs[1].of("share") == {1: 0.5} and logs[1].of("perplexity_calls") == logs[0].of(
        "perplexity_calls"
    )
