"""`toolformer demo`: the whole pipeline on the embedded defaults, which is the experiment `demo`."""

from __future__ import annotations


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    if {"-h", "--help"} & set(arguments):
        print("usage: toolformer demo [key=value ...]\n")
        print(
            "all four stages on the embedded defaults: toolformer run experiment=demo (conf/experiment/demo.yaml)"
        )
        print("keys are those of the stages: toolformer generate --help")
        return 0
    from toolformer.experiments import execute, plan

    execute(plan(["experiment=demo", *arguments]))
    return 0
