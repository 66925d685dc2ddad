"""Time to the first candidate of a large corpus, time of a finished run, and memory.

    python -m benchmarks.speed.corpus [documents=100000] [model=tests/golden/model]

Annotates generated documents with the command itself; one document in a thousand has a date, and with it a candidate. Prints
one JSON object on the last line: seconds from the start of the command to the first candidate, to the end of reading the corpus
and to the end; seconds of the same command repeated, and repeated with a new modification time of the corpus; and the peak
resident memory of each in GiB.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolformer.benchmarks.speed.script import run, show
from toolformer.errors import UserError

TEXT = "On that day we met again, and spoke of the weather, of the harvest and of the road to the sea. " * 4
MOMENTS = {"first_candidate_s": "generate/*/shards*/000000-*.sha256", "planned_s": "generate/plans/*.json"}
"""The files that are written at these moments."""


@dataclass
class Options:
    """What is annotated."""

    documents: int = 100_000
    model: str = "tests/golden/model"


def main(options: Options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus, root = Path(folder) / "corpus.jsonl", Path(folder) / "runs"
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
        started = time.time()
        results = measured("ended", command)
        for moment, pattern in MOMENTS.items():
            written = min(file.stat().st_mtime for file in root.glob(pattern))
            results[moment] = round(written - started, 1)
        results |= measured("already_done", command)
        corpus.touch()
        results |= measured("touched", command)
    show(f"{options.documents} documents", {}, results)


def measured(name: str, command: Sequence[str]) -> dict[str, float]:
    """Seconds and peak memory of a command."""
    started = time.time()
    _, status, usage = os.wait4(subprocess.Popen(command).pid, 0)
    if status:
        raise UserError(f"the command failed: {' '.join(command)}")
    return {f"{name}_s": round(time.time() - started, 1), f"{name}_gib": round(usage.ru_maxrss / 2**20, 2)}


if __name__ == "__main__":
    run(Options, main)
