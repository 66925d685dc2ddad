"""The report's figures: the benchmarks at a glance, scaling (Figure 4), scores by k, gains, training.

Each builder takes the evidence and returns a `Figure`, or None if there is nothing to draw.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from toolformer.benchmarks import GROUPS
from toolformer.benchmarks.declared import is_perplexity
from toolformer.reporting import paper
from toolformer.reporting.data import Annotation, Evidence, Points, Score
from toolformer.reporting.escape import clean
from toolformer.reporting.formatting import (
    SYSTEMS,
    in_dtypes,
    in_order,
    in_table_order,
    title_of,
    tool_name,
    tools_by_model,
)
from toolformer.reporting.ladder import picture
from toolformer.reporting.plots import INK
from toolformer.reporting.select import SCALED
from toolformer.reporting.table import Figure

SCALING_GROUPS = {"lama": "LAMA", "math": "Math", "qa": "QA"}
COLOURS = {"model": "C0", "model_cc": "C3", "toolformer_disabled": "C2", "toolformer": "C1"}
"""Colours of systems, as indices of `plots.PALETTE`."""
CURVE_PANELS = (
    ("Training loss", "nats per token", ("loss",)),
    ("Held-out text", "perplexity", ("heldout_perplexity",)),
    (
        "Texts, calls and results",
        "perplexity",
        ("perplexity_texts", "perplexity_calls", "perplexity_results"),
    ),
)
"""Title, axis and metrics."""
TRAINED = {"augmented": ("C* (Toolformer)", "C1"), "plain": ("C (M + CC)", "C3")}
"""By data, the name and the colour of a curve."""
PARTS = {
    "perplexity_texts": ("texts of {}", ""), "perplexity_calls": ("calls of {}", "C4"),
    "perplexity_results": ("results of {}", "C5"),
}  # fmt: skip
"""By metric, the name of a curve, and its colour if it is not its data's."""
HOLLOW = {"markerfacecolor": "#ffffff"}
"""The paper's points."""


def draw_figures(evidence: Evidence) -> list[Figure]:
    """All figures that the evidence has data for."""
    builders = (overview, scaling, by_k, gains, training)
    drawn = (*(build(evidence) for build in builders), picture(evidence.ladders))
    return [figure for figure in drawn if figure]


def overview(evidence: Evidence) -> Figure | None:
    """Every measured benchmark at a glance, one row per benchmark."""
    scores = {key: score for key, score in evidence.scores.items() if key[0] in SYSTEMS}
    tasks = in_table_order(task for _, task in scores if not is_perplexity(task))
    caption = "Every measured benchmark; lines are 95 % intervals. The values are in the tables below."
    panel, height = partial(_draw_overview, scores, tasks[::-1]), max(1.8, 0.42 * len(tasks) + 1)
    made = Figure("overview", "At a glance", "What tools change", [panel], caption, height=height)
    return made if tasks else None


def _draw_overview(scores: Mapping[tuple[str, str], Score], tasks: Sequence[str], axes: Any) -> None:
    """The first task is at the bottom."""
    systems = [system for system in SYSTEMS if any((system, task) in scores for task in tasks)]
    for index, system in enumerate(systems):
        shift = 0.16 * ((len(systems) - 1) / 2 - index)  # keeps intervals apart
        rows = {row + shift: scores.get((system, task)) for row, task in enumerate(tasks)}
        for y, score in rows.items():
            if score and score.low is not None and score.high is not None:
                axes.hlines(y, score.low, score.high, color=COLOURS[system], linewidth=1.1, alpha=0.7)
        points = [(score.value, y) for y, score in rows.items() if score]
        _plot(axes, points, SYSTEMS[system], COLOURS[system], linestyle="none")
    axes.set(xlabel="percent correct", ylim=(-0.6, len(tasks) - 0.4))
    axes.set_xlim(0)
    axes.set_yticks(range(len(tasks)), [clean(title_of(task)) for task in tasks])


def scaling(evidence: Evidence) -> Figure | None:
    """Figure 4: mean score by model size, with and without calls; None without scores of two sizes."""
    panels = []
    for group, title in SCALING_GROUPS.items():
        cells = sorted({(model, system) for model, system, task in evidence.sizes if task in GROUPS[group]})
        # The benchmarks that every model was measured on.
        tasks = [task for task in GROUPS[group] if all((*cell, task) in evidence.sizes for cell in cells)]
        if tasks and len({evidence.parameters[model] for model, _ in cells}) > 1:
            title = f"{title} ({', '.join(map(title_of, tasks))})"
            panels.append(partial(_draw_scaling, evidence, title, cells, tasks))
    tools = ", ".join(paper.TOOLS[tool] for tool in paper.FIGURE4_TOOLS)
    caption = (
        f"Mean percent correct over the benchmarks in brackets.{tools_by_model(evidence.sizes)} Hollow: the paper's GPT-J on the same "
        f"benchmarks, of its Tables 3 to 5, with all five tools; its Figure 4 has {tools}."
    )
    caption += in_dtypes(((model,), score) for (model, *_), score in evidence.sizes.items())
    title = "Scores by model size, with and without calls"
    return Figure("figure4", "Figure 4", title, panels, caption, "by_size") if panels else None


def _draw_scaling(
    evidence: Evidence, title: str, cells: Sequence[tuple[str, str]], tasks: Sequence[str], axes: Any
) -> None:
    for system in SCALED:
        models = sorted((evidence.parameters[model], model) for model, name in cells if name == system)
        means = [
            (size, fmean(evidence.sizes[model, system, task].value for task in tasks))
            for size, model in models
        ]
        theirs = fmean(paper.SCORES[task][paper.SYSTEMS[system]] for task in tasks)
        name, colour = SYSTEMS[system], COLOURS[system]
        _plot(axes, means, name, colour)
        _plot(axes, [(paper.GPT_J_PARAMETERS, theirs)], f"{name}, paper", colour, linestyle="none", **HOLLOW)
    axes.set(title=title, xlabel="parameters, billions", ylabel="percent correct", xscale="log")
    axes.xaxis.set_major_formatter(lambda size, _: f"{size / 1e9:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_ylim(0)


def by_k(evidence: Evidence) -> Figure | None:
    """The sweep over k, as Table 9; None if no benchmark has two values of k."""
    panels = []
    for task in in_table_order(task for _, task in evidence.by_k):
        scores = {k: score for (k, name), score in sorted(evidence.by_k.items()) if name == task}
        panels.append(partial(_draw_k, task, scores))
    caption = (
        "Toolformer's score over all examples, with a call (AC) and without one (NC), and the share with a call. Dashed: the "
        "paper's score over all examples."
    )
    return Figure("by_k", "k-sweep", "Scores and calls by k", panels, caption, "table9") if panels else None


def _draw_k(task: str, scores: Mapping[int, Score], axes: Any) -> None:
    theirs = paper.BY_K.get(task, {})
    ks = sorted({*scores, *theirs})
    dashed = {"linestyle": "dashed", **HOLLOW}
    lines: Sequence[tuple[str, str, Mapping[int, float | None], dict[str, str]]] = (
        ("all examples", "C1", {k: score.value for k, score in scores.items()}, {}),
        ("with a call (AC)", "C2", {k: score.metrics.get("score_ac") for k, score in scores.items()}, {}),
        ("without (NC)", "C3", {k: score.metrics.get("score_nc") for k, score in scores.items()}, {}),
        ("share with a call", "C0", {k: 100 * s.calls / s.n for k, s in scores.items() if s.n}, {}),
        ("all examples, paper", "C1", {k: values[0] for k, values in theirs.items()}, dashed),
    )
    for name, colour, values, style in lines:
        points = [(ks.index(k), value) for k, value in values.items() if value is not None]
        if points:
            _plot(axes, points, name, colour, **style)
    axes.set(title=clean(title_of(task)), xlabel="k", ylabel="percent", xlim=(-0.6, len(ks) - 0.4))
    axes.set_xticks(range(len(ks)), map(str, ks))
    axes.set_ylim(0)


def gains(evidence: Evidence) -> Figure | None:
    """The distribution of the gains of each tool's scored candidates."""
    annotation = evidence.annotation
    if not annotation or not annotation.gains:
        return None
    tools = enumerate(in_order(annotation.gains), start=1)
    panels = [partial(_draw_gains, annotation, tool, f"C{index}") for index, tool in tools]
    caption = (
        f"The gain {annotation.difference} of every scored candidate (below all thresholds its bound L(ε) − L⁺). Calls right "
        "of the dashed line, τ_f, are kept; the outermost bars hold everything beyond."
    )
    return Figure("gains", "Gains", "Distribution of gains, by tool", panels, caption, "reasons")


def _draw_gains(annotation: Annotation, tool: str, colour: str, axes: Any) -> None:
    counts, edges, threshold = annotation.gains[tool], annotation.edges, annotation.thresholds.get(tool)
    axes.bar(edges[:-1], counts, width=0.94 * (edges[1] - edges[0]), align="edge", color=colour)
    axes.axvline(0, color=INK, linewidth=0.9)
    if threshold is not None:
        axes.axvline(threshold, color=INK, linewidth=0.9, linestyle="dashed")
        axes.annotate(
            f"τ_f = {threshold:g}", (threshold, 1), xycoords=("data", "axes fraction"), xytext=(3, -2),
            textcoords="offset points", va="top", fontsize=7.5,
        )  # fmt: skip
    title = clean(f"{tool_name(tool)} ({sum(counts):,})")
    axes.set(title=title, xlabel="gain, nats", ylabel="candidates")


def training(evidence: Evidence) -> Figure | None:
    """Loss and perplexity over the steps of training."""
    panels = []
    for title, label, metrics in CURVE_PANELS:
        curves = {key: points for key, points in evidence.curves.items() if key[1] in metrics}
        if curves:
            panels.append(partial(_draw_curves, curves, title, label))
    caption = (
        "The trainings that were evaluated, or the newest if none was. Held-out text at step 0 is "
        "the model before training."
    )
    made = Figure("training", "Training", "Loss and perplexity", panels, caption, "cost")
    return made if panels else None


def _draw_curves(curves: Mapping[tuple[str, str], Points], title: str, label: str, axes: Any) -> None:
    for (data, metric), points in curves.items():
        name, colour = TRAINED.get(data, (clean(data), COLOURS["model"]))
        of, other = PARTS.get(metric, ("{}", ""))
        marker = {"marker": "o" if len(points) <= 30 else None}
        _plot(axes, points, of.format(name), other or colour, **marker)
    axes.set(title=title, xlabel="step", ylabel=label)


def _plot(axes: Any, points: Sequence[tuple[float, float]], label: str, colour: str, **style: Any) -> None:
    """Points and the line through them; the paper's are dashed, or hollow."""
    style = {"marker": "o", "linewidth": 1.6, "markersize": 4.5, **style}
    axes.plot(*zip(*points, strict=True), color=colour, label=label, clip_on=False, **style)
