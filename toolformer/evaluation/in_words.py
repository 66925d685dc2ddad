"""One sentence that sums up a finished run, for its page in MLflow."""

import math
from collections.abc import Mapping

from toolformer.results import Run


def summary(run: Run) -> str:
    """One-sentence summary of a finished run; empty if there is nothing to say."""
    if run.status != "FINISHED":
        return ""
    if run.stage == "generate" and "calls_kept" in run.metrics:
        kept, texts, documents = (_metric(run, name) for name in ("calls_kept", "texts_kept", "documents"))
        return f"Kept {kept:,} calls in {texts:,} of {documents:,} texts."
    if run.stage == "train" and "train_steps" in run.metrics:
        sentence = f"Trained {_metric(run, 'train_steps'):,} steps on {_metric(run, 'texts'):,} texts."
        before, saved = (run.metrics.get(f"{name}_heldout_perplexity") for name in ("initial", "best"))
        if before is not None and saved is not None:
            sentence += f" Perplexity of held-out text: {before:.2f} before, {saved:.2f} after."
        return sentence
    return _evaluated(run) if run.stage == "evaluate" else ""


def _evaluated(run: Run) -> str:
    """The score on the benchmark with most examples, else the perplexities."""
    scored = {task: metrics for task, metrics in sorted(run.tasks.items()) if "score" in metrics}
    if scored:
        task = max(scored, key=lambda task: _count(scored[task], "n"))
        n, score = _count(scored[task], "n"), scored[task]["score"]
        sentence = f"{score:.1f} % of {n:,} examples of {task} correct."
        return sentence + f" Other benchmarks: {len(scored) - 1}." * (len(scored) > 1)
    parts = [f"{metrics['perplexity']:.2f} ({task})" for task, metrics in sorted(run.tasks.items())]
    return f"Perplexity {', '.join(parts)}." if parts else ""


def _metric(run: Run, name: str) -> int:
    """A count among a run's metrics; 0 if it is not one."""
    return _count(run.metrics, name)


def _count(metrics: Mapping[str, float], name: str) -> int:
    value = metrics.get(name, 0.0)
    return round(value) if math.isfinite(value) else 0
