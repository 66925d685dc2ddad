"""The untrained model asked in two further ways, as baselines of the first registered experiment (exploratory; not registered).

    python scripts/baselines.py DATA FOLDER

*Chat template*: each question is a message of the user, and the model answers as an assistant. *Four examples*: before each question
are four others of its benchmark with their answers, without tools. Both by `toolformer lm_eval`, which writes to FOLDER; a benchmark that is
there is not asked again.

Writes docs/results/baselines.json: for every baseline and benchmark the ids of the answers that are right. DATA is prepared as for the
experiment (conf/setting/headline.yaml).
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import headline
from toolformer.benchmarks import TASKS_DIR
from toolformer.errors import UserError
from toolformer.storage import atomic_write

FILE = Path(__file__).resolve().parents[1] / "docs" / "results" / "baselines.json"
TASKS = ("arithmetic", "mawps", "svamp", "nq")
ASKED = {"M, chat template": ["--apply_chat_template"], "M, four examples": []}
"""By the name of a baseline, lm-eval's options."""
EXAMPLES = {"M, four examples": 4}
MODEL = "pretrained=smollm2,system=model,tools=none,dtype=bfloat16,min_new_tokens=8"


def indices(rows: Sequence[dict[str, Any]], ids: Sequence[str]) -> list[int]:
    """Where the questions with these ids are among all of a benchmark."""
    places = {str(row["id"]): number for number, row in enumerate(rows)}
    return sorted(places[identity] for identity in ids)


def ask(
    data: Path, folder: Path, chosen: Mapping[str, Sequence[int]], options: Sequence[str], examples: int
) -> dict[str, dict[str, list[str]]]:
    """By benchmark and seed the ids of the questions that lm-eval scores as right."""
    if missing := {task: [*places] for task, places in chosen.items() if not answers(folder, task)}:
        tasks = with_examples(folder / "tasks", examples)
        command = [
            *(sys.executable, "-m", "toolformer.cli", "lm_eval", "--model", "toolformer", "--model_args", MODEL),
            *("--include_path", str(tasks), "--tasks", ",".join(map(_named, missing))),
            *("--samples", json.dumps({_named(task): places for task, places in missing.items()})),
            *("--metadata", json.dumps({"data_dir": str(data)}), "--log_samples", "--output_path", str(folder), *options),
        ]  # fmt: skip
        subprocess.run(command, check=True)
    return {
        task: {"0": sorted(str(row["doc"]["id"]) for row in answers(folder, task) if row["score"])}
        for task in chosen
    }


def with_examples(folder: Path, examples: int) -> Path:
    """The benchmarks with so many examples before each question; their own files say that there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in TASKS:
        (path,) = TASKS_DIR.rglob(f"{task}.yaml")
        text = f"include: {path}\ntask: {_named(task)}\nnum_fewshot: {examples}\n"
        (folder / f"{_named(task)}.yaml").write_text(text, encoding="utf-8")
    return folder


def _named(task: str) -> str:
    return f"{task}_asked"


def answers(folder: Path, task: str) -> list[dict[str, Any]]:
    """The samples of a benchmark that lm-eval wrote below a folder."""
    files = sorted(folder.rglob(f"samples_{_named(task)}_*.jsonl"))
    return [json.loads(line) for file in files[-1:] for line in file.read_text(encoding="utf-8").splitlines()]


def main(data: Path, folder: Path) -> None:
    registered = json.loads((headline.REGISTRATION / "test.json").read_text(encoding="utf-8"))
    rows = headline.questions(data, TASKS)
    chosen = {task: indices(rows[task], registered[task]) for task in TASKS}
    right = {
        name: ask(
            data, folder / name.removeprefix("M, ").replace(" ", "-"), chosen, options, EXAMPLES.get(name, 0)
        )
        for name, options in ASKED.items()
    }
    atomic_write(FILE, (json.dumps(right, indent=0, sort_keys=True) + "\n").encode())
    print(FILE)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("python scripts/baselines.py DATA FOLDER", file=sys.stderr)
        sys.exit(2)
    try:
        main(*map(Path, sys.argv[1:]))
    except (OSError, UserError, subprocess.CalledProcessError) as error:
        print(f"baselines: {error}", file=sys.stderr)
        sys.exit(2)
