"""The commands, a module each: `main(arguments)` returns the exit code, and is imported when it is called."""

from __future__ import annotations

import importlib

STAGES = {
    "generate": "annotate a corpus with the calls that help (C*)",
    "train": "finetune the model on C* (data=augmented) or on C (data=plain)",
    "evaluate": "run benchmarks with one of the systems",
    "report": "print the paper's tables from the runs",
}
COMMANDS = {
    "run": "an experiment over all its stages, what is missing of it: toolformer run experiment=table9 [--plan]",
    "demo": "all four stages on the embedded defaults",
    "runs": "list runs and what they were made from; toolformer runs resend sends what a server missed",
    "compare": "two evaluations sample by sample: toolformer compare RUN RUN",
    "lm_eval": "lm-eval's own command with the model toolformer and these tasks in it",
    "assets": "fetch the embedded models and data",
    "index": "make a corpus searchable: toolformer index corpus=jsonl corpus.path=FILE index.path=DIR",
    "tool": "run one tool by hand: toolformer tool calculator '723 / 252'",
    "complete": "continue a text with calls: toolformer complete 'The answer is'",
    "ui": "open the MLflow UI on this machine",
    "doctor": "what works here, and what to install for the rest",
    "completion": 'print the tab completion for bash: eval "$(toolformer completion bash)"',
}


def run_command(name: str, arguments: list[str]) -> int:
    """Runs a command of `COMMANDS`; returns the exit code."""
    return int(importlib.import_module(f"toolformer.commands.{name}").main(arguments))
