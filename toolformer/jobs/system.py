"""Who answers the questions of an evaluation: a model, the tools that it calls, and how it is decoded (paper, section 4)."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolformer.decoding.settings import policy_label
from toolformer.jobs import instantiate, steps
from toolformer.jobs.config import Config
from toolformer.jobs.train import model_folder
from toolformer.results import Run
from toolformer.results.provenance import model_name
from toolformer.step import Step
from toolformer.tools.base import Tool
from toolformer.tools.identity import model_files


@dataclass(frozen=True)
class System:
    """A system as configured; `find` also finds its training."""

    config: Config
    trained: Run | None = None
    """The train run that made its model."""

    @classmethod
    def find(cls, config: Config) -> "System":
        """The system with the training that `checkpoint` names, or with its model folder, if it is a trained one.

        UserError if there is no such training.
        """
        return cls(steps.local_model(config), steps.named_training(config))

    @property
    def calls(self) -> bool:
        """Whether it calls tools."""
        return steps.calls_tools(self.config)

    @property
    def policy(self) -> str:
        """When a call starts, in words (`policy_label`)."""
        return policy_label(asdict(steps.effective_decoding(self.config)))

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

    @property
    def step(self) -> Step:
        """Its answers, whatever it is asked."""
        return steps.answer(self.config, self.trained.step if self.trained else None)

    def identity(self) -> dict[str, Any]:
        """What decides its answers besides decoding, which is part of the key of every answer by itself."""
        identity: dict[str, Any] = {"model": self.step.key(without=["decoding"])}
        if self.trained:
            # The same settings trained again after the model was deleted may come to other weights in the same folder.
            identity["weights"] = model_files(Path(self.model))
        return identity

    def calling(self) -> "System":
        """The same with calls, whatever k it has."""
        return System(steps.calling_config(self.config), self.trained)
