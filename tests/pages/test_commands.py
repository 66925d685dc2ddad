"""Every command and key of the documentation: programs are there, configurations compose, job by job, and are valid."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from scripts.keys import markdown
from tests.pages.page import Documented, documented
from toolformer.cli import COMMANDS
from toolformer.stages.config import STAGES, Config, ToolConfig, compose, validate
from toolformer.stages.config.keys import meanings
from toolformer.stages.config.multirun import parse

STAGE_OF = {"run": "evaluate", "tool": "evaluate", "complete": "evaluate", "index": "generate", "demo": "evaluate", "tune-policy": "evaluate"}  # fmt: skip
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
    ran = command.fenced and command.page in ("tools.md", "extending.md")
    if stage is None or ran or "--help" in words:
        return  # takes no configuration, or is run with its page's own
    given = [
        word.replace("DIR", str(tmp_path)) for word in words if re.match(r"[+~]*[a-z_@.]+[/a-z_.@]*=", word)
    ]
    sweep = parse(stage, given)
    experiment = any(word.startswith("experiment=") for word in words)
    assert "-m" in words or name == "run" or not sweep.choices or experiment
    for job in sweep.jobs(stage, {}):
        validate(compose(stage, job))


PAGE = Path(__file__).resolve().parents[2] / "docs" / "keys.md"


def test_the_page_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOOLFORMER_RUNS", "TOOLFORMER_DATA_DIR", "TOOLFORMER_CACHE"):
        monkeypatch.delenv(name, raising=False)
    command = "python scripts/keys.py > docs/keys.md"
    assert PAGE.read_text(encoding="utf-8") == markdown(), f"the schema has changed: {command}"


def test_every_key_says_what_it_means() -> None:
    def silent(schema: Any) -> list[str]:
        below = [getattr(schema, field.name) for field in dataclasses.fields(schema)]
        own = {
            field.name
            for field in dataclasses.fields(schema)
            if not dataclasses.is_dataclass(getattr(schema, field.name))
        }
        return sorted(own - set(meanings(type(schema)))) + [key for one in below if dataclasses.is_dataclass(one) for key in silent(one)]  # fmt: skip

    assert silent(Config()) == silent(ToolConfig()) == []
