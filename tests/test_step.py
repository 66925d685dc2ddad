"""Keys of steps, and which settings decide a result."""

import copy
import json
import re
from dataclasses import MISSING
from typing import Any

import pytest

from toolformer.jobs import steps
from toolformer.jobs.config import Config, ToolConfig, compose, effective, validate
from toolformer.jobs.config.keys import all_keys
from toolformer.step import Setting, Step, all_settings, settings_of

STEPS = ("documents", "heldout", "annotate", "generate", "train", "answer", "evaluate")
UNDECIDING = {
    # An input of a step instead, by its content.
    *("checkpoint", "dataset", "evaluation.samples", "model", "paths.data_dir", "paths.tasks_dir", "prompts"),
    *("tool.NAME.demonstrations", "tool.NAME.instruction", "tool.NAME.prompt", "trainer.deepspeed"),
    *(f"{corpus}.{key}" for corpus in ("corpus", "heldout") for key in ("path", "pattern", "paragraphs")),
    *("heldout_limit", "heldout_share"),
    # Read a corpus as it is, or not at all; no annotation depends on titles.
    *(f"{corpus}.{key}" for corpus in ("corpus", "heldout") for key in ("strict", "title_field")),
    # The `seed` of an annotation.
    "generate.seed",
    # Names shards, whose results are the same.
    "generate.shard_size",
    # Rows of a report that others measured.
    "lm_eval",
    # Become settings of `tool`.
    *("filter_threshold", "tool_sources", "tools", "tool_default"),
    # How, where and how fast; rounding aside, the same results.
    *("decoding.batch_size", "engine", "lm.device", "lm.graphs", "paths.cache", "tracking", "paths.root"),
    *("tool.NAME.batch_size", "tool.NAME.cache", "tool.NAME.timeout", "tool.NAME.tries", "tool.NAME.workers"),
    *("trainer.compile", "trainer.gradient_checkpointing", "trainer.keep_checkpoints", "trainer.log_every"),
    *("trainer.micro_batch_size", "trainer.processes", "trainer.save_every", "evaluation.accept_faults"),
    # Of other commands, and names.
    *("index", "like", "name", "paper", "run"),
}


@pytest.fixture(scope="module")
def config() -> Config:
    return validate(compose("generate", ["experiment=demo"]), "report")


def one_tool() -> Config:
    """The schema's defaults, with one tool."""
    return Config(tools=["calculator"], tool={"calculator": ToolConfig(name="Calculator")})


DECIDING = [setting for setting in all_settings(one_tool()) if any(map(setting.decides, STEPS))]


def changed(config: Config, setting: Setting, value: Any) -> Config:
    """The configuration with another value of a setting."""
    config = copy.deepcopy(config)
    *above, name = setting.path
    holder: Any = config
    for part in above:
        holder = holder[part] if isinstance(holder, dict) else getattr(holder, part)
    setattr(holder, name, value)
    return config


def test_every_key_says_what_it_decides() -> None:
    """A key that is added without a mark decides nothing, which has to be meant."""
    marked = {re.sub(r"^tool\.\w+\.", "tool.NAME.", setting.key) for setting in DECIDING}
    unmarked = {key.name for key in all_keys()} - marked
    assert {key for key in unmarked if not {key, key.partition(".")[0]} & UNDECIDING} == set()
    assert marked.isdisjoint(UNDECIDING)


@pytest.mark.parametrize("setting", DECIDING, ids=lambda setting: setting.key)
def test_a_default_that_is_given_changes_no_key(setting: Setting) -> None:
    default = "demo" if setting.default is MISSING or setting.default == "???" else setting.default
    alike = (
        [float(default)] if type(default) is int else [tuple(default)] if isinstance(default, list) else []
    )
    for step in filter(setting.decides, STEPS):
        without = settings_of(changed(one_tool(), setting, default), step)
        for value in (default, copy.deepcopy(default), *alike):
            assert Step(step, 1, settings_of(changed(one_tool(), setting, value), step)) == Step(
                step, 1, without
            )
        other = settings_of(changed(one_tool(), setting, "another value"), step)
        assert Step(step, 1, other).key() != Step(step, 1, without).key()
        if setting.default not in (MISSING, "???"):
            assert setting.path[-1] not in str(without) or setting.key == "tool.calculator.name"


@pytest.mark.parametrize(
    ("one", "other"), [(10, 10.0), (1e-4, 0.0001), ((1, 2), [1, 2]), ({"calendar": 10}, {"calendar": 10.0})]
)
def test_equal_values_have_equal_keys(one: Any, other: Any) -> None:
    first, second = (Step("answer", 1, {"value": value}, {"input": value}) for value in (one, other))
    assert first.key() == second.key() and first == second and hash(first) == hash(second)
    assert Step.of_json(json.loads(json.dumps(first.as_json()))).key() == second.key()


def test_a_value_by_tool_and_for_all_tools_has_one_key(config: Config) -> None:
    def key(*overrides: str) -> str:
        words = ["experiment=demo", "tools=[calculator]", *overrides]
        return steps.generate(effective(validate(compose("generate", words), "report"), "generate")).key()

    of_all = key("filter_threshold=0.5", "tool.calculator.filter_threshold=null")
    assert of_all == key("filter_threshold=2", "tool.calculator.filter_threshold=0.5")
    assert of_all != key("filter_threshold=2", "tool.calculator.filter_threshold=null")


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
        return steps.deciding_settings(config, "annotate")

    assert settings(one) == settings(one) != settings(other)
    assert "hunter" not in str(settings(one)) and "x.Y" in str(settings(one))


def test_each_of_several_inputs_of_one_name_is_shown() -> None:
    """Trainings on A + B and on A' + B differ, in A."""
    datasets = [Step("generate", 1, {"filter_threshold": threshold}) for threshold in (1, 2)]
    flat = Step("train", 1, {}, {"datasets": datasets}).flat()
    assert flat == {"generate[1].filter_threshold": 1, "generate[2].filter_threshold": 2}
    assert [
        *Step("evaluate", 1, {}, {"training": Step("train", 1, {}, {"datasets": datasets})}).find_all(
            "generate"
        )
    ] == datasets
