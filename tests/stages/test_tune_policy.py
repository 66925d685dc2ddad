"""`toolformer tune-policy` with a tiny model: draws, curves, and the stored policy asked for by name."""

import csv
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Capture, Refused
from tests.processes import config, trained, words
from toolformer import Toolformer
from toolformer.cli import main
from toolformer.evaluation.policy_curve import Point
from toolformer.evaluation.suite import load
from toolformer.results import Results, Run
from toolformer.stages.launch import run_stage
from toolformer.stages.stored_policy import STORED, StoredPolicy
from toolformer.stages.train import model_folder
from toolformer.stages.tune_policy import Tuned, content, tune_policy
from toolformer.statistics.paired import mcnemar

MORE = ["system=toolformer", "tools=[calendar]", "decoding.max_call_tokens=8", "lm.dtype=float32"]
BY_NAME = [*MORE, "decoding.policy=tuned"]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, answering_model: Path) -> Path:
    """A folder of runs in which a policy was chosen, with what the command printed."""
    root = tmp_path_factory.mktemp("tuned")
    trained(root, answering_model)
    with (root / "shown.txt").open("w") as file, redirect_stdout(file):
        assert main(["tune-policy", "--k", "3", *words(root, *MORE, "evaluation.limit=8")]) == 0
    return root


@pytest.fixture
def root(tuned: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tuned, tmp_path / "runs"))


def choice(root: Path) -> Run:
    return Results(root).runs("tune")[-1]


def stored_with(root: Path) -> Path:
    """The folder of the model."""
    return model_folder(Results(root).runs("train")[0])


def curves(run: Run) -> list[dict[str, str]]:
    with (run.folder / "curves.csv").open() as file:
        return list(csv.DictReader(file))


def test_draws_have_no_question_in_common(tuned: Path) -> None:
    run = choice(tuned)
    draws = [json.loads((run.folder / f"{name}.json").read_text()) for name in ("development", "test")]
    assert [len(draw["dateset"]) for draw in draws] == [8, 8]
    assert not set(draws[0]["dateset"]) & set(draws[1]["dateset"])
    dateset = load(["dateset"], {"seed": 0}).tasks["tasks"]["dateset"]
    asked = {str(doc["id"]): doc["question"] for doc in dateset.dataset[dateset.config.test_split]}
    development, test = ({asked[name] for name in draw["dateset"]} for draw in draws)
    assert not development & test, "one question on two days"


def test_the_choice_is_stored_with_the_model(tuned: Path) -> None:
    run, folder = choice(tuned), stored_with(tuned)
    stored = json.loads((folder / STORED).read_text())
    assert stored["run"] == run.id and stored["policy"] == run.facts["policy"]
    assert run.step.find("train") == Results(tuned).runs("train")[0].step
    text = (tuned / "shown.txt").read_text()
    assert "tuned" in text and "tokens" in text and "Holm" in text
    assert f" = {stored['value']:.3g} " in text, "what one benchmark chooses for itself is the choice of all"


def test_curves_are_what_evaluations_measure(root: Path) -> None:
    run = choice(root)
    rows = [row for row in curves(run) if (row["draw"], row["policy"]) == ("test", "topk")]
    assert [row["value"] for row in rows] == ["0.0", "1.0", "2.0", "3.0"]
    samples = f"evaluation.samples={run.folder / 'test.json'}"
    metrics = run_stage("evaluate", config(root, *MORE, samples, "decoding.k=3")).metrics
    assert float(rows[3]["score"]) == metrics["dateset/score"]
    assert float(rows[3]["call_share"]) == metrics["dateset/call_share"] > float(rows[0]["call_share"]) == 0
    written = metrics["dateset/tokens_per_second"] * metrics["dateset/seconds"] / metrics["dateset/n"]
    assert float(rows[3]["tokens"]) == pytest.approx(written) and rows[3]["p_holm"] == rows[3]["p_value"]


def test_a_stored_policy_is_as_one_that_is_given(root: Path, capsys: Capture) -> None:
    folder, overrides = stored_with(root), [f"paths.root={root}", "name=tiny", *BY_NAME]
    StoredPolicy("topk", 1, "a run", {}, {"calendar": 3}).store(folder)
    decoder = Toolformer.from_config("latest", overrides).decoder
    assert (decoder.policy, decoder.k, decoder.by_tool) == ("topk", 1, {"calendar": 3})
    tuned_on = json.loads((choice(root).folder / "development.json").read_text())
    StoredPolicy("bias", 2.5, choice(root).id, tuned_on).store(folder)
    decoder = Toolformer.from_pretrained(folder, overrides).decoder
    assert (decoder.policy, decoder.bias, decoder.by_tool or {}) == ("bias", 2.5, {})
    samples = f"evaluation.samples={choice(root).folder / 'development.json'}"
    assert main(["evaluate", *words(root, *BY_NAME, samples)]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "dateset: the policy was chosen on 8 of these 8 examples" in shown
    given = [*MORE, "decoding.policy=bias", "decoding.bias=2.5", samples]
    run = run_stage("evaluate", config(root, *given))
    assert run == Results(root).runs("evaluate")[0] and run.facts["policy"] == "bias 2.5"
    assert len(Results(root).runs("evaluate")) == 1


def test_a_value_for_each_tool(root: Path) -> None:
    more = ["tools=[calculator,calendar]", "evaluation.limit=8"]
    assert main(["tune-policy", "--by-tool", "--policy", "bias", *words(root, *MORE, *more)]) == 0
    (run,) = set(Results(root).runs("tune")) - {choice(root)}
    assert {row["policy"] for row in curves(run) if row["value"] != "0.0"} == {"bias"}


def test_a_policy_is_chosen_before_it_is_used_and_once(
    tmp_path: Path, answering_model: Path, refused: Refused
) -> None:
    trained(tmp_path, answering_model)
    assert f"has no {STORED}" in refused("evaluate", *words(tmp_path, *BY_NAME))
    given = config(tmp_path, *MORE, "evaluation.limit=4")
    with ThreadPoolExecutor(2) as pool:  # at the same time
        outcomes: list[Any] = list(pool.map(lambda _: tune_policy(given, {"topk": 2}), range(2)))
    assert sum(outcome is None for outcome in outcomes) == 1
    assert len(Results(tmp_path).runs("tune")) == 1
    (stored_with(tmp_path) / STORED).write_text("{}")
    overrides = [f"paths.root={tmp_path}", "name=tiny", *BY_NAME]
    assert f"{STORED} cannot be read" in refused("complete", "On day 3 we", *overrides)


def test_the_table_has_the_corrected_p_beside_the_raw_one() -> None:
    best = Point(
        "topk", 1.0, {}, 40, 50.0, 25.0, 20, helped=12, harmed=2, needed=12, tokens=8.0, p_holm=0.0777
    )
    own = replace(best, policy="threshold", value=0.25, by_tool={"qa": 0.5}, helped=13)
    curves = {("dateset", "test", "topk"): [best]}
    (table,) = content(Tuned("topk", 1.0, {}, curves, {"dateset": best}, {"dateset": own})).tables
    rows = [[cell.text for cell in row] for row in table.rows[-2:]]
    assert [row[1] for row in rows] == ["tuned", "threshold = 0.25, qa 0.5"]
    assert [row[-2:] for row in rows] == [[f"{mcnemar(2, won):.3f}", "0.078"] for won in (12, 13)]
