"""Keys of steps, and which settings decide a result."""

import datetime
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from toolformer.stages.config import Config, compose, validate
from toolformer.stages.config.keys import keys
from toolformer.stages.identity import deciding
from toolformer.step import Step, settings_of

STEPS = ("documents", "heldout", "annotate", "generate", "train", "answer", "evaluate")
UNDECIDING = {
    # An input of a step instead, by its content.
    *("checkpoint", "dataset", "evaluation.samples", "paths.data_dir", "paths.tasks_dir", "prompts"),
    *("tool.NAME.demonstrations", "tool.NAME.instruction", "tool.NAME.prompt", "trainer.deepspeed"),
    # Become settings of `tool`.
    *("tool_sources", "tools", "tool_default"),
    # How, where and how fast; rounding aside, the same results.
    *("decoding.batch_size", "endpoint", "engine", "generate.shard_size", "lm.device", "paths.cache"),
    *("tool.NAME.batch_size", "tool.NAME.cache", "tool.NAME.timeout", "tool.NAME.tries", "tool.NAME.workers"),
    *("trainer.compile", "trainer.gradient_checkpointing", "trainer.keep_checkpoints", "trainer.log_every"),
    *("trainer.micro_batch_size", "trainer.save_every", "tracking", "paths.root"),
    "evaluation.accept_faults",
    # Of other commands, and names.
    *("index", "like", "name", "paper", "run"),
}


@pytest.fixture(scope="module")
def config() -> Config:
    return validate(compose("generate", ["experiment=demo"]), "report")


def leaves(settings: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def test_every_key_says_what_it_decides(config: Config) -> None:
    """A key that is added without a mark decides nothing, which has to be meant."""
    marked = {
        re.sub(r"^tool\.\w+\.", "tool.NAME.", key)
        for step in STEPS
        for key in leaves(settings_of(config, step))
    }
    marked |= {key.rpartition(".")[0] for key in marked} | {"tool.NAME.implementation"}
    unmarked = {key.name for key in keys()} - marked
    assert {key for key in unmarked if not {key, key.partition(".")[0]} & UNDECIDING} == set()


def chain(seed: int = 0, threshold: float = 1.0, texts: str = "abc") -> Step:
    annotate = Step("annotate", 1, {"seed": seed}, {"texts": texts})
    settings = {"filter_threshold": {"calculator": threshold}, "filter": {"baseline": "paper"}}
    generate = Step("generate", 1, settings, {"annotation": annotate})
    return Step("train", 1, {"seed": seed, "trainer": {"max_steps": 3}}, {"datasets": [generate]})


def test_a_key_changes_with_whatever_is_below() -> None:
    (generate,) = chain().steps()
    newer = Step("generate", 2, generate.settings, generate.inputs)
    others = (chain(seed=1), chain(threshold=2), chain(texts="abd"))
    versions = (Step("train", 1, {}, {"datasets": [step]}) for step in (generate, newer))
    assert len({step.key() for step in (chain(), chain(), *others, *versions)}) == 6


def test_steps_equal_but_for_a_setting_share_a_key_without_it() -> None:
    by_seed, by_threshold = ({"without": [name]} for name in ("seed", "filter_threshold*"))
    assert chain(seed=1).key(**by_seed) == chain(seed=2).key(**by_seed)
    assert chain(threshold=1).key(**by_threshold) == chain(threshold=2).key(**by_threshold)
    assert chain(seed=1).key(**by_threshold) != chain(seed=2).key(**by_threshold)


def test_a_step_is_read_from_its_json_and_from_nothing_else() -> None:
    assert Step.of_json(chain().as_json()) == chain()
    for value in (None, [], {}, {"name": 1, "version": 1, "settings": {}, "inputs": {}}, "x"):
        with pytest.raises(ValueError, match="not a step"):
            Step.of_json(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"headers": {"Authorization": "Bearer hunter2"}}, {"headers": {"Authorization": "Bearer hunter3"}}),
        ({"command": "x", "args": ["--hunter2"]}, {"command": "x", "args": ["--hunter3"]}),
        ({"env": {"A": 1}}, {"env": {"A": 2}}),
        ({"url": "https://h/v1?key=hunter2"}, {"url": "https://h/v1?key=hunter3"}),
    ],
)
def test_what_may_be_a_secret_decides_unread(
    config: Config, one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Two values are two results, and whoever reads a run reads neither."""

    def settings(implementation: dict[str, Any]) -> dict[str, Any]:
        config.tool["calculator"].implementation = {"_target_": "x.Y", **implementation}
        return deciding(config, "annotate")

    assert settings(one) == settings(one) != settings(other)
    assert "hunter" not in str(settings(one)) and "x.Y" in str(settings(one))


def test_explaining_depends_on_every_setting_of_the_tools() -> None:
    from toolformer.results import Run
    from toolformer.stages.explain import step_of

    def key(*overrides: str) -> str:
        config = validate(compose("evaluate", ["experiment=demo", "decoding.k=0", *overrides]), "report")
        run = Run(Step("evaluate", 1, {}), Path("x"), "", "FINISHED", datetime.datetime.now(datetime.UTC))
        return step_of(run, config).key()

    assert key() == key() and key() != key("++tool.calculator.inference.digits=2")
