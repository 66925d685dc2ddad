"""Results in plain words: who was measured, and how much of a benchmark is right. Reads runs, makes no comparison."""

import math
from collections.abc import Iterable, Sequence

from toolformer.benchmarks import GROUPS, TASKS
from toolformer.results import Run

_WORDS = {
    "calculator": "calculator",
    "calendar": "calendar",
    "search": "search engine",
    "qa": "question answering system",
    "translation": "translator",
}
"""By key of a tool; any other tool keeps its key."""
_WORK = {
    "arithmetic": ("answers", "sums"),
    "templama": ("completes", "statements of"),
    **dict.fromkeys(GROUPS["lama"], ("completes", "statements of")),
    **dict.fromkeys(GROUPS["math"], ("solves", "word problems of")),
}
"""By benchmark, what a system does with what; all others of the harness have questions."""


def tools_of(run: Run) -> list[str] | None:
    """The keys of the tools that a run was given; None if it does not say."""
    tools = run.setting("tools")
    return list(map(str, tools)) if isinstance(tools, list | tuple) else None


def tool_words(tools: Sequence[str] | None) -> str:
    """`its calculator`, `its calculator and its calendar`, `its 5 tools`; `no tool` if there is none."""
    if tools is None:
        return "its tools"
    names = [f"its {_WORDS.get(tool, f'tool {tool}')}" for tool in tools]
    return " and ".join(names) or "no tool" if len(names) < 3 else f"its {len(names)} tools"


def subject(system: str, tools: Sequence[str] | None = None, name: str = "") -> str:
    """The beginning of a sentence about a system; `name` is a baseline's."""
    words = tool_words(tools)
    has_none = tools is not None and not tools
    subjects = {
        "model": "Before finetuning the model",
        "model_cc": "Finetuned on texts without calls the model",
        "toolformer_disabled": f"Finetuned on calls but without {'a tool' if has_none else words} the model",
        "toolformer": "Finetuned on calls but offered no tool the model" if has_none else f"With {words} the model",
        "prompted": f"With examples of calls in its prompt and {words} the model",
    }  # fmt: skip
    return subjects.get(system, name or "The model")


def right(task: str, title: str, score: float, n: int, seeds: int = 1) -> str:
    """What a system has right: `solves 15 of 40 word problems of SVAMP`, or in percent a mean over seeds.

    Only a benchmark of the harness has answers that are right or wrong: any other has a score.

    Args:
        score: in percent.
        n: examples, 0 if it is not known.
    """
    if task not in TASKS:
        return f"scores {score:.1f} % on {title}"
    verb, unit = _WORK.get(task, ("answers", "questions of"))
    what = f"{unit} {title}" if unit.endswith(" of") else unit
    number = count(task, score, n, seeds)
    if number.endswith("%"):
        return f"{verb} {number} of the {what}" + f" (mean of {seeds} seeds)" * (seeds > 1)
    return f"{verb} {number} of {n:,} {what}"


def count(task: str, score: float, n: int, seeds: int = 1) -> str:
    """How many of `n` examples are right, where they are right or wrong and asked once; else the score in percent."""
    number = score * n / 100
    is_counted = (
        task in TASKS
        and seeds == 1
        and n > 0
        and math.isclose(number, round(number) if math.isfinite(number) else 0)
    )
    return f"{round(number):,}" if is_counted else f"{score:.1f} %"


def summary(run: Run) -> str:
    """What a finished run came to, in a sentence or two; empty if there is nothing to say."""
    if run.status != "FINISHED":
        return ""
    if run.stage == "generate" and "calls_kept" in run.metrics:
        kept, texts, documents = (_whole(run, name) for name in ("calls_kept", "texts_kept", "documents"))
        return f"Kept {kept:,} calls in {texts:,} of {documents:,} texts."
    if run.stage == "train" and "train_steps" in run.metrics:
        sentence = f"Trained {_whole(run, 'train_steps'):,} steps on {_whole(run, 'texts'):,} texts."
        before, after = (run.metrics.get(f"{when}heldout_perplexity") for when in ("initial_", ""))
        if before is not None and after is not None:
            sentence += f" Perplexity of held-out text: {before:.2f} before, {after:.2f} after."
        return sentence
    return _evaluated(run) if run.stage == "evaluate" else ""


def _evaluated(run: Run) -> str:
    """An evaluation's score on the benchmark with most examples, else its perplexity."""
    metrics, system = run.metrics, str(run.facts.get("system", ""))
    who = subject(system, tools_of(run), str(run.facts.get("baseline", "")))
    if scored := _tasks(metrics, "score"):
        task = max(scored, key=lambda task: _whole(run, f"{task}/n"))
        did = right(task, task, metrics[f"{task}/score"], _whole(run, f"{task}/n"))
        return f"{who} {did}." + f" Other benchmarks: {len(scored) - 1}." * (len(scored) > 1)
    parts = [f"{metrics[f'{task}/perplexity']:.2f} ({task})" for task in _tasks(metrics, "perplexity")]
    return f"{who} has perplexity {', '.join(parts)}." if parts else ""


def _whole(run: Run, name: str) -> int:
    """A count among a run's metrics; 0 if it is none."""
    value = run.metrics.get(name, 0.0)
    return round(value) if math.isfinite(value) else 0


def _tasks(metrics: Iterable[str], measure: str) -> list[str]:
    """The benchmarks that have this measure, in order."""
    parts = (name.partition("/") for name in metrics)
    return [task for task, _, name in parts if name == measure]
