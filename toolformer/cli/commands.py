"""The small commands: tool, complete, index, assets, compare, explain, run, ui and demo.

A command is a function of its name: it takes its arguments and returns the exit code. Heavy modules are imported when a
command needs them.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from toolformer.cli import PLAN_FLAGS
from toolformer.cli.parser import Parser, configured, console
from toolformer.credentials import printable
from toolformer.errors import UsageError, UserError, near

if TYPE_CHECKING:
    from rich.table import Table

    from toolformer.cli.application import HydraJob
    from toolformer.cli.doctor import Finding
    from toolformer.jobs.config import Config
    from toolformer.jobs.job import Job
    from toolformer.results import Run
    from toolformer.tools.base import Tool

log = logging.getLogger(__name__)

TOOL_STAGES = ("generate", "evaluate")
"""The stages whose jobs call tools."""
DRAFTED_FROM = 10
"""Texts that demonstrations are drafted from."""
_RUN = "a run's id or at least its first six characters, latest, or latest:SYSTEM"


def tool(arguments: list[str]) -> int:
    parser = Parser("tool", "run one tool by hand")
    names = "calculator, calendar, search, qa, translation, or one of tool_sources"
    parser.add_argument("name", help=names)
    parser.add_argument(
        "input",
        nargs="?",
        help="the call's input, after -- if it looks like an option or a key; several arguments as name=value",
    )
    parser.add_argument(
        "--demonstrations",
        action="store_true",
        help=f"instead of a call: draft demonstrations for its prompt from the corpus's first {DRAFTED_FROM} texts",
    )
    arguments, verbatim = _verbatim(arguments, 1)
    options = parser.parsed(arguments, "tool.search.implementation.max_tokens=50")
    if not re.fullmatch(r"[\w./ -]+", options.name, re.ASCII):
        letters = "a tool's name has letters (a-z), digits and underscores; rename the function"
        raise UserError(f"tool: {options.name!r} cannot be called: {letters}")
    texts = [text for text in (options.input, *options.overrides) if text is not None]
    settings = [text for text in texts if _is_override(text)]
    if options.demonstrations:
        return _draft(configured("generate", [*settings, f"tools=[{options.name}]"]), options.name)
    config = configured("evaluate", [f"tools=[{options.name}]", *settings])
    from toolformer.data import Document
    from toolformer.jobs import instantiate

    tool = instantiate.tools(config, inference=True)[options.name]
    parameters = [parameter.name for parameter in tool.parameters or ()]
    # An argument may have the name of a key.
    inputs = verbatim + [
        text for text in texts if text not in settings or text.partition("=")[0] in parameters
    ]
    call = _call_input(inputs, parameters)
    (result,) = tool.run([call], [Document("command line", "")])
    if result.text is None:
        reason = f"{result.reason}{_unknown_argument(inputs, parameters)}"
        print(f"toolformer: {options.name} gave no result: {printable(reason)}", file=sys.stderr)
        return 1 if _can_be_called(tool, call) else 2
    print(printable(result.text))
    return 0


def _draft(config: Config, key: str) -> int:
    """Prints demonstrations of a tool, to be read, corrected and put into an experiment's file."""
    import yaml

    from toolformer.jobs import corpora, instantiate
    from toolformer.tools.user.demonstrate import demonstrations

    tool = instantiate.tools(config)[key]
    pairs = demonstrations(tool, itertools.islice(corpora.corpus(config.corpus), DRAFTED_FROM))
    if not pairs:
        raise UserError(
            f"tool: in the corpus's first {DRAFTED_FROM} texts, no input of {key} is followed by its result; choose texts that show "
            "results after inputs, or write demonstrations by hand (docs/tools.md)"
        )
    drafted = {
        "instruction": config.tool[key].instruction
        or instantiate.tool_settings(config, key).prompt.instruction,
        "demonstrations": [{"text": text, "annotated": annotated} for text, annotated in pairs],
    }
    print("# Drafted: read them, correct them, and put them into your experiment's file.")
    print(yaml.safe_dump({"tool": {key: drafted}}, allow_unicode=True, sort_keys=False, width=10_000), end="")
    return 0


def _verbatim(arguments: list[str], position: int) -> tuple[list[str], list[str]]:
    """The arguments to parse, and those that are text whatever they look like.

    These are all that follow `--`, or else the one at `position` if it begins with a minus that begins no option: -5+3.
    """
    if "--" in arguments:
        end = arguments.index("--")
        return arguments[:end], arguments[end + 1 :]
    if len(arguments) > position and re.match(r"-+[^-A-Za-z]", arguments[position]):
        return [*arguments[:position], *arguments[position + 1 :]], [arguments[position]]
    return arguments, []


def _is_override(text: str) -> bool:
    """Whether it sets a key or chooses a file of a group, and is not part of a call's input."""
    from toolformer.jobs.config import CONF, Config

    match = re.match(r"[+~]*(\w+)[\w.@/]*=", text)
    return match is not None and match[1] in {"hydra", *Config.__dataclass_fields__, *os.listdir(CONF)}


def _call_input(inputs: Sequence[str], parameters: Sequence[str]) -> str:
    """The input of a call: the text as it is; for a tool with these parameters also `days=2 city=Seoul`.

    UserError for anything else.
    """
    parts: list[str] = []
    for index, text in enumerate(inputs):
        name, sign, value = text.partition("=")
        if sign and name in parameters:
            parts.append(f"{name}={_literal(value)}")
        elif index == 0:
            parts.append(_literal(text) if len(inputs) > 1 else text)
        else:
            hint = near(name, parameters) or (f"; it takes {', '.join(parameters)}" if parameters else "")
            raise UserError(f"tool: {text!r} is neither a key of the configuration nor an argument{hint}")
    return ", ".join(parts)


def _unknown_argument(inputs: Sequence[str], parameters: Sequence[str]) -> str:
    """A hint for a call without a result that begins with `name=`, where the tool has other arguments."""
    begins = re.match(r"([A-Za-z_]\w*)=(?!=)", "".join(inputs[:1]))
    if not parameters or not begins or begins[1] in parameters:
        return ""
    return f"; it has no argument {begins[1]}{near(begins[1], parameters)}, it takes {', '.join(parameters)}"


def _can_be_called(tool: Tool, call: str) -> bool:
    """Whether a tool takes an input, with or without a result."""
    from toolformer.tools.user.arguments import ArgumentError, bind

    if tool.parameters is None:
        return bool(call)
    try:
        bind(call, tool.parameters)
    except ArgumentError:
        return False
    return True


def _literal(value: str) -> str:
    """A value as it is written in a call: numbers, lists and quoted texts as they are, anything else quoted."""
    try:
        json.loads(value)
        return value
    except ValueError:
        return value if value[:1] in ("'", '"') else json.dumps(value, ensure_ascii=False)


def complete(arguments: list[str]) -> int:
    parser = Parser("complete", "continue a text with calls")
    parser.add_argument("text")
    model = "a bundled model, a folder, a hub model as OWNER/NAME, a train run's id, or latest (the newest Toolformer)"
    parser.add_argument("--model", help=f"{model}; default: latest, or checkpoint=RUN")
    parser.add_argument("--tokens", type=int, default=40, help="new tokens, calls not counted")
    arguments, verbatim = _verbatim(arguments, 0)
    options = parser.parsed(["text"] * bool(verbatim) + arguments, "decoding.k=3 tools=[calculator]")
    text = " ".join(verbatim) or options.text
    if options.tokens < 1:
        raise UserError(f"complete: --tokens is {options.tokens}; it must be at least 1")
    from toolformer.decoding.settings import SYSTEMS

    config = configured("evaluate", options.overrides)
    named = [override for override in options.overrides if override.startswith("model=")]
    if options.model and named:
        raise UserError(f"complete: --model {options.model} and {named[0]} are two models; leave one out")
    model = options.model or (
        config.model if named and not SYSTEMS[config.system].trained_on else config.checkpoint
    )
    log.info("complete: loading %s", model)  # before PyTorch is imported, which may take half a minute
    from rich.text import Text

    from toolformer.api import Toolformer
    from toolformer.calls import linearise

    toolformer = Toolformer.from_config(model, options.overrides)
    log.info("complete: continuing the text with %s", toolformer.decoder.language_model.name)
    (completion,) = toolformer.complete([text], max_new_tokens=options.tokens)
    output = Text(printable(text + completion.text))
    if completion.call:
        output.highlight_words([linearise(completion.call).strip()], "bold green")
    console().print(output, soft_wrap=True)
    if completion.failed:
        print(f"toolformer: a call was rolled back: {printable(completion.failed)}", file=sys.stderr)
    return 0


def index(arguments: list[str]) -> int:
    options = Parser("index", "make a corpus searchable").parsed(
        arguments, "corpus=jsonl corpus.path=FILE index.path=DIR"
    )
    config = configured("generate", options.overrides)
    from toolformer.jobs.index import index as build

    folder, count = build(config)
    print(f"{folder}: {count} passages, {config.index.backend}")
    return 0


def assets(arguments: list[str]) -> int:
    parser = Parser("assets", "fetch the bundled models and data")
    names = "smollm2, wikipedia, lid, gemma3; all if none is named; also paths.cache=DIR"
    parser.add_argument("names", nargs="*", help=names)
    options = parser.parse_args(arguments)
    from toolformer.data import assets

    chosen = [name for name in options.names if "=" not in name]
    overrides = [name for name in options.names if "=" in name]
    if unread := [override for override in overrides if not override.startswith("paths.cache=")]:
        raise UsageError(
            f"assets: {unread[0]} is not read here; name assets ({', '.join(assets.ASSETS)}) or paths.cache=DIR"
        )
    paths = configured("report", overrides).paths
    if paths.cache:
        assets.set_cache_dir(Path(paths.cache).expanduser())
    for name, path in assets.ensure_all(chosen or None).items():
        print(f"{name}: {path}")
    return 0


def compare(arguments: list[str]) -> int:
    parser = Parser(
        "compare", "two evaluations sample by sample, or two groups of runs that differ only in their seed"
    )
    parser.add_argument("first", help=f"{_RUN}; several joined by commas")
    parser.add_argument("second", help="the same; differences are the second minus the first")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parsed(arguments, "name=demo paths.root=DIR")
    if "=" in options.second:
        raise UserError(
            f"compare: only {options.first} is named; it takes two runs: toolformer compare RUN RUN"
        )
    # Finished runs are read, as by a report: the evaluation's data folder, corpus and model may be gone.
    config = configured("evaluate", options.overrides, checked_as="report")
    from toolformer.jobs import compare as comparing
    from toolformer.reporting.console import print_tables
    from toolformer.results import Results

    results, runs = Results(Path(config.paths.root)), (options.first, options.second)
    compared = comparing.compare(results, *runs, config.name, config.seed)
    if options.json:
        print(comparing.as_json(compared))
        return 0
    print_tables(comparing.comparison_content(compared))
    return 0


def explain(arguments: list[str]) -> int:
    parser = Parser(
        "explain", "why an evaluation's answers are right or wrong, or where an annotation's yield is lost"
    )
    names = "an evaluation of Toolformer or an annotation: an id or its first characters, latest, or latest:generate"
    parser.add_argument("run", help=names)
    options = parser.parsed(arguments, "lm.device=cuda paths.root=DIR")
    from toolformer.jobs.perform import execute
    from toolformer.jobs.plan import plan
    from toolformer.jobs.sources import explained
    from toolformer.reporting.console import print_tables
    from toolformer.reporting.explanation import explanation
    from toolformer.results import Results

    config = configured("evaluate", options.overrides, checked_as="report")
    results = Results(Path(config.paths.root))
    run = explained(options.run, config, results)
    if run.stage == "evaluate":
        like = [f"like={run.id}", *options.overrides, "evaluation.oracles=true"]
        (run,) = execute(plan("evaluate", like))
    print_tables(explanation(results, run))
    return 0


def run(arguments: list[str], name: str = "run") -> int:
    run_experiment(arguments, name)
    return 0


def run_experiment(arguments: Sequence[str], name: str = "run") -> list[Run]:
    """An experiment over all its stages; returns the runs of its jobs."""
    from toolformer.cli.application import run_application
    from toolformer.cli.help import run_help

    flags = {*PLAN_FLAGS} & {*arguments}
    others = [argument for argument in arguments if argument not in flags]
    if name == "demo":
        others.append("experiment=demo")
    return run_application(name, others, partial(_run_job, flags), run_help, PLAN_FLAGS)


def _run_job(flags: Collection[str], job: HydraJob) -> list[Run]:
    from toolformer.jobs.config.overrides import title_of
    from toolformer.jobs.perform import execute
    from toolformer.jobs.plan import plan

    done, jobs = show_plan(plan("run", job.overrides), flags)
    if not flags and not done:
        _log_estimate(jobs[0].config)
    return [] if flags else execute(jobs, done, job.sweep or title_of("run", job.overrides))


def show_plan(jobs: Sequence[Job], flags: Collection[str]) -> tuple[dict[str, Run], list[Job]]:
    """Prints jobs and checks what they need; returns the runs of those that are done, and the jobs that are done or needed.

    Args:
        flags: those of `PLAN_FLAGS` that were given.
    """
    from toolformer.jobs.estimate import estimate
    from toolformer.jobs.plan import check_data, survey

    done, jobs = survey(jobs)
    runs = [done.get(job.key) for job in jobs]
    if "--json" in flags:
        rows = [
            {"stage": job.stage, "job": job.label, "run": run and run.id}
            for job, run in zip(jobs, runs, strict=True)
        ]
        print(json.dumps(rows, indent=1))
    else:
        console(sys.stdout if flags else sys.stderr).print(_table(jobs, runs))
    missing = [job for job in jobs if job.key not in done and job.stage != "report"]
    _check_tools([job.config for job in missing if job.stage in TOOL_STAGES], flags)
    if "--plan" in flags and "--json" not in flags and missing:
        _print(estimate(missing))
    check_data(missing)
    return done, jobs


def _log_estimate(config: Config) -> None:
    """Logs how long an experiment takes on a CPU, where that was measured."""
    from toolformer.lm.devices import choose_device, dtype_name

    dtype = dtype_name(config.lm.dtype, config.lm.device)
    if choose_device(config.lm.device) == "cpu" and dtype in config.run.minutes:
        log.info(
            "%s: about %g minutes on two cores in %s; longer if another process uses them",
            *(config.name, config.run.minutes[dtype], dtype),
        )


def _check_tools(configs: Sequence[Config], flags: Collection[str]) -> None:
    """Prints what the tools of missing jobs need; without flags, `UserError` for what is missing and is not fetched by itself."""
    from toolformer.cli.doctor import tools
    from toolformer.jobs import instantiate

    if "--plan" in flags and "--json" not in flags:
        _print(dict.fromkeys(finding for config in configs for finding in tools(config)))
    for config in configs if not flags else ():
        instantiate.check_tools(config)


def _print(findings: Iterable[Finding]) -> None:
    """As `toolformer doctor` does."""
    for state, part, text in findings:
        print(f"{state}  {part:<18}  {printable(text)}")


def _table(jobs: Sequence[Job], runs: Sequence[Run | None]) -> Table:
    from rich.table import Table
    from rich.text import Text

    title = f"{jobs[0].config.name}: {runs.count(None)} of {len(jobs)} to do"
    table = Table(title=title, title_justify="left")
    for name in ("stage", "job", "state"):
        table.add_column(name, overflow="fold")
    for job, run in zip(jobs, runs, strict=True):
        table.add_row(job.stage, Text(job.label), f"done, run {run.id[:8]}" if run else "to do")
    return table


def demo(arguments: list[str]) -> int:
    return run(arguments, "demo")


def ui(arguments: list[str]) -> int:
    parser = Parser("ui", "open the MLflow UI on this machine")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000)
    options = parser.parsed(arguments, "paths.root=DIR")
    from toolformer.tracking.ui import serve

    config = configured("report", options.overrides)
    serve(Path(config.paths.root), config.tracking.uri, host=options.host, port=options.port)
    return 0
