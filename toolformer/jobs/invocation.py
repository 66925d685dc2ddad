"""How a stage was started: its command and its sweep, which decide no result."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from toolformer.jobs.config import Config
from toolformer.jobs.config.overrides import masked_overrides
from toolformer.results import Run, RunInfo
from toolformer.results.provenance import describe, git_commit, run_name

_IN_TITLES = ("system=", "decoding.k=", "model=", "data=", "dataset=", "checkpoint=", "wording=")
"""Overrides that a run's title shows anyway."""


@dataclass(frozen=True)
class Invocation:
    """The command of a stage, and its sweep."""

    command: str = ""
    """The command line, without secrets."""
    parent: str = ""
    """The id of the sweep that it belongs to."""
    label: str = ""
    """What distinguishes it from the other runs of the sweep, for its title."""

    def run_info(
        self,
        config: Config,
        name: str,
        details: Mapping[str, object],
        made_from: Sequence[Run] = (),
        **facts: Any,
    ) -> RunInfo:
        """What a run's folder says of it from the start.

        Args:
            name: the title, to which the label is added.
            details: lines of the description.
            facts: as `Run.facts`.
        """
        title = run_name(f"{name} {self.label}")
        description = describe(self.command, details, made_from)
        return RunInfo(title, asdict(config), self.command, config.name, self.parent, description, facts)


DIRECT = Invocation()
"""From Python, by no command."""


def run_stage(stage: str, config: Config, invocation: Invocation = DIRECT) -> Any:
    """Runs a stage with a valid configuration; returns its run, or the report."""
    return getattr(importlib.import_module(f"toolformer.jobs.{stage}"), stage)(config, invocation)


def title_label(overrides: Iterable[str]) -> str:
    """The overrides that distinguish a run, without those that its title shows anyway, and without secrets."""
    return " ".join(
        masked_overrides(override for override in overrides if not override.startswith(_IN_TITLES))
    )


def already_done(run: Run) -> str:
    """That a run is done, and by which commit if the code has changed since, or may have."""
    commit = git_commit()
    if commit == run.commit and not commit.endswith("-dirty"):
        return "already done"
    if run.commit.endswith("-dirty"):
        return f"already done, by commit {run.commit[:8]} with uncommitted changes"
    return f"already done, by commit {run.commit[:8]}; the code has changed since"
