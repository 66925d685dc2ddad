"""The command line: `toolformer generate | train | evaluate | report | compare | demo | tool | complete | ...`.

The four stages are Hydra applications; their configuration is checked before anything heavy is imported. Bad input ends
in one line and exit code 2.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from toolformer.config import Config

STAGES = {
    "generate": "annotate a corpus with the calls that help (C*)",
    "train": "finetune the model on C* (data=augmented) or on C (data=plain)",
    "evaluate": "run benchmarks with one of the systems",
    "report": "print the paper's tables from the runs",
}
COMMANDS = {
    "compare": "two evaluations sample by sample: toolformer compare RUN RUN",
    "lm_eval": "lm-eval's own command with the model toolformer and these tasks in it",
    "demo": "all four stages on the embedded defaults",
    "assets": "fetch the embedded models and data",
    "index": "make a corpus searchable: toolformer index corpus=jsonl corpus.path=FILE index.path=DIR",
    "tool": "run one tool by hand: toolformer tool calculator '723 / 252'",
    "complete": "continue a text with calls: toolformer complete 'The answer is'",
    "ui": "open the MLflow UI on this machine",
    "completion": 'print the tab completion for bash: eval "$(toolformer completion bash)"',
}
PARENT = "TOOLFORMER_PARENT_RUN"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code (2 for bad input)."""
    code = _command(argv)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from toolformer.training.distributed import end_of_process

        end_of_process(code)
    return code


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
    _configure_logging(quiet=follower or name in ("tool", "complete", "completion"))
    try:
        if name in STAGES:
            return _stage(name, rest)
        commands: dict[str, Callable[[list[str]], int]] = {
            "compare": _compare,
            "lm_eval": _lm_eval,
            "demo": _demo,
            "assets": _assets,
            "index": _index,
            "tool": _tool,
            "complete": _complete,
            "ui": _ui,
            "completion": _completion,
        }
        if name in commands:
            return commands[name](rest)
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
    return "\n".join(lines)


def _configure_logging(quiet: bool) -> None:
    from rich.console import Console
    from rich.logging import RichHandler

    handler = RichHandler(
        console=Console(stderr=True), show_path=False, show_level=False, log_time_format="[%X]"
    )
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler], force=True)
    logging.getLogger("toolformer").setLevel(logging.WARNING if quiet else logging.INFO)
    logging.getLogger("benchmarks").setLevel(logging.WARNING if quiet else logging.INFO)


# ------------------------------------------------------------------------ stages


def run_stage(stage: str, config: Config, parent: str | None = None) -> Any:
    """Runs a stage with a valid configuration."""
    if stage == "generate":
        from toolformer.generate import generate

        return generate(config, parent)
    if stage == "train":
        from toolformer.train import train

        return train(config, parent)
    if stage == "evaluate":
        from toolformer.evaluate import evaluate

        return evaluate(config, parent)
    from toolformer.report import report

    return report(config)


def _stage(stage: str, arguments: list[str]) -> int:
    from toolformer.config import compose, validate

    overrides = [argument for argument in arguments if not argument.startswith("-")]
    flags = [argument for argument in arguments if argument.startswith("-")]
    sweep = bool({"-m", "--multirun"} & set(flags))
    os.environ.pop(PARENT, None)
    if not set(flags) - {"-m", "--multirun"}:
        jobs = _sweep_jobs(overrides) if sweep else [overrides]
        configs = [validate(compose(stage, job)) for job in jobs]
        if sweep:
            os.environ[PARENT] = _parent_run(stage, configs[0], overrides)
        else:
            run_stage(stage, configs[0])
            return 0
    _hydra(stage, arguments)
    return 0


def _hydra(stage: str, arguments: list[str]) -> None:
    """Hands over to Hydra: sweeps, --help, --cfg and the other flags."""
    import hydra

    from toolformer.config import CONF, register, validate

    register()

    def task(config: DictConfig) -> None:
        run_stage(stage, validate(config), os.environ.get(PARENT))

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    sys.argv = [f"toolformer {stage}", *arguments]
    hydra.main(config_path=str(CONF), config_name=stage, version_base="1.3")(task)()


def _sweep_jobs(overrides: Sequence[str]) -> list[list[str]]:
    """Every job of a sweep, so that all are checked before the first one runs."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    from toolformer.config import one_line

    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise UserError(one_line(error)) from error
    choices = []
    for override, text in zip(parsed, overrides, strict=True):
        if override.is_sweep_override():
            key = override.get_key_element()
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            choices.append([text])
    return [list(job) for job in itertools.product(*choices)]


def _parent_run(stage: str, config: Config, overrides: Sequence[str]) -> str:
    from toolformer import build
    from toolformer.config import fingerprint

    build.apply_paths(config)
    tracker = build.tracker(config.paths.root, config.tracking)
    words = " ".join(overrides)
    return tracker.parent_run(fingerprint("sweep", stage, sorted(overrides)), f"{stage} -m {words}")


# ---------------------------------------------------------------------- commands


def _compare(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("toolformer compare", description=COMMANDS["compare"])
    name = "a run's id or its first characters, latest, or latest:SYSTEM"
    parser.add_argument("first", help=name)
    parser.add_argument("second", help=f"{name}; differences are the second minus the first")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--resamples", type=int, default=2000, help="resamples behind an interval")
    parser.add_argument(
        "overrides", nargs="*", help="configuration: seed=1, paths.root=DIR, tracking.uri=URI"
    )
    options = parser.parse_intermixed_args(arguments)
    if options.resamples < 1:
        raise UserError(f"compare: --resamples is {options.resamples}; it must be at least 1")
    from rich.console import Console

    from toolformer import build
    from toolformer import compare as comparing
    from toolformer.config import compose, validate

    config = validate(compose("evaluate", options.overrides))
    tracker = build.tracker(config.paths.root, config.tracking)
    found = comparing.compare(tracker, options.first, options.second, config.seed, options.resamples)
    if options.json:
        print(comparing.as_json(found))
        return 0
    for table in comparing.tables(found):
        Console().print(table)
    for line in comparing.remarks(found):
        print(line)
    return 0


def _lm_eval(arguments: list[str]) -> int:
    from toolformer import lm_eval_command

    return lm_eval_command.run(arguments)


def _demo(arguments: list[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        print(f"usage: toolformer demo [key=value ...]\n\n{COMMANDS['demo']}, with conf/experiment/demo.yaml")
        print("\nkeys are those of the stages: toolformer generate --help")
        return 0
    from toolformer.demo import demo

    demo(arguments)
    return 0


def _assets(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("toolformer assets", description=COMMANDS["assets"])
    parser.add_argument("names", nargs="*", help="smollm2, wikipedia, lid, gemma3; all if none is named")
    parser.add_argument("--cache", help="folder for the assets")
    options = parser.parse_args(arguments)
    from toolformer import assets

    if options.cache:
        assets.set_cache_dir(Path(options.cache).expanduser())
    for name, path in assets.ensure_all(options.names or None).items():
        print(f"{name}: {path}")
    return 0


def _index(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("toolformer index", description=COMMANDS["index"])
    parser.add_argument(
        "overrides", nargs="*", help="configuration: corpus=..., index.path=DIR, index.backend=bm25 or lucene"
    )
    options = parser.parse_args(arguments)
    from toolformer.config import compose, validate

    config = validate(compose("generate", options.overrides))
    from toolformer import build
    from toolformer.index import index

    build.apply_paths(config)
    folder, count = index(config)
    print(f"{folder}: {count} passages, {config.index.backend}")
    return 0


def _tool(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("toolformer tool", description=COMMANDS["tool"])
    parser.add_argument("name", help="calculator, calendar, search, qa, translation, or one of tool_sources")
    parser.add_argument("input", nargs="?", default="", help="the call's input")
    parser.add_argument(
        "overrides", nargs="*", help="configuration, for example tool.search.implementation.max_tokens=50"
    )
    options = parser.parse_intermixed_args(arguments)
    if options.input.startswith("tool_sources="):
        # A tool that takes no input leaves its place to what comes next.
        options.input, options.overrides = "", [options.input, *options.overrides]
    from toolformer.config import compose, validate

    config = validate(compose("evaluate", [f"tools=[{options.name}]", *options.overrides]))
    from toolformer import build
    from toolformer.documents import Document
    from toolformer.tools.base import run_safely

    build.apply_paths(config)
    tool = build.tools(config, inference=True)[options.name]
    (result,) = run_safely(tool, [options.input], [Document("command line", "")])
    print(result.text or "")
    if result.text is None:
        print(f"toolformer: {options.name} gave no result: {result.reason}", file=sys.stderr)
        return 1
    return 0


def _complete(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("toolformer complete", description=COMMANDS["complete"])
    parser.add_argument("text")
    parser.add_argument(
        "--model", default="latest", help="a folder, a train run's id, or latest (the newest Toolformer)"
    )
    parser.add_argument("--tokens", type=int, default=40, help="new tokens, calls not counted")
    parser.add_argument(
        "overrides", nargs="*", help="configuration, for example decoding.k=3 tools=[calculator]"
    )
    options = parser.parse_intermixed_args(arguments)
    from rich.console import Console
    from rich.text import Text

    from toolformer.api import Toolformer
    from toolformer.calls import linearise

    toolformer = Toolformer.from_config(options.model, options.overrides)
    (completion,) = toolformer.complete([options.text], max_new_tokens=options.tokens)
    shown = Text(options.text + completion.text)
    if completion.call:
        shown.highlight_words([linearise(completion.call).strip()], "bold green")
    Console(soft_wrap=True, highlight=False).print(shown)
    if completion.failed:
        print(f"toolformer: a call was taken back: {completion.failed}", file=sys.stderr)
    return 0


def _ui(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("toolformer ui", description=COMMANDS["ui"])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000)
    parser.add_argument("overrides", nargs="*", help="configuration, for example paths.root=DIR")
    options = parser.parse_intermixed_args(arguments)
    from toolformer.config import compose, validate
    from toolformer.ui import serve

    config = validate(compose("report", options.overrides))
    serve(Path(config.paths.root), config.tracking.uri, host=options.host, port=options.port)
    return 0


def _completion(arguments: list[str]) -> int:
    from toolformer.completion import bash_script, candidates

    if arguments[:1] == ["query"]:
        print("\n".join(candidates(" ".join(arguments[1:]), tuple(STAGES), tuple(COMMANDS))))
        return 0
    if arguments != ["bash"]:
        raise UserError("completion: name the shell, bash is the one there is: toolformer completion bash")
    print(bash_script())
    return 0


if __name__ == "__main__":
    sys.exit(main())
