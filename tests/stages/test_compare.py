"""Comparing two evaluation runs: what comes out, and what is said of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from benchmarks.paired import compare_scores
from tests.conftest import Refused
from tests.evaluations import words
from tests.reporting.test_pairing import scored, text
from toolformer.cli import main
from toolformer.tracking import Tracker


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Three evaluations: two with samples in common, one with none."""
    root = tmp_path_factory.mktemp("compared")
    tracker = Tracker(None, root)
    better = [scored(n, 100.0 * (n % 3 == 0)) for n in range(30)]
    worse = [scored(n, 100.0 * (n % 6 == 0)) for n in range(5, 40)]
    texts = [text(n, -8.0 - n, 4) for n in range(6)]
    other = [{**row, "log_likelihood": -9.0} for row in texts]
    contents: dict[str, dict[str, list[dict[str, Any]]]] = {
        "model": {"svamp": better, "heldout_perplexity": texts, "asdiv": [scored(1, 0)]},
        "toolformer": {"svamp": worse, "heldout_perplexity": other},
        "model_cc": {"mawps": better},
    }
    ids = []
    for number, (system, content) in enumerate(contents.items()):
        tags = {"system": system, "decoding.k": "10"}
        config = {"system": system, "name": str(number), "evaluation": {"limit": 30 + number}}
        with tracker.run(stage="evaluate", name="e", fingerprint=system, config=config, tags=tags) as run:
            for task, rows in content.items():
                path = root / f"{task}.parquet"
                pandas.DataFrame(rows).to_parquet(path)
                run.artifact(path, "samples")
        ids.append(run.run_id)
    return root, ids


def test_the_command_prints_tables_and_json(
    runs: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, (one, two, _) = runs
    assert main(["compare", one[:8], two, "--json", "--resamples=100", f"paths.root={root}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["first"], found["second"]) == (one, two)
    by_task = {row["task"]: row for row in found["benchmarks"]}
    assert sorted(by_task) == ["heldout_perplexity", "svamp"] and found["only_first"] == ["asdiv"]
    common = ([100.0 * (n % every == 0) for n in range(5, 30)] for every in (3, 6))
    expected, scores = compare_scores(*common, 0, 100), by_task["svamp"]["scores"]
    assert (scores["p_value"], scores["difference"]["low"]) == (expected.p_value, expected.difference.low)
    assert found["settings"] == {"evaluation.limit": ["30", "31"], "system": ["model", "toolformer"]}
    assert by_task["svamp"]["unpaired"] == {"only_first": 5, "only_second": 10, "changed": 0}
    monkeypatch.setenv("TOOLFORMER_DATA_DIR", str(root / "gone"))  # which need not be there any more
    words = [f"paths.root={root}", "name=toolformer"]
    assert main(["compare", "latest:model", "latest:toolformer", *words]) == 0
    shown = capsys.readouterr().out
    assert "McNemar" in shown and "p (Holm)" in shown and "B / A" in shown and "evaluation.limit" in shown
    assert "svamp: 15 samples without a partner: 5 only in A, 10 only in B, 0 asked otherwise" in shown
    assert "asdiv: not compared, B has nothing to pair with it" in shown


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("0", "2"), "have no benchmark in common (they differ in evaluation.limit, system)"),
        (("0", "0"), "are the same run"),
        (("latest:gpt", "0"), "say a run id, latest, or latest: and one of model"),
        (("latest:baseline", "0"), "there is no finished evaluate run with system=baseline"),
        (("abcdef00", "0"), "there is no run abcdef00"),
    ],
)
def test_wrong_runs_are_one_line(
    runs: tuple[Path, list[str]], names: tuple[str, str], words: str, refused: Refused
) -> None:
    root, ids = runs
    chosen = [ids[int(name)] if name.isdigit() else name for name in names]
    assert words in refused("compare", *chosen, f"paths.root={root}")


def test_a_sweep_over_seeds_is_summed_up_and_compared(
    tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = words(
        tmp_path, f"model={tiny_folder}", "benchmarks=[dateset,heldout_perplexity]", "evaluation.limit=6"
    )
    assert main(["evaluate", *given, "system=model", "seed=1"]) == 0, "one of them is done before"
    sweep = ["evaluate", "-m", *given, "system=model,baseline", "seed=0,1"]
    assert main(sweep) == 0
    tracker = Tracker(None, tmp_path)
    (parent,) = (run for run in tracker.all_runs() if "sweep" in run.tags)
    runs = [run for run in tracker.runs("evaluate") if run.tags["system"] == "model"]
    assert len(runs) == 2 == parent.metrics["model/dateset/seeds"]
    for task, figure in (("dateset", "score"), ("heldout_perplexity", "perplexity")):
        name = f"{task}/{figure}"
        mean = sum(run.metrics[name] for run in runs) / 2
        assert parent.metrics[f"model/{name}"] == pytest.approx(mean)
        assert parent.metrics[f"model/{task}/ci_low"] <= mean <= parent.metrics[f"model/{task}/ci_high"]
    assert main(sweep) == 0, "resumed"
    assert tracker.get(parent.run_id).metrics == parent.metrics
    capsys.readouterr()
    names = [f"{parent.run_id[:8]}:{system}" for system in ("model", "baseline")]
    assert main(["compare", *names, "--json", f"paths.root={tmp_path}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["first"].split(",")) == 2 and "2 seeds" in found["first_name"]
    assert [row["seeds"] for row in found["benchmarks"]] == [[2, 2], [2, 2]]
    assert found["benchmarks"][0]["scores"]["difference"]["value"] == 0, "one and the same model"
    listed = ",".join(run.run_id for run in runs)
    assert main(["compare", listed, names[1], f"paths.root={tmp_path}"]) == 0
    assert "2 seeds" in " ".join(capsys.readouterr().out.split())
    assert main(["compare", parent.run_id, names[1], f"paths.root={tmp_path}"]) == 2
    assert (
        f"differ in more than their seed (system); name one system of it, as {parent.run_id}:model"
        in capsys.readouterr().err
    )
