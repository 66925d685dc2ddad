"""How soon a large corpus is worked at, how fast a finished run answers, and in how much memory.

    python -m benchmarks.speed.corpus [documents=100000] [model=tests/golden/model]

Annotates made-up documents by the command itself; one document in a thousand has a date, and with it a candidate. Prints one
JSON object on the last line: seconds from the start of the command to the first candidate, until the corpus was read, and to
the end; seconds of the same command again, and once more with another time of change of the corpus; and the peak resident
memory of each in GiB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed.script import run, show
from toolformer.errors import UserError

TEXT = "On that day we met again, and spoke of the weather, of the harvest and of the road to the sea. " * 4
MOMENTS = {"first_candidate": "generate/*/shards*/000000-*.sha256", "planned": "generate/plans/*.json"}
"""The files that appear at these moments."""


@dataclass
class Options:
    """What is annotated."""

    documents: int = 100_000
    model: str = "tests/golden/model"


def main(options: Options) -> None:
    with tempfile.TemporaryDirectory() as place:
        corpus, root = Path(place) / "corpus.jsonl", Path(place) / "runs"
        with corpus.open("w") as file:
            for n in range(options.documents):
                url = f"https://example.org/{'2020/05/14' if n % 1000 == 0 else 'undated'}/"
                file.write(json.dumps({"id": f"d{n}", "text": f"{n}. {TEXT}", "url": url}) + "\n")
        command = [
            sys.executable, "-m", "toolformer.cli", "generate", f"model={options.model}", f"paths.root={root}",
            "corpus=jsonl", f"corpus.path={corpus}", "corpus.limit=null", "tools=[calendar]", "propose.force_name=true",
            "tool.calendar.samples=1", "tool.calendar.max_positions=1", "tool.calendar.max_call_tokens=4",
            "tool.calendar.start_threshold=0.0", "lm.dtype=float32",
        ]  # fmt: skip
        figures = measured("ended", command, root, MOMENTS) | measured("already_done", command, root, {})
        corpus.touch()
        figures |= measured("touched", command, root, {})
    show(f"{options.documents} documents", {}, figures)


def measured(name: str, command: Sequence[str], root: Path, moments: Mapping[str, str]) -> dict[str, float]:
    """Seconds until each of the moments and until the command's end, and its peak memory."""
    figures: dict[str, float] = {}
    started = time.monotonic()
    process = subprocess.Popen(command)
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        time.sleep(0.1)
        for moment, pattern in moments.items():
            if f"{moment}_s" not in figures and any(root.glob(pattern)):
                figures[f"{moment}_s"] = round(time.monotonic() - started, 1)
    _, status, usage = ended
    if status:
        raise UserError(f"the command failed: {' '.join(command)}")
    figures[f"{name}_s"] = round(time.monotonic() - started, 1)
    return figures | {f"{name}_gib": round(usage.ru_maxrss / 2**20, 2)}


if __name__ == "__main__":
    run(Options, main)
