"""The command line: `toolformer generate | train | evaluate | report`, and the commands of `COMMANDS`.

The four stages and `run` are Hydra applications (`application`); their configuration is checked before anything heavy is
imported. Bad input ends in one line and exit code 2. From Python, `run` returns the runs that a command made.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from toolformer.credentials import printable, without_credentials
from toolformer.errors import UsageError, UserError, near
from toolformer.progress import configure
from toolformer.step import STAGES
from toolformer.storage import REMEDIES

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from toolformer.cli.application import HydraJob
    from toolformer.results import Run

COMMANDS = {
    "run": "an experiment over all its stages, only what is missing: toolformer run experiment=smoke [--plan] [--json]",
    "demo": "all four stages in minutes: a small model teaches itself the calculator",
    "runs": "list runs and what they were made from; toolformer runs log and clean",
    "compare": "two evaluations sample by sample: toolformer compare RUN RUN",
    "explain": "why answers are right or wrong, and where calls are lost: toolformer explain RUN",
    "export": "C* as a data set, or a trained model with its card: toolformer export dataset|model RUN FOLDER",
    "lm_eval": "lm-eval's command line with the model `toolformer` and this project's tasks",
    "assets": "fetch the bundled models and data",
    "data": "list and fetch benchmark data and texts: toolformer data list | get NAME... DIR",
    "index": "make a corpus searchable: toolformer index corpus=jsonl corpus.path=FILE index.path=DIR",
    "tool": "run one tool by hand: toolformer tool calculator '723 / 252'",
    "complete": "continue a text with calls: toolformer complete 'The answer is'",
    "ui": "open the MLflow UI on this machine",
    "doctor": "what works here, and what to install for the rest",
    "help": "what a key means: toolformer help decoding.k",
}
PLAN_FLAGS = ("--plan", "--json")
"""Of the stages and `run`: only print what is done and what is to do, as a table or as JSON."""
_COMPUTING = ("generate", "train", "evaluate", "run", "demo", "explain", "complete", "lm_eval")
"""Commands that load a model."""
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_MODULES = ("runs", "export", "lm_eval", "data", "doctor", "help")
"""Commands with a module of their own, whose `main` they are; the others are functions of `toolformer.cli.commands`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code (2 for bad input)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a console that lacks a letter shows its escape
            stream.reconfigure(errors="backslashreplace")
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    code = _command(argv)
    if argv is not None and threading.current_thread() is threading.main_thread():  # a notebook goes on
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from toolformer.training.distributed import end_of_process

        end_of_process(code)
    if argv is None:
        _end(code)
    return code


EXIT_SECONDS = 10.0
"""How long libraries and tools may take to clean up at exit, in seconds, where one has left threads or processes."""


def _end(code: int) -> None:
    """Exit now; don't wait for hung threads and child processes of tools."""
    from concurrent.futures import wait
    from multiprocessing import active_children

    import psutil

    from toolformer.tools.threads import start

    if threading.active_count() == 1 and not psutil.Process().children():
        return
    for child in active_children():  # multiprocessing would wait for them
        with contextlib.suppress(psutil.Error):  # joblib's have no `kill` of their own
            psutil.Process(child.pid).kill()
    wait(
        [start(atexit._run_exitfuncs)], EXIT_SECONDS
    )  # multiprocessing's waits for a queue that nobody reads
    with contextlib.suppress(psutil.Error):
        children = psutil.Process().children(recursive=True)
        for process in children:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        for process in psutil.wait_procs(children, timeout=3)[1]:
            with contextlib.suppress(psutil.Error):
                process.kill()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _command(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if arguments[0] == "--version":
        from toolformer import __version__

        print(f"toolformer {__version__}")
        return 0
    # Of several processes that a launcher started, only the first one logs.
    follower = os.environ.get("RANK", "0") != "0"
    if threading.current_thread() is threading.main_thread():
        if not follower:
            signal.signal(signal.SIGTERM, _stop)  # a launcher ends its other processes at once
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _stop)
    _stopped.clear()
    try:
        _check_working_directory()
        _check_launcher(arguments)
        configure(quiet=follower or arguments[0] in ("tool", "doctor"))
        if arguments[0] in _COMPUTING:
            _share_cpu()
        return _named(arguments[0], arguments[1:])
    except BrokenPipeError:
        # The reader of our output is gone; a second message has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (Exception, KeyboardInterrupt) as error:
        code = 2
        if _stopped or isinstance(error, KeyboardInterrupt):  # a library may have made another error of it
            what, code = _SIGNALS[_stopped[-1][0] if _stopped else signal.SIGINT]
            message = f"{what}; run the same command again to resume"
        elif isinstance(error, UserError):
            message = printable(" ".join(str(error).split()))
            if isinstance(error, UsageError):
                message += f"; see toolformer {arguments[0]} --help"
        elif isinstance(error, OSError) and error.errno in REMEDIES:
            message = f"{_of_target(error)}; finished work is kept: {REMEDIES[error.errno]}"
        elif isinstance(error, RuntimeError) and _GPU_IS_FULL.match(str(error)):
            message = (
                f"{' '.join(str(error).split())[:120]}; finished work is kept: see with nvidia-smi what else uses the GPU, "
                "or lower engine.batch_tokens (generate), trainer.micro_batch_size (train) or decoding.batch_size (evaluate)"
            )
        else:
            raise
        if not follower:
            print(f"toolformer: {without_credentials(message)}", file=sys.stderr)
        return code


def _check_launcher(arguments: Sequence[str]) -> None:
    """UserError if a launcher started this command in several processes, each of which would do all of it."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or arguments[0] not in ("run", "demo", "generate", "evaluate"):
        return
    here = os.environ.get("LOCAL_WORLD_SIZE", count)
    key = "engine.workers" if arguments[0] in ("generate", "evaluate") else "trainer.processes"
    command = " ".join(
        argument for argument in arguments if "=" not in argument or argument.startswith("experiment=")
    )
    raise UserError(
        f"{arguments[0]}: a launcher started this command in {count} processes, each of which would do all of the work; start it "
        f"without a launcher: toolformer {command} ... {key}={here}"
    )


def _share_cpu() -> None:
    """Lets idle threads sleep if other processes keep this machine busy; PyTorch's would wait by spinning.

    Only works before PyTorch is loaded.
    """
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    is_settled = "torch" in sys.modules or not os.environ.keys().isdisjoint(_WAITING)
    if load > cores and not is_settled and os.environ.get("OMP_NUM_THREADS") != "1":
        os.environ["OMP_WAIT_POLICY"] = "passive"
        log.info(
            "other processes use this machine (load %.1f, cores %d): idle threads sleep (OMP_WAIT_POLICY=passive)",
            load,
            cores,
        )


def _check_working_directory() -> None:
    """UserError for a deleted working directory, or one whose name no record of a run could hold."""
    try:
        os.getcwd().encode()
    except FileNotFoundError:
        raise UserError("the working directory has been deleted; cd to an existing one") from None
    except UnicodeEncodeError:
        raise UserError(
            "the working directory's name is not UTF-8; rename the folder, or cd to another one"
        ) from None


def _of_target(error: OSError) -> OSError:
    """The error with only the target's name: shutil names the source of a failed copy first."""
    return OSError(error.errno, error.strerror, error.filename2 or error.filename)


_GPU_IS_FULL = re.compile(r"CUDA (error: )?out of memory")
_SIGNALS: dict[int, tuple[str, int]] = {
    signal.SIGTERM: ("terminated", 143),
    signal.SIGINT: ("interrupted", 130),
}
_ECHO = 1.0
"""Seconds in which a second signal is the first one again, sent by a terminal and by a launcher."""
_stopped: list[tuple[int, float]] = []
"""The signals, with their time, that came while a command ran: SIGTERM as from Slurm at the end of a job's time, SIGINT as from Ctrl-C."""


def _stop(number: int, _: object) -> None:
    if _stopped and time.monotonic() - _stopped[0][1] < _ECHO:
        return
    if _stopped:  # a second Ctrl-C: the clean-up takes too long, and everything on disk is whole
        os.write(sys.stderr.fileno(), f"toolformer: {_SIGNALS[number][0]} again; ended at once\n".encode())
        os._exit(_SIGNALS[number][1])
    _stopped.append((number, time.monotonic()))
    if number == signal.SIGTERM:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: only clean-up follows
    raise KeyboardInterrupt


def _named(name: str, arguments: list[str]) -> int:
    """Runs the command of that name."""
    if name in STAGES:
        return _stage(name, arguments)
    if name in COMMANDS:
        module = importlib.import_module(f"toolformer.cli.{name if name in _MODULES else 'commands'}")
        return int(getattr(module, "main" if name in _MODULES else name)(arguments))
    known = [*STAGES, *COMMANDS]
    raise UserError(f"there is no command {name!r}{near(name, known)}; commands are {', '.join(known)}")


def _usage() -> str:
    lines = ["usage: toolformer COMMAND [key=value ...]", "", "stages (each with --help):"]
    lines += [f"  {name:<11} {meaning}" for name, meaning in STAGES.items()]
    lines += ["", "commands:"]
    lines += [f"  {name:<11} {meaning}" for name, meaning in COMMANDS.items()]
    lines += ["", "sweeps: toolformer evaluate -m decoding.k=0,1,3,10"]
    lines += ["experiments: toolformer run experiment=table9 setting=small --plan"]
    return "\n".join([*lines, "documentation: docs/ of the repository"])


def run(arguments: Sequence[str]) -> list[Run]:
    """Runs a stage, `run` or `demo`; returns the runs of its jobs, those that were done before included.

        (evaluation,) = run(["evaluate", "experiment=demo", "system=toolformer"])

    A sweep's launcher may run jobs in other processes; their runs are not among these. UserError for bad input.
    """
    from toolformer.cli.commands import run_experiment

    configure()
    name, *others = arguments
    if name in STAGES:
        return _run_stage(name, others)
    if name in ("run", "demo"):
        return run_experiment(others, name)
    raise UserError(f"{name!r} makes no runs; name one of {', '.join((*STAGES, 'run', 'demo'))}")


def _stage(stage: str, arguments: list[str]) -> int:
    _run_stage(stage, arguments)
    return 0


def _run_stage(stage: str, arguments: Sequence[str]) -> list[Run]:
    from toolformer.cli.application import run_application
    from toolformer.cli.help import stage_help

    flags = {*PLAN_FLAGS} & {*arguments}
    others = [argument for argument in arguments if argument not in flags]
    return run_application(
        stage, others, partial(_stage_job, stage, flags), partial(stage_help, stage), PLAN_FLAGS
    )


def _stage_job(stage: str, flags: Collection[str], job: HydraJob) -> list[Run]:
    from toolformer.cli.commands import show_plan
    from toolformer.jobs.perform import execute
    from toolformer.jobs.plan import plan

    if flags:
        show_plan(plan(stage, job.overrides, job.differing), flags)
        return []
    return execute(plan(stage, job.overrides, job.differing), parent=job.sweep)
