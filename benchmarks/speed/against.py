"""Speed of this checkout against another one, in one run: the same script with the same options, in turns.

    python -m benchmarks.speed.against FOLDER decode [rounds=2] [prompts=192] [dtype=float32] ...

FOLDER is a checkout of another commit, run with this environment's packages; what follows the script are its options. Its script
and this one run one after the other, `rounds` times, beginning with FOLDER's: other work on the machine slows both. Prints the ratios of every run, and as one JSON object
on the last line the medians of both sides and, of each ratio, this checkout's median as a share of the other's.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parents[2]
SCRIPTS = ("annotate", "decode", "train", "overhead")


def measured(checkout: Path, script: str, options: Sequence[str]) -> dict[str, float]:
    """The numbers on the last line of a script, run in a checkout; ends this script if that one fails."""
    command = [sys.executable, "-m", f"benchmarks.speed.{script}", *options]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{script} failed in {checkout}")
    results = json.loads(done.stdout.splitlines()[-1])
    return {name: value for name, value in results.items() if isinstance(value, int | float)}


def main(words: Sequence[str]) -> None:
    if len(words) < 2 or words[1] not in SCRIPTS:
        sys.exit(f"{(__doc__ or '').split(chr(10) * 2)[1].strip()}, with one of {', '.join(SCRIPTS)}")
    other, script, options = Path(words[0]).resolve(), words[1], list(words[2:])
    rounds = next((int(word.removeprefix("rounds=")) for word in options if word.startswith("rounds=")), 2)
    options = [word for word in options if not word.startswith("rounds=")]
    runs: dict[str, list[dict[str, float]]] = {"other": [], "here": []}
    for number in range(rounds):
        for side, checkout in (("other", other), ("here", HERE)):
            runs[side].append(measured(checkout, script, options))
            print(number + 1, checkout, json.dumps(runs[side][-1]), flush=True)
    other_medians, medians = (
        {name: statistics.median(run[name] for run in runs[side]) for name in runs[side][0]}
        for side in ("other", "here")
    )
    shares = {
        name: round(medians[name] / value, 3)
        for name, value in other_medians.items()
        if name in medians and value
    }
    print(json.dumps({"other": other_medians, "here": medians, "here_of_other": shares}))


if __name__ == "__main__":
    main(sys.argv[1:])
