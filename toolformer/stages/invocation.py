"""How a stage was asked for: what it logs of its command, and nothing that decides its result."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from toolformer.results import Run, RunInfo
from toolformer.results.provenance import describe, git_commit, run_name
from toolformer.stages.config import Config


@dataclass(frozen=True)
class Invocation:
    """The command of a stage, and its place in a sweep."""

    command: str = ""
    """The command line, without secrets."""
    parent: str = ""
    """The id of the sweep that it belongs to."""
    label: str = ""
    """What distinguishes it from the other runs of the sweep, for its name."""

    def run_info(
        self,
        config: Config,
        name: str,
        about: Mapping[str, object],
        made_from: Sequence[Run] = (),
        **facts: Any,
    ) -> RunInfo:
        """What a run's folder says of it from the start.

        Args:
            name: the title, to which the label is added.
            about: lines of the description.
            facts: as `Run.facts`.
        """
        title = run_name(f"{name} {self.label}")
        description = describe(self.command, about, made_from)
        return RunInfo(title, asdict(config), self.command, config.name, self.parent, description, facts)


def already_done(run: Run) -> str:
    """That a run is done, and by which commit if the code has changed since, or may have."""
    commit = git_commit()
    if commit == run.commit and not commit.endswith("-dirty"):
        return "already done"
    if run.commit.endswith("-dirty"):
        return f"already done, by commit {run.commit[:8]} with uncommitted changes"
    return f"already done, by commit {run.commit[:8]}; the code has changed since"


DIRECT = Invocation()
"""From Python, by no command."""
