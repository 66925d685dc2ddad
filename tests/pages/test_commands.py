"""Every command of the documentation: its program is there, and its configuration composes, job by job, and is valid.

Blocks of ```bash are run whole by the tests of their pages; the others need data, a GPU, a server or hours.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.pages.page import ROOT
from toolformer.commands import COMMANDS
from toolformer.config import STAGES, compose, validate
from toolformer.config.sweeps import parse

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]  # fmt: skip
_BLOCK = re.compile(r"^```(?:bash|sh)\n(.*?)^```|((?:^ {4,}\S.*\n)+)", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|do |\s-m )(toolformer(?:\.cli)? (?!=).*|(?<!-)lm_eval .*)")
STAGE_OF = {
    "run": "evaluate",
    "tool": "evaluate",
    "complete": "evaluate",
    "index": "generate",
    "demo": "evaluate",
}
"""What the commands that take the configuration compose."""


def commands() -> list[tuple[str, str]]:
    """Page and command, lines joined, without its remark."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        for fenced, indented in _BLOCK.findall(page.read_text(encoding="utf-8")):
            block = re.sub(r"\\\n\s*", "", fenced or indented)
            for line in block.splitlines():
                if (match := _COMMAND.search(line.strip())) is not None:
                    command = re.split(r"\s+#|;|\s&", match[1])[0].strip()
                    found.append((page.name, command.replace("toolformer.cli", "toolformer")))
    return found


def test_they_are_found() -> None:
    names = [name for name, _ in commands()]
    assert len(names) > 60 and {"README.md", "training.md", "scaling.md", "quickstart.md"} <= set(names)


@pytest.mark.parametrize(("page", "command"), commands())
def test_a_command_is_as_the_program_takes_it(
    page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("corpus", "conf/experiment", "prompts", "tasks"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    program, name, *words = shlex.split(re.sub(r"\[(?=\w+=)([^\]]*)\]", r"\1", command))
    if program == "lm_eval":
        assert name == "--model" and words[0] == "toolformer"
        return
    assert name in {*STAGES, *COMMANDS}
    stage = name if name in STAGES else STAGE_OF.get(name)
    if stage is None or page in ("tools.md", "extending.md") or "--help" in words:
        return  # takes no configuration, or is run with its page's own
    given = [
        word.replace("DIR", str(tmp_path)) for word in words if re.match(r"[+~]*[a-z_@.]+[/a-z_.@]*=", word)
    ]
    sweep = parse(stage, given)
    assert "-m" in words or name == "run" or not sweep.choices or "experiment=" in command
    for job in sweep.jobs(stage, {}):
        validate(compose(stage, job))
