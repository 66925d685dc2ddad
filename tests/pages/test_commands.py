"""Every command and key of the documentation: programs are there, configurations compose, of a sweep each."""

import re
import shlex
from pathlib import Path

import pytest

from scripts.keys import markdown
from tests.build import Patch
from tests.pages.page import COMMANDS_OF_PAGES, ROOT
from toolformer.cli import COMMANDS, main
from toolformer.jobs.config import compose, validate
from toolformer.step import STAGES

STAGE_OF = dict.fromkeys(("run", "tool", "complete", "demo"), "evaluate") | {"index": "generate"}
"""What the commands that take the configuration compose."""


def test_they_are_found() -> None:
    pages = set().union(*COMMANDS_OF_PAGES.values())
    assert (
        len(COMMANDS_OF_PAGES) > 60 and {"README.md", "training.md", "scaling.md", "quickstart.md"} <= pages
    )


@pytest.mark.parametrize("command", COMMANDS_OF_PAGES)
def test_a_command_is_as_the_program_takes_it(command: str, tmp_path: Path, monkeypatch: Patch) -> None:
    for name in ("corpus", "conf/experiment", "prompts", "tasks"):
        (tmp_path / name).mkdir(parents=True)
    own = re.search(
        r"^```yaml\n(.*?)^```", (ROOT / "docs/experiments.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(own[1] if own else "")
    monkeypatch.chdir(tmp_path)
    name, *words = shlex.split(command)
    assert name in {*STAGES, *COMMANDS}
    stage = name if name in STAGES else STAGE_OF.get(name)
    if stage is None or "--help" in words or "run" in COMMANDS_OF_PAGES[command]:
        return  # takes no configuration, or is run with its page's own
    given = [
        word.replace("DIR", str(tmp_path)) for word in words if re.match(r"[+~]*[a-z_@.]+[/a-z_.@]*=", word)
    ]
    if name not in {*STAGES, "run", "demo"}:
        validate(compose(stage, given))
        return
    checked = []
    monkeypatch.setattr(
        "toolformer.cli._stage_job", lambda _, flags, job: checked.append(validate(job.config)) or []
    )
    monkeypatch.setattr(
        "toolformer.cli.commands._run_job", lambda _, job: checked.append(validate(job.config)) or []
    )
    given = [word for word in given if not word.startswith(("hydra/launcher=", "hydra.launcher."))]
    flags = [word for word in words if word == "-m"]
    assert main([name, *flags, *given]) == 0 and checked


def test_the_page_of_keys_is_current(monkeypatch: Patch) -> None:
    for name in ("TOOLFORMER_RUNS", "TOOLFORMER_DATA_DIR", "TOOLFORMER_CACHE"):
        monkeypatch.delenv(name, raising=False)
    page = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    assert page == markdown(), "the schema has changed: python scripts/keys.py > docs/keys.md"
