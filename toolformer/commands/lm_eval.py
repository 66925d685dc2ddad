"""`toolformer lm_eval ...`: lm-eval's own command line with this project's model and tasks in it."""

from __future__ import annotations


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    from toolformer.lm_eval_command import run

    return run(arguments)
