"""A page of the documentation as its tests read it: files with a title, and commands in blocks of bash."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import teach, tiny_model, tiny_tokenizer
from toolformer.cli import main

ROOT = Path(__file__).resolve().parents[2]
_FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
_BASH = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(?:bash|sh)\n(.*?)^```|((?:^ {4,}\S[^\n]*\n)+)", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^(?:toolformer|lm_eval|python|torchrun|srun|ray|mlflow|make|bash|for) (?![=(])")
_COMMAND = re.compile(
    r"(?:^|\s)((?:toolformer|lm_eval) .*)|-m ((?:toolformer\.cli|benchmarks\.speed\.\w+).*)|^((?:mlflow|ray|make|bash) .*)"
)
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


@dataclass(frozen=True)
class Documented:
    """A command anywhere in the documentation."""

    page: str
    words: tuple[str, ...]
    remark: str
    fenced: bool
    """Whether it stands in a block of its page's own test."""

    @property
    def needs(self) -> str:
        """What it needs that not every machine has, as its remark says: `the hub`, `GPUs`, ..."""
        found = re.search(r"\bneeds (.+)$", self.remark)
        return found[1] if found else ""

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def documented() -> list[Documented]:
    """Every command of every page, lines joined, without its remark."""
    found = []
    for page in PAGES:
        for fenced, indented in _BLOCK.findall(page.read_text(encoding="utf-8")):
            block = re.sub(r"\\\n\s*", "", fenced or indented)
            for line in map(str.strip, block.splitlines()):
                match = _COMMAND.search(line) if _LINE.match(line) else None
                if match is None:
                    continue
                command = next(filter(None, match.groups())).replace("toolformer.cli", "toolformer")
                command = re.split(r"\s(?=#)|;|\s&", command)[0]
                words = shlex.split(re.sub(r"\[(?=\w+=)([^\]]*)\]", r"\1", command))
                found.append(
                    Documented(page.name, tuple(words), line.partition(" #")[2].strip(), bool(fenced))
                )
    return found


@dataclass(frozen=True)
class Command:
    """A line of a block: its words after `toolformer`, and what the remark behind it promises."""

    words: list[str]
    promise: str

    def answers(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Runs a command of a tool and compares what it prints with what is promised.

        `no result: REASON` is no result with this reason, words in `A > b` mean that something is found.
        """
        capsys.readouterr()
        code = main(self.words)
        shown = capsys.readouterr()
        if self.promise.startswith("no result: "):
            assert code == 1 and f"gave {self.promise}" in shown.err
        elif self.promise == "Title > text":
            assert code == 0 and " > " in shown.out
        else:
            assert (code, shown.out) == (0, f"{self.promise}\n")


class Page:
    """docs/NAME.md."""

    def __init__(self, name: str) -> None:
        self.text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        self.files = _FILE.findall(self.text)
        lines = [line for block in _BASH.findall(self.text) for line in block.splitlines() if line]
        self.others = [line.partition("#")[0].strip() for line in lines if not line.startswith("toolformer ")]
        """Commands of other programs."""
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
    tokenizer = tiny_tokenizer()
    model = tiny_model("gpt2", len(tokenizer), context=1024)
    chance = random.Random(0)
    teach(model, tokenizer, (" ".join(chance.choice(pieces) for _ in range(20)) for _ in range(150)))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def tiny(model: Path, tools: Sequence[str], heldout: str) -> list[str]:
    """What makes a stage fit a tiny model."""
    return [
        f"model={model}", "lm.dtype=float32", "engine.threads=1", "propose.force_name=true",
        *(
            f"tool.{tool}.{key}" for tool in tools
            for key in ("filter_threshold=-100", "max_positions=5", "samples=5", "max_call_tokens=12")
        ),
        "heldout=jsonl", f"heldout.path={heldout}", "trainer.learning_rate=3e-3", "trainer.batch_size=2",
        "trainer.micro_batch_size=2", "trainer.sequence_length=128", "trainer.eval_every=30",
        "decoding.max_call_tokens=16", "decoding.max_result_tokens=16",
    ]  # fmt: skip
