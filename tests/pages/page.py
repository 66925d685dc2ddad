"""A page of the documentation as its tests read it: files, each following a line with its name, and commands in blocks of bash."""

import random
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.build import Capture
from tests.processes import save_taught_model
from toolformer.cli import main

ROOT = Path(__file__).resolve().parents[2]
_FILE = re.compile(r"^`([^`\n]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
_BASH = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    """A line of a block: its words after `toolformer`, and what the remark behind it promises."""

    words: list[str]
    promise: str

    def answers(self, capsys: Capture) -> None:
        """Runs a command of a tool and compares what it prints with what is promised, a result or a reason."""
        capsys.readouterr()
        code = main(self.words)
        shown = capsys.readouterr()
        if self.promise.startswith("no result: "):
            assert code == (2 if "argument" in self.promise else 1) and f"gave {self.promise}" in shown.err
        else:
            assert (code, shown.out) == (0, f"{self.promise}\n")


class Page:
    """docs/NAME.md."""

    def __init__(self, name: str) -> None:
        self.text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        self.files = _FILE.findall(self.text)
        lines = [line for block in _BASH.findall(self.text) for line in block.splitlines() if line]
        self.commands = [
            Command(shlex.split(command)[1:], promise.strip())
            for command, _, promise in (
                line.partition("#") for line in lines if line.startswith("toolformer ")
            )
        ]

    def write_files(self, folder: Path) -> None:
        for name, content in self.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content, encoding="utf-8")


def save_model(folder: Path, pieces: Sequence[str]) -> None:
    """A tiny model that has learnt to write `pieces`, one after the other in any order."""
    chance = random.Random(0)
    save_taught_model(folder, (" ".join(chance.choice(pieces) for _ in range(20)) for _ in range(150)))


def tiny(model: Path, tools: Sequence[str], heldout: str) -> list[str]:
    """What makes a stage fit a tiny model."""
    return [
        f"model={model}", "lm.dtype=float32", "engine.threads=1", "propose.force_name=true",
        *(
            f"tool.{tool}.{key}" for tool in tools
            for key in ("filter_threshold=-100", "max_positions=5", "samples=5", "max_call_tokens=14", "max_result_tokens=16")
        ),
        "corpus@heldout=jsonl", f"heldout.path={heldout}", "trainer.learning_rate=3e-3", "trainer.batch_size=2",
        "trainer.micro_batch_size=2", "trainer.sequence_length=128", "trainer.eval_every=30",
    ]  # fmt: skip


PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs").rglob("*.md"),
]


BLOCK = re.compile(r"^```(?:bash|sh)\n(.*?)^```|((?:^ {4,}\S[^\n]*\n)+)", re.MULTILINE | re.DOTALL)


COMMAND = re.compile(r"(?:(?:torchrun|srun|for gpu) .*)?\btoolformer(?:\.cli)? (?![=(])(.*)")


def documented() -> dict[str, set[str]]:
    """Every command of every page, lines joined, without its remark; its pages, or `run` where their tests run it."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        for fenced, indented in BLOCK.findall(page.read_text(encoding="utf-8")):
            place = "run" if fenced and page.name in ("your-own.md", "extending.md") else page.name
            for line in re.sub(r"\\\n\s*", "", fenced or indented).splitlines():
                if match := COMMAND.match(line.strip()):
                    command = re.split(r"\s+#|;|\s&", match[1])[0].strip()
                    found.setdefault(re.sub(r"\[(?=\w+=)([^\]]*)\]", r"\1", command), set()).add(place)
    return found


COMMANDS_OF_PAGES = documented()
