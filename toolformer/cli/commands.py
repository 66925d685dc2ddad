"""The small commands: tool, complete, index, assets, compare, explain, tune-policy, run, ui and demo.

A command is a function of its name: it takes its arguments and returns the exit code. Heavy modules are imported when a
command needs them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from toolformer.cli.parser import Parser
from toolformer.credentials import printable
from toolformer.errors import UserError, near

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from toolformer.data import Document
    from toolformer.stages.config import Config
    from toolformer.stages.experiments import Plan
    from toolformer.tools.base import Result, Tool
    from toolformer.tracking.entities import Span

_RUN = "a run's id or its first characters, latest, or latest:SYSTEM"


def tool(arguments: list[str]) -> int:
    parser = _parser("tool", "run one tool by hand")
    names = "calculator, calendar, search, qa, translation, or one of tool_sources"
    parser.add_argument("name", help=names)
    parser.add_argument("input", nargs="?", help="the call's input; of several arguments each as name=value")
    options = _parsed(parser, arguments, "tool.search.implementation.max_tokens=50")
    words = [word for word in (options.input, *options.overrides) if word is not None]
    settings = [word for word in words if _is_configuration(word)]
    config = _config("evaluate", [f"tools=[{options.name}]", *settings])
    from toolformer.data import Document
    from toolformer.stages import instantiate
    from toolformer.tools.base import run_safely

    instantiate.apply_paths(config)
    tool = instantiate.tools(config, inference=True)[options.name]
    parameters = [parameter.name for parameter in getattr(tool, "parameters", ())]
    # An argument may be called as a key is.
    given = [word for word in words if word not in settings or word.partition("=")[0] in parameters]
    (result,) = run_safely(tool, [_call_input(given, parameters)], [Document("command line", "")])
    print(printable(result.text or ""))
    if result.text is None:
        print(f"toolformer: {options.name} gave no result: {printable(result.reason or '')}", file=sys.stderr)
    return int(result.text is None)


def _is_configuration(word: str) -> bool:
    """Whether it sets a key or chooses a group, and is no part of a call's input."""
    from toolformer.stages.config import CONF, Config

    match = re.match(r"[+~]*(\w+)[\w.@/]*=", word)
    return match is not None and match[1] in {"hydra", *Config.__dataclass_fields__, *os.listdir(CONF)}


def _call_input(given: Sequence[str], parameters: Sequence[str]) -> str:
    """What is written in a call: the text as it is; of a tool with these parameters also `days=2 city=Seoul`.

    Raises:
        UserError: a word is neither the input nor one of the arguments.
    """
    parts: list[str] = []
    for index, word in enumerate(given):
        name, sign, value = word.partition("=")
        if sign and name in parameters:
            parts.append(f"{name}={_literal(value)}")
        elif index == 0:
            parts.append(_literal(word) if len(given) > 1 else word)
        else:
            hint = near(name, parameters) or (f"; it takes {', '.join(parameters)}" if parameters else "")
            raise UserError(f"tool: {word!r} is neither a key of the configuration nor an argument{hint}")
    return ", ".join(parts)


def _literal(value: str) -> str:
    """A value as it stands in a call: numbers, lists and what is quoted as they are, anything else quoted."""
    try:
        json.loads(value)
        return value
    except ValueError:
        return value if value[:1] in ("'", '"') else json.dumps(value, ensure_ascii=False)


def complete(arguments: list[str]) -> int:
    parser = _parser("complete", "continue a text with calls")
    parser.add_argument("text")
    model = "an embedded model, a folder, a hub model as OWNER/NAME, a train run's id, or latest (the newest Toolformer)"
    parser.add_argument("--model", default="latest", help=model)
    parser.add_argument("--tokens", type=int, default=40, help="new tokens, calls not counted")
    options = _parsed(parser, arguments, "decoding.k=3 tools=[calculator]")
    if options.tokens < 1:
        raise UserError(f"complete: --tokens is {options.tokens}; it must be at least 1")
    from rich.text import Text

    from toolformer.api import Toolformer
    from toolformer.calls import linearise
    from toolformer.tracking import EXPERIMENT, Tracker
    from toolformer.tracking.entities import Span, log_trace

    toolformer = Toolformer.from_config(options.model, options.overrides)
    timed = {key: _Timed(tool) for key, tool in toolformer.decoder.tools.items()}
    toolformer.decoder.tools = timed
    began = time.time_ns()
    (completion,) = toolformer.complete([options.text], max_new_tokens=options.tokens)
    answer = Span("complete", "CHAIN", options.text, completion.text, began, time.time_ns())
    config = _config("evaluate", options.overrides)
    store = Tracker(config.tracking.uri, Path(config.paths.root)).store
    if not store.is_absent():  # who tracks no runs has no place for traces
        log_trace(store, EXPERIMENT, [answer, *(span for tool in timed.values() for span in tool.spans)])
    shown = Text(printable(options.text + completion.text))
    if completion.call:
        shown.highlight_words([linearise(completion.call).strip()], "bold green")
    _console().print(shown, soft_wrap=True)
    if completion.failed:
        print(f"toolformer: a call was taken back: {printable(completion.failed)}", file=sys.stderr)
    return 0


class _Timed:
    """A tool that keeps its calls, with the time that each took."""

    def __init__(self, tool: Tool) -> None:
        self.tool, self.name = tool, tool.name
        self.spans: list[Span] = []

    def run(self, inputs: Sequence[str], documents: Sequence[Document]) -> list[Result]:
        from toolformer.tracking.entities import Span

        began = time.time_ns()
        results = self.tool.run(inputs, documents)
        times = began, time.time_ns()
        for text, result in zip(inputs, results, strict=True):
            self.spans.append(Span(self.name, "TOOL", text, result.text, *times, failed=result.reason or ""))
        return results


def index(arguments: list[str]) -> int:
    parser = _parser("index", "make a corpus searchable")
    config = _config(
        "generate", _parsed(parser, arguments, "corpus=jsonl corpus.path=FILE index.path=DIR").overrides
    )
    from toolformer.stages import instantiate
    from toolformer.stages.index import index as build

    instantiate.apply_paths(config)
    folder, count = build(config)
    print(f"{folder}: {count} passages, {config.index.backend}")
    return 0


def assets(arguments: list[str]) -> int:
    parser = _parser("assets", "fetch the embedded models and data")
    parser.add_argument(
        "names", nargs="*", help="smollm2, wikipedia, lid, gemma3; all if none is named; also paths.cache=DIR"
    )
    parser.add_argument("--cache", help="folder for the assets")
    options = parser.parse_args(arguments)
    from toolformer.data import assets

    names = [name for name in options.names if "=" not in name]
    paths = _config("report", [word for word in options.names if "=" in word]).paths
    if cache := options.cache or paths.cache:
        assets.set_cache_dir(Path(cache).expanduser())
    for name, path in assets.ensure_all(names or None).items():
        print(f"{name}: {path}")
    return 0


def compare(arguments: list[str]) -> int:
    parser = _parser(
        "compare", "two evaluations sample by sample, or two groups of runs that differ in their seed"
    )
    parser.add_argument(
        "first", help=f"{_RUN}; several with commas between, or the parent run of a sweep over seeds"
    )
    parser.add_argument("second", help="likewise; differences are the second minus the first")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--resamples", type=int, default=2000, help="resamples behind an interval")
    options = _parsed(parser, arguments, "name=demo paths.root=DIR")
    if options.resamples < 1:
        raise UserError(f"compare: --resamples is {options.resamples}; it must be at least 1")
    # Finished runs are read, as by a report: no data folder, corpus or model of an evaluation has to be there.
    config = _config("evaluate", options.overrides, checked_as="report")
    from toolformer.stages import compare as comparing
    from toolformer.tracking import Tracker

    tracker = Tracker(config.tracking.uri, Path(config.paths.root))
    runs = options.first, options.second
    compared = comparing.compare(tracker, *runs, config.seed, options.resamples, experiment=config.name)
    if options.json:
        print(comparing.as_json(compared))
        return 0
    _console().print(*comparing.tables(compared))
    print("\n".join(comparing.remarks(compared)))
    return 0


def tune_policy(arguments: list[str]) -> int:
    parser = _parser("tune-policy", "choose when a trained model starts its calls, and store that with it")
    parser.add_argument("--k", type=int, default=10, help="the largest k that is looked at")
    parser.add_argument("--bias", type=float, default=5.0, help="the largest bias that is looked at")
    parser.add_argument("--threshold", type=float, default=0.01, help="the least threshold that is looked at")
    options = _parsed(parser, arguments, "benchmarks=[dateset,arithmetic] evaluation.limit=200")
    if options.k < 1 or not 0 <= options.threshold < 1 or not math.isfinite(options.bias):
        raise UserError("tune-policy: --k must be at least 1, --threshold from 0 to 1, --bias a number")
    config = _config("evaluate", options.overrides)
    from toolformer.stages import tune_policy as tuning
    from toolformer.tracking.provenance import command_of

    reach = {"topk": options.k, "bias": options.bias, "threshold": options.threshold}
    tuned = tuning.tune_policy(config, reach, command_of("tune-policy", arguments))
    _console().print(tuning.table(tuned))
    return 0


def explain(arguments: list[str]) -> int:
    parser = _parser(
        "explain", "why an evaluation's answers are right or wrong, or where an annotation's yield is lost"
    )
    names = "an evaluation of Toolformer or an annotation: an id or its first characters, latest, or latest:generate"
    parser.add_argument("run", help=names)
    options = _parsed(parser, arguments, "lm.device=cuda paths.root=DIR")
    from toolformer.reporting import console
    from toolformer.stages import explain as explaining
    from toolformer.tracking import Tracker
    from toolformer.tracking.provenance import command_of

    config = _config("evaluate", options.overrides, checked_as="report")
    tracker = Tracker(config.tracking.uri, Path(config.paths.root))
    run = explaining.find(tracker, options.run, experiment=config.name)
    if run.stage == "evaluate":
        like = _config("evaluate", [f"like={run.run_id}", *options.overrides])
        run = explaining.ladder(like, run, command=command_of("explain", arguments))
    console.show(explaining.content(tracker, run))
    return 0


def run(arguments: list[str], program: str = "run") -> int:
    parser = _parser(program, "run an experiment over all its stages")
    parser.epilog = (
        "the same command resumes where it stopped; hydra/launcher=joblib and others: docs/experiments.md"
    )
    plan_only = "print what is done and what is to do, no more"
    parser.add_argument("--plan", "--dry-run", action="store_true", help=plan_only)
    parser.add_argument("--json", action="store_true", help="print the plan as JSON, no more")
    options = _parsed(parser, arguments, "experiment=NAME seed=1")
    from toolformer.stages import experiments

    plan = experiments.plan(options.overrides)
    rows = [{"stage": job.stage, "job": job.shown, "run": plan.done.get(job.key)} for job in plan.jobs]
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    _console(sys.stdout if options.plan else sys.stderr).print(_table(plan, rows))
    if not options.plan:
        experiments.check_data(plan)
        experiments.execute(plan)
    return 0


def ui(arguments: list[str]) -> int:
    parser = _parser("ui", "open the MLflow UI on this machine")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000)
    options = _parsed(parser, arguments, "paths.root=DIR")
    from toolformer.tracking.ui import serve

    config = _config("report", options.overrides)
    serve(Path(config.paths.root), config.tracking.uri, host=options.host, port=options.port)
    return 0


def demo(arguments: list[str]) -> int:
    return run(["experiment=demo", *arguments], "demo")


def _parser(name: str, meaning: str) -> Parser:
    return Parser(f"toolformer {name}", description=meaning)


def _parsed(parser: Parser, arguments: Sequence[str], example: str) -> argparse.Namespace:
    """The options, with the rest of the words as `overrides` of the configuration."""
    parser.add_argument("overrides", nargs="*", default=[], help=f"configuration, for example {example}")
    return parser.parse_intermixed_args(arguments)


def _config(stage: str, overrides: Sequence[str], checked_as: str = "") -> Config:
    from toolformer.stages.config import compose, validate

    return validate(compose(stage, overrides), checked_as)


def _console(stream: TextIO | None = None) -> Console:
    """Where to print a table; where there is no terminal there is no width to keep to."""
    from rich.console import Console

    stream = stream or sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 160, highlight=False)


def _table(plan: Plan, rows: Sequence[dict[str, str | None]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    missing = sum(row["run"] is None for row in rows)
    table = Table(title=f"{plan.name}: {missing} of {len(rows)} to do", title_justify="left")
    for name in ("stage", "job", "state"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(
            row["stage"], Text(row["job"] or ""), f"done, run {row['run'][:8]}" if row["run"] else "to do"
        )
    return table
