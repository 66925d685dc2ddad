"""`toolformer tool NAME INPUT`: one tool by hand."""

from __future__ import annotations

import argparse
import sys

from toolformer.errors import UserError


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser("toolformer tool", description="run one tool by hand")
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        help="calculator, calendar, search, qa, translation, or one of tool_sources",
    )
    parser.add_argument("input", nargs="?", default="", help="the call's input")
    parser.add_argument(
        "overrides", nargs="*", help="configuration, for example tool.search.implementation.max_tokens=50"
    )
    options = parser.parse_intermixed_args(arguments)
    if not options.name:
        raise UserError("tool: name one, calculator for example, and its input; toolformer tool --help")
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
