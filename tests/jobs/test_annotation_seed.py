"""`generate.seed`: several trainings learn from one annotation, and calls kept by chance are drawn by `seed`."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from scripts import headline
from tests.build import Patch
from toolformer.errors import UserError
from toolformer.jobs import steps
from toolformer.jobs.config import Config, compose, effective, validate
from toolformer.jobs.plan import plan
from toolformer.jobs.sources import resolve
from toolformer.jobs.versions import VERSIONS
from toolformer.results import Results, Run, RunInfo
from toolformer.step import Step

CHANCE = "tool.calculator.chance=0.5"


def smoke(*overrides: str) -> Config:
    return validate(compose("generate", ["experiment=smoke", *overrides]))


def annotation(*overrides: str) -> Step:
    return steps.generate(effective(smoke(*overrides), "generate"))


def annotated(root: Path, *overrides: str) -> Run:
    """A finished annotation."""
    config = smoke(f"paths.root={root}", *overrides)
    with Results(root, versions=VERSIONS).open(
        annotation(*overrides), RunInfo("x", asdict(config), experiment=config.name)
    ) as run:
        return run


def read(root: Path, *overrides: str) -> list[str]:
    """The annotations that a training reads."""
    sources = resolve("train", smoke(f"paths.root={root}", *overrides), (), Results(root, versions=VERSIONS))
    return sources.keys


def test_the_annotations_seed_goes_before_the_seed() -> None:
    assert annotation("generate.seed=0", "seed=1") == annotation("seed=0")


def test_another_seed_of_the_annotation_is_another_one() -> None:
    assert annotation("generate.seed=1", "seed=0") == annotation("seed=1") != annotation("seed=0")


def test_trainings_of_two_seeds_share_one_annotation(tmp_path: Path) -> None:
    swept = [f"++run.stages.{stage}.seed=[0, 1]" for stage in ("generate", "train", "evaluate")]
    words = ["experiment=smoke", f"paths.root={tmp_path}", "system=toolformer", "generate.seed=0", *swept]
    stages = Counter(job.stage for job in plan("run", words))
    assert (stages["generate"], stages["train"], stages["evaluate"]) == (1, 2, 2)


def test_latest_is_the_annotation_of_a_training_of_any_seed(tmp_path: Path) -> None:
    made = annotated(tmp_path, "generate.seed=0", "seed=0")
    assert read(tmp_path, "generate.seed=0", "seed=1") == [made.id]


def test_latest_is_of_the_annotations_seed(tmp_path: Path) -> None:
    made = annotated(tmp_path, "generate.seed=0")
    annotated(tmp_path, "generate.seed=1")
    assert read(tmp_path, "generate.seed=0", "seed=3") == [made.id]


def test_latest_is_of_the_seed_that_chance_draws_by(tmp_path: Path) -> None:
    first = annotated(tmp_path, "generate.seed=0", "seed=1", CHANCE)
    annotated(tmp_path, "generate.seed=0", "seed=2", CHANCE)
    assert read(tmp_path, "generate.seed=0", "seed=1", CHANCE) == [first.id]
    with pytest.raises(UserError, match="no finished generate run with name=smoke seed=3"):
        read(tmp_path, "generate.seed=0", "seed=3", CHANCE)


def test_chance_draws_by_seed_from_one_annotation() -> None:
    one, two = (annotation("generate.seed=0", f"seed={seed}", CHANCE) for seed in (0, 1))
    assert one != two and one.inputs["annotation"] == two.inputs["annotation"]


def test_an_annotation_does_not_depend_on_arguments_at_inference(tmp_path: Path) -> None:
    (tmp_path / "articles.json").write_text('[{"title": "A", "extract": "A is old."}]')
    path = f"+tool.search.inference.retriever.articles_path={tmp_path}/articles.json"
    target = "+tool.search.inference.retriever._target_=toolformer.tools.retrieval.bm25.BM25"
    assert annotation("tools=[search]", path, target) == annotation("tools=[search]")


def headline_folder(folder: Path) -> Path:
    """A data folder with a text and a passage, where `scripts/headline.py` writes them."""
    made = folder / "headline"
    headline.write(made, "texts", [{"id": "a", "text": "2 + 2 = 4", "date": "2019-06-03"}])
    headline.write(made, "heldout", [{"id": "b", "text": "It rains."}])
    headline.write(made / "index", "x", [{"id": "x", "title": "X", "text": "X is old."}])
    for name in ("index", "without"):
        headline.indexed(made / "index", made / f"{name}.bm25")
    return folder


def test_parts_of_the_headline_share_annotations_and_trainings(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(Path(headline.__file__).parents[1])
    parts = "run.experiments=[headline_effect,headline_loss,headline_chance,headline_repeat,headline_index]"
    data = f"paths.data_dir={headline_folder(tmp_path)}"
    words = ["experiment=headline", parts, "system=toolformer", "seed=0", data, f"paths.root={tmp_path}/runs"]
    jobs = plan("run", words)
    assert len({job.step for job in jobs}) == len(jobs)
    stages = Counter(job.stage for job in jobs)
    # An annotation and a training each of headline_effect, by chance, and with new calls; five parts ask other questions.
    assert (stages["generate"], stages["train"], stages["evaluate"]) == (3, 3, 5)
