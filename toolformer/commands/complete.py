"""`toolformer complete TEXT`: a text continued with calls."""

from __future__ import annotations

import argparse
import sys

from toolformer.errors import UserError


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser("toolformer complete", description="continue a text with calls")
    parser.add_argument("text")
    parser.add_argument(
        "--model",
        default="latest",
        help="an embedded model, a folder, a hub model as OWNER/NAME, a train run's id, or latest (the newest Toolformer)",
    )
    parser.add_argument("--tokens", type=int, default=40, help="new tokens, calls not counted")
    parser.add_argument(
        "overrides", nargs="*", help="configuration, for example decoding.k=3 tools=[calculator]"
    )
    options = parser.parse_intermixed_args(arguments)
    if options.tokens < 1:
        raise UserError(f"complete: --tokens is {options.tokens}; it must be at least 1")
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
