"""The command line: `toolformer generate | train | evaluate | report`, and the commands of `toolformer.commands`.

The four stages are Hydra applications; their configuration is checked before anything heavy is imported. Bad input ends
in one line and exit code 2.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolformer.commands import COMMANDS, STAGES, run_command
from toolformer.errors import UserError
from toolformer.logs import configure

if TYPE_CHECKING:
    from toolformer.config import Config


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code (2 for bad input)."""
    code = _command(argv)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from toolformer.training.distributed import end_of_process

        end_of_process(code)
    return code


def lm_eval() -> int:
    """The environment's program `lm_eval`; returns the exit code.

    lm-eval's own has no door for the models of others, so the set-up puts this one in its place: it is `toolformer
    lm_eval` where the words name this project's model or tasks, and lm-eval's own otherwise.
    """
    from toolformer.commands.lm_eval import is_ours

    if is_ours(sys.argv[1:]):
        return main(["lm_eval", *sys.argv[1:]])
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
    return 0


def _command(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if arguments[0] == "--version":
        from toolformer import __version__

        print(f"toolformer {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    # Of several processes that a launcher started, the first one speaks.
    follower = os.environ.get("RANK", "0") != "0"
    configure(quiet=follower or name in ("tool", "complete", "completion", "doctor"))
    try:
        if name in STAGES:
            return _stage(name, rest)
        if name in COMMANDS:
            return run_command(name, rest)
        raise UserError(f"there is no command {name!r}; commands are {', '.join([*STAGES, *COMMANDS])}")
    except UserError as error:
        if not follower:
            print(f"toolformer: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output is gone; a second message has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT):
            raise
        print(
            f"toolformer: {error}; what is finished is kept, make room or name another folder",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("toolformer: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 130


def _usage() -> str:
    lines = [
        "usage: toolformer COMMAND [key=value ...]",
        "",
        "stages (Hydra applications, each with --help):",
    ]
    lines += [f"  {name:<11} {meaning}" for name, meaning in STAGES.items()]
    lines += ["", "commands:"]
    lines += [f"  {name:<11} {meaning}" for name, meaning in COMMANDS.items()]
    lines += ["", "sweeps: toolformer evaluate -m decoding.k=0,1,3,10"]
    lines += [
        "experiments: toolformer run experiment=table9 --plan; a page per topic: docs/ of the repository"
    ]
    return "\n".join(lines)


def _stage(stage: str, arguments: list[str]) -> int:
    from toolformer.config import compose, validate
    from toolformer.descriptions import command_of
    from toolformer.launch import launch, parent_run, raise_first, run_stage

    overrides = [argument for argument in arguments if not argument.startswith("-")]
    flags = [argument for argument in arguments if argument.startswith("-")]
    if set(flags) - {"-m", "--multirun"}:
        _hydra(stage, arguments)
        return 0
    if not flags:
        config = validate(compose(stage, overrides), stage)
        _refuse_several(stage, config)
        run_stage(stage, config, command=command_of(stage, overrides))
        return 0
    from toolformer.config.sweeps import parse

    sweep = parse(stage, overrides)
    first = validate(compose(stage, sweep.fixed), stage)
    _refuse_several(stage, first)
    jobs = sweep.jobs(stage, first.run.stages)
    for job in jobs:
        validate(compose(stage, job), stage)
    command = command_of(stage, overrides, "-m")
    name = command.removeprefix("toolformer ")
    parent = parent_run(first, name, stage, sorted(overrides), command=command)
    raise_first(launch(stage, jobs, sweep.of_hydra, parent))
    return 0


def _refuse_several(stage: str, config: Config) -> None:
    if config.run.experiments and stage != "report":
        raise UserError(
            f"this experiment is made of {len(config.run.experiments)} others, which `toolformer run` runs with all their "
            f"stages; `toolformer {stage}` takes one of them: {', '.join(config.run.experiments)}"
        )


def _hydra(stage: str, arguments: list[str]) -> None:
    """Hands over to Hydra: --help, --cfg and its other flags."""
    import hydra

    from toolformer.config import CONF, register
    from toolformer.launch import Task

    register()
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    sys.argv = [f"toolformer {stage}", *arguments]
    hydra.main(config_path=str(CONF), config_name=stage, version_base="1.3")(Task(stage))()


if __name__ == "__main__":
    sys.exit(main())
