"""A job: one stage with its configuration, the results that it reads, and the step that names its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from toolformer.jobs.config import Config
from toolformer.jobs.config.overrides import masked_overrides
from toolformer.step import Step


@dataclass(frozen=True)
class Sources:
    """Inputs of a stage: steps and models, never `latest`."""

    annotations: tuple[Step, ...] = ()
    """Data of a training; for an evaluation of held-out perplexity, the annotations whose held-out texts it reads."""
    training: Step | None = None
    """The training that made the evaluated model."""
    model: str = ""
    """The model where no training made it: a bundled one, a folder or a hub name."""

    @property
    def keys(self) -> list[str]:
        """The keys of the steps that are read."""
        return [step.key() for step in (self.training, *self.annotations) if step]


@dataclass(frozen=True)
class Job:
    """A stage with one configuration. `plan` makes it, `perform` does it."""

    stage: str
    config: Config = field(repr=False, compare=False)
    """The effective one (`config.effective`), which names runs by their ids."""
    sources: Sources
    step: Step
    reads: Sequence[str] = ()
    """The keys of the steps that earlier jobs of its plan make for it."""
    overrides: Sequence[str] = ()
    """Which compose its configuration: as they were typed, and those that name the runs by their ids."""
    differing: Sequence[str] = ()
    """Those of them that distinguish it from the other jobs of its plan or sweep."""

    @property
    def key(self) -> str:
        """Jobs with the same key are the same work of the same experiment."""
        return f"{self.step.key()} {self.config.name}"

    @property
    def label(self) -> str:
        """Label that distinguishes it from the other jobs of its stage."""
        label = [*self.differing]
        if self.stage == "evaluate":
            label.append(",".join(self.config.benchmarks))
        if self.stage == "report":
            label.append(f"name={self.config.name}")
        return " ".join(masked_overrides(label))
