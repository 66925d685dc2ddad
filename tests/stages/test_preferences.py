"""The train stage on preferences: which model it goes on from, and what decides the run."""

from pathlib import Path

import pytest

from tests.conftest import Capture, smoke_words
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.results import Results, Run
from toolformer.stages.config import Config, compose, validate
from toolformer.stages.identity import deciding
from toolformer.stages.launch import run_stage
from toolformer.stages.train import model_folder

SMALL = [
    f"trainer.preference.{word}" for word in ("batch_size=2", "micro_batch_size=2", "max_steps=2", "epochs=2")
]


def config(root: Path, *more: str) -> Config:
    return validate(compose("train", [*smoke_words(root), *SMALL, *more]))


def train(root: Path, *more: str) -> Run:
    run: Run = run_stage("train", config(root, *more))
    return run


def test_it_goes_on_from_the_training_on_texts_and_is_evaluated(root: Path, capsys: Capture) -> None:
    (texts,) = Results(root).runs("train", data="augmented")
    run = train(root, "objective=dpo")
    assert texts.id in run.made_from and run.facts["objective"] == "dpo"
    assert len(Results(root).runs("train", data="augmented")) == 2, "the training on texts was there"
    assert run.metrics["train_steps"] == 2 and [step for step, _ in run.curve("rewards/margins")] == [1, 2]
    assert train(root, "objective=dpo") == run
    words = [*smoke_words(root), "benchmarks=[dateset]", f"checkpoint={run.id}"]
    assert main(["evaluate", *words]) == 0, capsys.readouterr().err
    (evaluated,) = Results(root).runs("evaluate")[:1]
    assert evaluated.made_from[0] == run.id


def test_it_may_begin_with_the_model_of_an_earlier_training(root: Path) -> None:
    (texts,) = Results(root).runs("train", data="augmented")
    run = train(root, "objective=kto", "trainer.preference.start=model", f"model={model_folder(texts)}")
    assert run.setting("model") == str(model_folder(texts)) and texts.id not in run.made_from


def test_the_keys_of_preferences_do_not_decide_a_training_on_texts(root: Path) -> None:
    plain, other = (deciding(config(root, *more), "train") for more in ([], ["trainer.preference.beta=0.5"]))
    assert plain == other and "objective" not in plain
    changed = [
        deciding(config(root, "objective=kto", f"trainer.preference.beta={beta}"), "train") for beta in (1, 2)
    ]
    assert changed[0] != changed[1]


def test_preferences_need_calls(root: Path) -> None:
    with pytest.raises(UserError, match="objective=kto needs data=augmented"):
        train(root, "objective=kto", "data=plain")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["objective=ppo"], "objective is 'ppo'"),
        (["objective=kto", "trainer.preference.micro_batch_size=1"], "needs at least 2"),
        (["trainer.preference.beta=0"], "trainer.preference.beta"),
    ],
)
def test_impossible_values_are_named(words: list[str], message: str, root: Path) -> None:
    with pytest.raises(UserError, match=message):
        config(root, *words)
