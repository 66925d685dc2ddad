"""Experiments: every file composes and names what there is; plans; bad input."""

import gzip
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pytest

from tests.build import GOLDEN, Patch, Refused, smoke_words
from toolformer.cli import main
from toolformer.decoding.settings import PAPER_SYSTEMS
from toolformer.errors import UserError
from toolformer.evaluation.suite import task_names
from toolformer.jobs import corpora
from toolformer.jobs import instantiate as objects
from toolformer.jobs.config import CONF, compose, effective, validate
from toolformer.jobs.config.composition import for_hydra
from toolformer.jobs.job import Job
from toolformer.jobs.plan import plan, survey
from toolformer.results import Results
from toolformer.step import STAGES
from toolformer.training.settings import Recipe

NAMES = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
PLACES = ["corpus.path=corpus", "paths.data_dir=."]


def test_there_is_an_experiment_for_every_result() -> None:
    results = {"table", "table2", "table8", "table9", "table10", "figure4"}
    own = {
        "paper",
        "demo",
        "smoke",
        "ladder",
        "threshold",
        "headline",
        "positions",
        "positions_leak",
    }
    parts = {
        part
        for whole in ("headline", "positions")
        for part in validate(compose("report", [f"experiment={whole}"])).run.experiments
    }
    assert set(NAMES) == results | own | parts
    assert set(validate(compose("report", ["experiment=paper", *PLACES])).run.experiments) == results


def test_an_experiment_of_ones_own_is_planned(tmp_path: Path) -> None:
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    text = """# @package _global_
name: mine
run: {stages: {generate: {}, train: {}, evaluate: {system: [model, toolformer]}}}
"""
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(text)
    words = [f"hydra.searchpath=[file://{tmp_path}/conf]", "experiment=mine", f"paths.root={tmp_path}/runs"]
    jobs = plan("run", [*words, "benchmarks=[arithmetic]"])
    assert [job.stage for job in jobs] == ["generate", "train", "evaluate", "evaluate"]
    assert {job.config.name for job in jobs} == {"mine"}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A corpus as cc_net writes it."""
    path = tmp_path_factory.mktemp("ccnet") / "en_head_0000.json.gz"
    row = {"url": "https://example.org/2020/05/01/a", "raw_content": "Seven and five.", "digest": "x"}
    path.write_bytes(gzip.compress(json.dumps(row).encode() + b"\n"))
    return [f"corpus.path={path}"]


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_names_what_there_is(name: str, places: list[str]) -> None:
    """The first job of every stage, with its corpus, tools, thresholds, recipe and benchmarks."""
    # The embedded corpus is refused a path.
    embedded = ("demo", "smoke", "ladder", "threshold", "headline", "positions")
    read = [] if name in embedded else places
    if name.startswith(("headline_", "positions_")):
        indexes = [
            f"tool.{tool}.{part}.retriever.index_path=null"
            for tool in ("search", "qa")
            for part in ("implementation", *(["inference"] if name == "headline_index" else []))
        ]
        if name.startswith("positions_"):
            indexes.append("tool.search.inference.retriever.index_path=null")
        texts = [f"{corpus}.text_field=raw_content" for corpus in ("corpus", "heldout")]
        read = [*places, places[0].replace("corpus", "heldout"), *texts, *indexes, "paths.data_dir=."]
    elif read:
        read = [*places, "toolset=bundled"]  # the paper's tools have to be fetched
    words = [f"experiment={name}", *read]
    for stage, swept in validate(compose("evaluate", words)).run.stages.items():
        chosen = [f"{key}={values[0]}" for key, values in swept.items()]
        config = effective(validate(compose(stage, [*words, *chosen])), stage)
        if stage == "generate":
            assert next(iter(corpora.corpus(config.corpus))).text
            assert set(objects.tools(config)) == set(config.tools)
            for key in config.tools:
                settings = objects.tool_settings(config, key)
                assert settings.name == config.tool[key].name and settings.prompt.fill("x")
        elif stage == "train":
            recipe = {field.name: getattr(config.trainer, field.name) for field in fields(Recipe)}
            assert Recipe(**recipe).accumulation(1) >= 1
            assert config.heldout.source is None or next(iter(corpora.corpus(config.heldout))).text
        elif stage == "evaluate":
            assert set(objects.tools(config, inference=True)) == set(config.tools)
            assert task_names(config.benchmarks)


@pytest.mark.parametrize("name", NAMES)
def test_an_experiments_file_opens_with_its_command(name: str) -> None:
    lines = (CONF / "experiment" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    head = lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]
    commands = [
        shlex.split(line.removeprefix("#"))
        for line in head
        if re.search(r" toolformer (run|demo|generate)", line)
    ]
    assert commands and any(f"experiment={name}" in words or words[-1:] == ["demo"] for words in commands)
    keys = [word.replace("DIR", "/") for word in commands[-1] if "=" in word and word != "model=FOLDER"]
    keys = [key for key in keys if not key.startswith("seed=")]  # a sweep's values
    validate(compose("report", keys))


def test_an_experiment_is_reported_without_its_data(tmp_path: Path) -> None:
    words = ["experiment=table", f"paths.data_dir={tmp_path / 'unmounted'}"]
    assert validate(compose("report", words), "report").name == "paper"
    with pytest.raises(UserError, match=r"paths\.data_dir|corpus\.path"):
        validate(compose("evaluate", words), "evaluate")


def chosen(name: str, stage: str, *more: str) -> list[list[str]]:
    """What the jobs of a stage differ in."""
    made = plan("run", [f"experiment={name}", "setting=default", *more])
    return [list(job.differing) for job in made if job.stage == stage]


def test_sweeps_are_those_of_the_paper(tmp_path: Path) -> None:
    root = f"paths.root={tmp_path}"
    assert chosen("table9", "evaluate", root) == [[f"decoding.k={k}"] for k in (0, 1, 3, 10)]
    assert chosen("table9", "train", root) == chosen("table9", "generate", root) == [[]]
    assert chosen("table", "evaluate", root) == [[f"system={system}"] for system in PAPER_SYSTEMS]
    assert chosen("table8", "evaluate", root) == [[f"system={system}"] for system in PAPER_SYSTEMS[:3]]
    # The command line goes before the experiment.
    assert chosen("table9", "evaluate", "decoding.k=3", root) == [[]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name one experiment"),
        (["experiment=smoke,demo"], "add -m to sweep"),
        (["experiment=smoke", "model=/a folder, (old)"], "quote a value"),
        (["experiment=smoke", "tools=[größe]"], "tools: names of tools have letters (a-z)"),
        (["-m", "experiment=smoke", "seed=1,2", "model=/a (old)"], "model='/a folder, (old)'"),
        (["experiment=smok"], "Could not find 'experiment/smok' (did you mean smoke?); available options in"),
        (["experiment=headline", "--plan"], "needs paths.data_dir; add paths.data_dir=DIR"),
        (
            [
                "experiment=smoke",
                "tools=[search]",
                "+tool.search.implementation.retriever.index_path=${paths.data_dir}/x",
            ],
            "tool.search.implementation.retriever.index_path needs paths.data_dir; add paths.data_dir=DIR",
        ),
        (["experiment=smoke", "+run.stages.trian={}"], "did you mean train"),
        (
            ["experiment=smoke", "data=augmented"],
            "reads a training with data=plain, which this sweep leaves out",
        ),
        (["-m", "experiment=smoke", "seed=range(0,3"], "range(0,3"),
        (["experiment=smoke", f"model={GOLDEN}", "paths.data_dir=/", "benchmarks=[svamp]"], "svamp/svamp"),
    ],
)
def test_bad_input_ends_before_anything_is_done(
    words: list[str], said: str, tmp_path: Path, refused: Refused
) -> None:
    assert said in refused("run", *words, f"paths.root={tmp_path}")
    assert not list(tmp_path.glob("annotate/*/0*"))


def counts(made: Sequence[Job]) -> tuple[int, ...]:
    """The jobs of each stage."""
    stages = [job.stage for job in made]
    return tuple(map(stages.count, STAGES))


def test_experiments_share_what_they_have_in_common(tmp_path: Path, places: list[str]) -> None:
    members = ["experiment=paper", "run.experiments=[table2,table9,figure4]", f"paths.root={tmp_path}"]
    made = plan("run", [*members, "system=toolformer", "toolset=bundled", *places])
    # GPT-J annotates with five tools, and each model with three for Figure 4.
    assert counts(made) == (1 + 5, 1 + 5, 4 + 5, 2)
    assert all(job.sources.keys for job in made if job.stage in ("train", "evaluate"))
    (trained, medium) = (
        job for job in made if job.stage != "generate" and "model=gpt2-medium" in job.overrides
    )
    assert trained.label == "model=gpt2-medium" and medium.sources.training == trained.step
    assert f"checkpoint={trained.step.key()}" in medium.overrides


def test_jobs_of_several_experiments_are_distinguished(tmp_path: Path, places: list[str]) -> None:
    words = ["experiment=paper", "run.experiments=[table2,figure4]", f"paths.root={tmp_path}", "model=gpt2"]
    made = plan("run", [*words, "system=toolformer", "toolset=bundled", *places])
    assert [job.label for job in made if job.stage == "generate"] == ["name=paper", "name=figure4"]


@pytest.mark.parametrize(
    ("stages", "more", "jobs"),
    [
        # M neither calls nor was trained; Toolformer does both.
        (
            {
                "train": "trainer.max_steps: [1, 2], data: [plain, augmented]",
                "evaluate": "system: [model, toolformer], decoding.k: [0, 3], trainer.max_steps: [1, 2]",
            },
            [],
            (1, 2, 1 + 2 * 2, 1),
        ),
        # Trained on another data set.
        (
            dict.fromkeys(("generate", "train", "evaluate"), "tools: [[calculator], [calendar]]"),
            ["system=toolformer_disabled"],
            (2, 2, 2, 1),
        ),
        # What a stage does not read makes no further job.
        ({"evaluate": "decoding.min_new_tokens: [1, 2]"}, ["system=toolformer"], (1, 1, 2, 1)),
        # Nothing is annotated or trained that nobody reads.
        ({}, ["system=model"], (0, 0, 1, 1)),
    ],
)
def test_equal_work_is_one_job(
    stages: dict[str, str], more: list[str], jobs: tuple[int, ...], tmp_path: Path
) -> None:
    swept = [f"++run.stages.{stage}={{{keys}}}" for stage, keys in stages.items()]
    words = ["+experiment=smoke", f"paths.root={tmp_path}", *swept, *more]
    assert counts(plan("run", words)) == jobs


def test_a_named_checkpoint_needs_no_training(smoke_runs: Path) -> None:
    (run,) = Results(smoke_runs).runs("train", data="augmented")
    done, made = survey(plan("run", [*smoke_words(smoke_runs), f"checkpoint={run.id}", "system=toolformer"]))
    assert counts(made) == (0, 0, 1, 1) and len(done) == 1


def test_texts_that_look_like_numbers_stay_as_typed() -> None:
    words = ["name=1e-5", "corpus=jsonl", "corpus.path=1e3", "dataset=52137e92", "model=true", "seed=3"]
    config = compose("generate", words)
    assert (config.name, config.corpus.path, config.dataset, config.model) == (
        "1e-5",
        "1e3",
        "52137e92",
        "true",
    )
    place = "tool.search.implementation.retriever.index_path"
    read = compose("evaluate", [f"{place}=123", "evaluation.samples=1e3"])
    assert read.tool["search"].implementation.retriever.index_path == "123"
    assert read.evaluation.samples == "1e3"
    assert config.seed == 3 and compose("generate", ["heldout.path=null"]).heldout.path is None
    assert for_hydra(["name=1e-5,b", "tool.qa.prompt=7"]) == ["name='1e-5',b", "tool.qa.prompt='7'"]


@pytest.mark.parametrize("name", ["a@b", "_x", "../x"])
def test_a_name_that_no_report_could_have_is_refused_early(name: str, refused: Refused) -> None:
    assert f"name is '{name}'; it must be a letter or digit, then" in refused("generate", f"name={name}")


@pytest.fixture
def local(tmp_path: Path, monkeypatch: Patch) -> Path:
    """The folder of a user's experiments, in the working directory."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "conf" / "experiment"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("word", ["experiment=mine", "+experiment=mine"])
def test_an_experiment_beside_the_user_is_found(word: str, local: Path) -> None:
    (local / "mine.yaml").write_text("# @package _global_\nname: mine\nseed: 3\n")
    (job,) = plan("generate", [word, "paths.root=runs"])
    assert (job.config.name, job.config.seed) == ("mine", 3)
    assert not any(override.startswith("hydra.") for override in job.overrides), "found again without a word"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: mine\n", "mine.yaml must begin with the line: # @package _global_"),
        ("# @package _global_\nbenchmark: [svamp]\n", "(did you mean benchmarks?)"),
        ("# @package _global_\ndecoding: {kk: 3}\n", "(did you mean k?)"),
    ],
)
def test_a_mistake_in_a_users_experiment_is_one_line(
    text: str, said: str, local: Path, refused: Refused
) -> None:
    (local / "mine.yaml").write_text(text)
    assert said in refused("evaluate", "experiment=mine", "paths.root=runs")


def test_a_sweep_below_home_makes_no_folder_named_so(
    smoke_runs: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = [word for word in smoke_words(smoke_runs) if not word.startswith("paths.root")]
    assert main(["run", "-m", "--plan", *words, "paths.root='~/x'", "seed=0"]) == 0
    assert not (tmp_path / "~").exists()
