"""Time to report and to list many finished evaluations.

    python -m benchmarks.speed.reports [evaluations=2000] [benchmarks=14]

Writes folders of trainings and evaluations, 7 metrics per benchmark, and prints the seconds of `toolformer report`'s work and
of `toolformer runs`, the CPU's seconds and the peak memory of each, and one JSON object on the last line.
"""

import contextlib
import io
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from toolformer import reporting
from toolformer.benchmarks import TASKS
from toolformer.benchmarks.speed.script import measured_usage, run, show
from toolformer.cli import main as command
from toolformer.decoding.settings import PAPER_SYSTEMS, TRAINED_ON
from toolformer.results import Beginning, Folder, Results
from toolformer.stages.config import compose
from toolformer.step import Step

MEASURES = ("score", "ci_low", "ci_high", "n", "n_ac", "call_share", "seconds")


@dataclass
class Options:
    """How much is reported."""

    evaluations: int = 2_000
    benchmarks: int = 14


def main(options: Options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = Results(Path(folder) / "runs")
        write(results, options)
        seconds = {
            "report": measured(lambda: reporting.build(results, out=Path(folder) / "report")),
            "runs": measured(lambda: command(["runs", f"paths.root={results.root}"])),
        }
    show(
        f"{options.evaluations} evaluations of {len(MEASURES) * options.benchmarks} metrics",
        seconds,
        {f"{name}_s": round(row["seconds"], 2) for name, row in seconds.items()},
    )


def measured(work: Callable[[], object]) -> dict[str, float]:
    """Seconds and peak memory of some work, whose output is not shown."""
    began, began_cpu = time.perf_counter(), time.process_time()
    with measured_usage() as usage, contextlib.redirect_stdout(io.StringIO()):
        work()
    ended, ended_cpu = time.perf_counter(), time.process_time()
    return {"seconds": ended - began, "CPU": ended_cpu - began_cpu, "GiB": usage.peak_memory_gib}


def write(results: Results, options: Options) -> None:
    """The folders: every system in turn; a training for each of ten seeds, and data."""
    whole = OmegaConf.to_container(compose("evaluate", []))
    assert isinstance(whole, dict)
    config = {str(key): value for key, value in whole.items()}
    for number in range(options.evaluations):
        system, seed = PAPER_SYSTEMS[number % len(PAPER_SYSTEMS)], number % 10
        config |= {"model": "gpt2", "seed": seed}
        inputs = {}
        if data := TRAINED_ON.get(system):
            step = Step("train", 1, {"seed": seed, "data": data, "trainer": config["trainer"]})
            with results.open(step, Beginning("train", config)) as run:
                if isinstance(run, Folder):
                    run.note(data=data)
            inputs["training"] = step
        metrics = {
            f"{task}/{measure}": 10.0 + number % 7
            for task in TASKS[: options.benchmarks]
            for measure in MEASURES
        }
        step = Step("evaluate", 1, {"number": number, "decoding": config["decoding"]}, inputs)
        with results.open(step, Beginning("evaluate", config, experiment="speed")) as run:
            assert isinstance(run, Folder)
            run.metrics(metrics)
            run.note(system=system, k=10, policy="10", comparison="same", wording="paper", dtype="float32")


if __name__ == "__main__":
    run(Options, main)
