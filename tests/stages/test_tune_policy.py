"""`toolformer tune-policy` with a tiny model: draws, curves, and the stored policy asked for by name."""

import csv
import json
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.paired import mcnemar
from benchmarks.policy_curve import Point
from benchmarks.suite import load

from tests.conftest import Capture, Log, Patch, Refused, wait_for
from tests.processes import config, save_calling_model, trained, words
from toolformer import Toolformer
from toolformer.cli import main
from toolformer.stages import tune_policy
from toolformer.stages.evaluate import model_folder
from toolformer.stages.launch import run_stage
from toolformer.stages.stored_policy import StoredPolicy
from toolformer.stages.tune_policy import Tuned, content
from toolformer.tracking import Tracker

MORE = ["system=toolformer", "tools=[calendar]", "decoding.max_call_tokens=8", "lm.dtype=float32"]


def test_a_policy_is_chosen_stored_and_asked_for_by_name(
    tmp_path: Path, refused: Refused, capsys: Capture
) -> None:
    runs = Tracker(None, tmp_path)
    save_calling_model(tmp_path / "taught" / "model", "yes")
    train = runs.get(trained(tmp_path, tmp_path / "taught" / "model"))
    folder = model_folder(runs, train)
    by_name = [*MORE, "decoding.policy=tuned"]
    assert "has no call_policy.json" in refused("evaluate", *words(tmp_path, *by_name))
    assert main(["tune-policy", "--k", "3", *words(tmp_path, *MORE, "evaluation.limit=8")]) == 0
    shown = capsys.readouterr().out
    assert "tuned" in shown and "tokens" in shown and "Holm" in shown
    (run,) = runs.runs("tune")
    names = ("development", "test")
    draws = [json.loads(runs.artifact_path(run, f"{name}.json").read_text()) for name in names]
    assert [len(draw["dateset"]) for draw in draws] == [8, 8]
    assert not set(draws[0]["dateset"]) & set(draws[1]["dateset"])
    dateset = load(["dateset"], {"seed": 0}).tasks["tasks"]["dateset"]
    asked = {str(doc["id"]): doc["question"] for doc in dateset.dataset[dateset.config.test_split]}
    questions = [{asked[name] for name in draw["dateset"]} for draw in draws]
    assert not questions[0] & questions[1], "one question on two days"
    stored = json.loads((folder / "call_policy.json").read_text())
    assert stored["run"] == run.run_id and stored["policy"] == run.tags["policy"]
    assert f" = {stored['value']:.3g} " in shown, "what one benchmark chooses for itself is the choice of all"
    assert run.tags["lineage.train_run_id"] == train.run_id

    # What the traced decode says is what separate evaluations of the test draw measure.
    test = f"evaluation.samples={runs.artifact_path(run, 'test.json')}"
    with runs.artifact_path(run, "curves.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["draw"], row["policy"]) == ("test", "topk")]
    assert [row["value"] for row in rows] == ["0.0", "1.0", "2.0", "3.0"]
    for k in (0, 3):
        metrics = run_stage("evaluate", config(tmp_path, *MORE, test, f"decoding.k={k}")).metrics
        assert float(rows[k]["score"]) == metrics["dateset/score"]
        assert float(rows[k]["call_share"]) == metrics["dateset/call_share"]
        written = metrics["dateset/tokens_per_second"] * metrics["dateset/seconds"] / metrics["dateset/n"]
        assert float(rows[k]["tokens"]) == pytest.approx(written) and rows[k]["p_holm"] == rows[k]["p_value"]
    assert metrics["dateset/call_share"] > 0

    same = f"evaluation.samples={runs.artifact_path(run, 'development.json')}"
    run_stage("evaluate", config(tmp_path, *by_name, same))
    assert "dateset: the policy was chosen on 8 of these 8 examples" in capsys.readouterr().err

    StoredPolicy("bias", 2.5, run.run_id, {}).store(folder)
    alike = [
        run_stage("evaluate", config(tmp_path, *MORE, test, *policy)).run_id
        for policy in (["decoding.policy=tuned"], ["decoding.policy=bias", "decoding.bias=2.5"])
    ]
    assert alike[0] == alike[1] and runs.get(alike[0]).tags["decoding.k"] == "bias 2.5"
    root = [f"paths.root={tmp_path}", "name=tiny", *by_name]
    for toolformer in (Toolformer.from_config("latest", root), Toolformer.from_pretrained(folder, root)):
        assert (toolformer.decoder.policy, toolformer.decoder.bias) == ("bias", 2.5)
    more = ["tools=[calculator,calendar]", "evaluation.limit=8"]
    assert main(["tune-policy", "--by-tool", "--policy", "bias", *words(tmp_path, *MORE, *more)]) == 0
    (alone,) = (one for one in runs.runs("tune") if one.run_id != run.run_id)
    with runs.artifact_path(alone, "curves.csv").open() as file:
        assert {row["policy"] for row in csv.DictReader(file) if row["value"] != "0.0"} == {"bias"}
    StoredPolicy("topk", 1, run.run_id, {}, {"calendar": 3}).store(folder)
    toolformer = Toolformer.from_config("latest", root)
    assert (toolformer.decoder.k, toolformer.decoder.by_tool) == (1, {"calendar": 3})
    (folder / "call_policy.json").write_text("{}")
    assert "call_policy.json cannot be read" in refused("complete", "On day 3 we", *root)


def test_the_same_choice_twice_at_once_is_made_once(tmp_path: Path, caplog: Log, monkeypatch: Patch) -> None:
    caplog.set_level("INFO")
    save_calling_model(tmp_path / "taught" / "model", "yes")
    trained(tmp_path, tmp_path / "taught" / "model")
    given, original = config(tmp_path, *MORE, "evaluation.limit=4"), tune_policy._choose
    second: list[Future[Any]] = []

    def at_work(*arguments: Any) -> Any:
        assert not second, "the second command does not do it again"
        second.append(pool.submit(tune_policy.tune_policy, given, {"topk": 2}))
        wait_for(lambda: "another process" in caplog.text or second[0].done(), 120)
        return original(*arguments)

    monkeypatch.setattr(tune_policy, "_choose", at_work)
    with ThreadPoolExecutor(1) as pool:
        first = tune_policy.tune_policy(given, {"topk": 2})
        assert first and second[0].result() is None
    assert [run.run_id for run in Tracker(None, tmp_path).runs("tune")] == [first.run_id]
    assert f"run {first.run_id[:8]}, given at the same time, has chosen and stored a policy" in caplog.text


def test_the_table_has_the_corrected_p_beside_the_raw_one() -> None:
    best = Point(
        "topk", 1.0, {}, 40, 50.0, 25.0, 20, helped=12, harmed=2, needed=12, tokens=8.0, p_holm=0.0777
    )
    own = replace(best, policy="threshold", value=0.25, by_tool={"qa": 0.5}, helped=13)
    curves = {("dateset", "test", "topk"): [best]}
    (table,) = content(Tuned("run", "topk", 1.0, {}, curves, {"dateset": best}, {"dateset": own})).tables
    shown = [[cell.text for cell in row] for row in table.rows[-2:]]
    assert [row[1] for row in shown] == ["tuned", "threshold = 0.25, qa 0.5"]
    assert [row[-2:] for row in shown] == [[f"{mcnemar(2, won):.3f}", "0.078"] for won in (12, 13)]
