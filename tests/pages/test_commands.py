"""Every command of the documentation: its program is there, and its configuration composes, job by job, and is valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages.page import Documented, documented
from toolformer.commands import COMMANDS
from toolformer.config import STAGES, compose, validate
from toolformer.config.sweeps import parse

STAGE_OF = {
    "run": "evaluate",
    "tool": "evaluate",
    "complete": "evaluate",
    "index": "generate",
    "demo": "evaluate",
}
"""What the commands that take the configuration compose."""
OURS = [one for one in documented() if one.words[0] in ("toolformer", "lm_eval")]
DISTINCT = list({one.words: one for one in reversed(OURS)}.values())[::-1]
"""Those that several pages have once, of the first page."""


def test_they_are_found() -> None:
    pages = {one.page for one in OURS}
    assert len(OURS) > 60 and {"README.md", "training.md", "scaling.md", "quickstart.md"} <= pages


@pytest.mark.parametrize("command", DISTINCT, ids=str)
def test_a_command_is_as_the_program_takes_it(
    command: Documented, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("corpus", "conf/experiment", "prompts", "tasks"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    program, name, *words = command.words
    if program == "lm_eval":
        assert name == "--model" and words[0] == "toolformer"
        return
    assert name in {*STAGES, *COMMANDS}
    stage = name if name in STAGES else STAGE_OF.get(name)
    if stage is None or command.page in ("tools.md", "extending.md") or "--help" in words:
        return  # takes no configuration, or is run with its page's own
    given = [
        word.replace("DIR", str(tmp_path)) for word in words if re.match(r"[+~]*[a-z_@.]+[/a-z_.@]*=", word)
    ]
    sweep = parse(stage, given)
    experiment = any(word.startswith("experiment=") for word in words)
    assert "-m" in words or name == "run" or not sweep.choices or experiment
    for job in sweep.jobs(stage, {}):
        validate(compose(stage, job))
