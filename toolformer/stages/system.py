"""Who answers the questions of an evaluation: a model, the tools that it calls, and how it is decoded (paper, section 4)."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from toolformer.decoding import examples
from toolformer.decoding.settings import (
    SYSTEMS,
    cache_key_fields,
    policy_label,
)
from toolformer.errors import UserError
from toolformer.results import Results, Run
from toolformer.results.provenance import model_name
from toolformer.stages import instantiate
from toolformer.stages.config import Config
from toolformer.stages.identity import deciding, model_identity, tool_files, weights
from toolformer.stages.train import model_folder
from toolformer.stages.versions import VERSIONS
from toolformer.step import Step
from toolformer.tools.base import Tool

LATEST = "latest"


@dataclass(frozen=True)
class System:
    """A system as configured; `find` also finds its training."""

    config: Config
    trained: Run | None = None
    """The train run that made its model."""

    @classmethod
    def find(cls, config: Config, results: Results, command: str = "") -> "System":
        """The system with the training that `checkpoint` names, or with its model folder, if it is a trained one.

        UserError if there is no such training.
        """
        if not (data := SYSTEMS[config.system].trained_on):
            return cls(config)
        folder = Path(config.checkpoint).expanduser()
        if (folder / "config.json").is_file():  # of another trainer
            return cls(replace(config, model=str(folder)))
        is_checkpoint = config.model == LATEST  # instead of a model's name
        reference = LATEST if is_checkpoint else config.checkpoint
        preferred = preferred_training(config, "" if is_checkpoint else command)
        run = train_run(results, reference, data, config.name, preferred)
        if not is_checkpoint:
            check_base(run, config.model, command)
        return cls(config, run)

    @cached_property
    def calls(self) -> bool:
        """Whether it calls tools."""
        return SYSTEMS[self.config.system].calls_tools and self.config.decoding.k > 0

    @cached_property
    def decoding(self) -> dict[str, Any]:
        """The decoding settings that decide an answer; k is 0 for a system that calls no tools."""
        k = self.config.decoding.k if self.calls else 0
        return cache_key_fields({**asdict(self.config.decoding), "k": k}, self.config.tools)

    @property
    def policy(self) -> str:
        """When a call starts, in words (`policy_label`)."""
        return policy_label(self.decoding)

    @property
    def model(self) -> str:
        """The model's name, or the folder of the trained one."""
        return str(model_folder(self.trained)) if self.trained else self.config.model

    @property
    def model_name(self) -> str:
        """The model for titles: of a trained one that which it was trained from."""
        return model_name(str(self.trained.setting("model", "")) if self.trained else self.config.model)

    @property
    def baseline(self) -> str:
        """What a model to compare with is called in reports; empty for the paper's systems."""
        config = self.config
        if config.system == "prompted":
            policy = f"k = {self.policy}" if self.policy.isdecimal() else self.policy
            return f"{self.model_name}, prompted, {policy}"
        return self.model_name if config.system == "baseline" else ""

    def tools(self) -> dict[str, Tool]:
        """Its tools, by key."""
        return instantiate.tools(self.config, inference=True) if self.calls else {}

    def clocks(self) -> list[str]:
        """The tools, by key, that answer with today's date where an example has none."""
        tools = {key: self.config.tool[key] for key in self.config.tools} if self.calls else {}
        return [
            key for key, tool in tools.items() if {**tool.implementation, **tool.inference}.get("use_clock")
        ]

    @cached_property
    def step(self) -> Step:
        """Its answers, whatever it is asked."""
        config, inputs = self.config, dict[str, Any]()
        settings = deciding(config, "answer") | {"decoding": self.decoding}
        if self.calls:
            inputs["tools"] = tool_files(config, config.tools)
            if config.system != "toolformer":  # they are shown in this order
                inputs["order"] = list(config.tools)
        else:
            del settings["tool"]
        if self.trained:
            inputs["training"] = self.trained.step
            inputs["weights"] = self.trained.facts.get("weights")
        else:
            inputs["model"] = model_identity(config.model)
        if config.system == "prompted" and self.calls:
            inputs["examples"] = {
                key: examples.of_tool(config.tool[key].implementation, config.tool[key].name or key)
                for key in config.tools
            }
        return Step("answer", VERSIONS["answer"], settings, inputs)

    def identity(self) -> dict[str, Any]:
        """What decides its answers besides decoding, which is part of the key of every answer by itself."""
        identity: dict[str, Any] = {"model": self.step.key(without=["decoding"])}
        if self.trained:
            # The same settings trained again after the model was deleted may come to other weights in the same folder.
            identity["weights"] = weights(Path(self.model))
        return identity

    def calling(self) -> "System":
        """The same with calls, whatever k it has."""
        decoding = replace(self.config.decoding, k=1, by_tool=None)
        return System(replace(self.config, decoding=decoding), self.trained)


def train_run(
    results: Results, reference: str, data: str, experiment: str | None, preferred: Mapping[str, Any]
) -> Run:
    """The train run that `reference` names: `latest` (as `Results.resolve`) or an id.

    UserError if there is none, or it was trained on other data.
    """
    facts: dict[str, Any] = {"data": data} if reference == LATEST else {}
    run = results.resolve("train", reference, experiment, preferred=preferred, **facts)
    if run.facts.get("data") != data:
        raise UserError(f"checkpoint: run {run.id[:8]} has data={run.facts.get('data')}, not {data}")
    return run


def preferred_training(config: Config, command: str) -> dict[str, Any]:
    """The settings of the training that `latest` is where there is one: this seed, and this model if the command names one."""
    named = {"model": config.model} if _names("model", command) else {}
    return {**named, "seed": config.seed}


def _names(key: str, command: str) -> bool:
    return re.search(rf"(^|[ '+]){key}=", command) is not None


def check_base(run: Run, model: str, command: str) -> None:
    """Refuses a `model=` in the command that is not the model which the train run began with: it would be ignored.

    If the command names no model, any is accepted.
    """
    base = str(run.setting("model", model))
    is_same = Path(base).expanduser().resolve() == Path(model).expanduser().resolve()
    if not is_same and _names("model", command):
        raise UserError(
            f"model={model}: checkpoint {run.id[:8]} was trained from {base}; name one that was trained from {model} "
            f"(checkpoint=RUN; toolformer train model={model} makes it), or leave model= out"
        )
