"""The report's figures: the benchmarks at a glance, scaling (Figure 4), scores by k, gains, training.

Each builder takes the evidence and returns a `Figure`, or None if there is nothing to draw.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from toolformer.benchmarks import GROUPS
from toolformer.reporting import paper
from toolformer.reporting.data import Annotation, Evidence, Points, Score
from toolformer.reporting.escape import clean
from toolformer.reporting.formatting import SYSTEMS, in_dtypes, in_order, in_table_order, title_of, tool_name
from toolformer.reporting.frame import SCALED
from toolformer.reporting.ladder import picture
from toolformer.reporting.plots import INK
from toolformer.reporting.table import Figure

SCALING_GROUPS = {"lama": "LAMA", "math": "Math", "qa": "QA"}
COLOURS = {"model": "C0", "model_cc": "C3", "toolformer_disabled": "C2", "toolformer": "C1"}
"""Of `plots.PALETTE`, by index."""
CURVE_PANELS = (
    (("loss",), "Training loss", "nats per token"),
    (("heldout_perplexity",), "Held-out text", "perplexity"),
    (
        ("perplexity_texts", "perplexity_calls", "perplexity_results"),
        "Texts, calls and results",
        "perplexity",
    ),
)
TRAINED = {
    "augmented": ("C* (Toolformer)", COLOURS["toolformer"]),
    "plain": ("C (M + CC)", COLOURS["model_cc"]),
}
"""By data, the name and the colour of a curve."""


def figures(evidence: Evidence) -> list[Figure]:
    """All figures that the evidence has data for."""
    builders = (overview, scaling, by_k, gains, training)
    drawn = (*(build(evidence) for build in builders), picture(evidence.ladders))
    return [figure for figure in drawn if figure]


def overview(evidence: Evidence) -> Figure | None:
    """Every measured benchmark at a glance, one row per benchmark."""
    scores = {key: score for key, score in evidence.scores.items() if key[0] in SYSTEMS}
    tasks = in_table_order(task for _, task in scores if not task.endswith("perplexity"))
    if not tasks:
        return None
    caption = "All measured benchmarks, with 95 % intervals; the values are in the tables below."
    panel, height = partial(_draw_overview, scores, tasks[::-1]), max(3, 0.42 * len(tasks) + 1)
    return Figure("overview", "At a glance", "What tools change", [panel], caption, height=height)


def _draw_overview(scores: Mapping[tuple[str, str], Score], tasks: Sequence[str], axes: Any) -> None:
    """The first task is at the bottom."""
    systems = [system for system in SYSTEMS if any((system, task) in scores for task in tasks)]
    for index, system in enumerate(systems):
        shift = 0.16 * ((len(systems) - 1) / 2 - index)  # keeps intervals apart
        rows = [(row + shift, scores.get((system, task))) for row, task in enumerate(tasks)]
        measured = [(y, score) for y, score in rows if score]
        for y, score in measured:
            if score.low is not None and score.high is not None:
                axes.hlines(y, score.low, score.high, color=COLOURS[system], linewidth=1.1, alpha=0.7)
        values, heights = [score.value for _, score in measured], [y for y, _ in measured]
        _plot(axes, values, heights, SYSTEMS[system], COLOURS[system], linestyle="none")
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
    if not panels:
        return None
    tools = ", ".join(paper.TOOLS[tool] for tool in paper.FIGURE4_TOOLS)
    caption = (
        "Mean percent correct over the benchmarks in brackets, on which every model shown was measured. Hollow: the "
        f"paper's GPT-J on the same benchmarks. The paper's tools here: {tools}."
    )
    caption += in_dtypes(((model,), score) for (model, *_), score in evidence.sizes.items())
    title = "Scores by model size, with and without calls"
    return Figure("figure4", "Figure 4", title, panels, caption, "table8")


def _draw_scaling(
    evidence: Evidence, title: str, cells: Sequence[tuple[str, str]], tasks: Sequence[str], axes: Any
) -> None:
    for system in SCALED:
        models = sorted((evidence.parameters[model], model) for model, name in cells if name == system)
        means = [fmean(evidence.sizes[model, system, task].value for task in tasks) for _, model in models]
        _plot(axes, [size for size, _ in models], means, SYSTEMS[system], COLOURS[system])
        theirs = fmean(paper.SCORES[task][paper.SYSTEMS[system]] for task in tasks)
        hollow = {"linestyle": "none", "markerfacecolor": "#ffffff"}
        _plot(
            axes, [paper.GPT_J_PARAMETERS], [theirs], f"{SYSTEMS[system]}, paper", COLOURS[system], **hollow
        )
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
    if not panels:
        return None
    caption = (
        "Toolformer's score over all examples, over those with a call (AC) and without one (NC), and the share of "
        "examples with a call. Dashed: the paper's score over all examples."
    )
    return Figure("by_k", "k-sweep", "Scores and calls by k", panels, caption, "table9")


def _draw_k(task: str, scores: Mapping[int, Score], axes: Any) -> None:
    theirs = paper.BY_K.get(task, {})
    ks = sorted({*scores, *theirs})

    def plot(name: str, values: Mapping[int, float | None], colour: str, **style: Any) -> None:
        points = {ks.index(k): value for k, value in values.items() if value is not None}
        if points:
            _plot(axes, list(points), list(points.values()), name, colour, **style)

    plot("all examples", {k: score.value for k, score in scores.items()}, "C1")
    plot("with a call (AC)", {k: score.metrics.get("score_ac") for k, score in scores.items()}, "C2")
    plot("without (NC)", {k: score.metrics.get("score_nc") for k, score in scores.items()}, "C3")
    shares = {k: 100 * score.calls / score.n for k, score in scores.items() if score.n}
    plot("share with a call", shares, "C0")
    papers = {k: values[0] for k, values in theirs.items()}
    plot("all examples, paper", papers, "C1", linestyle="dashed", markerfacecolor="#ffffff")
    axes.set(title=clean(title_of(task)), xlabel="k", ylabel="percent", xlim=(-0.6, len(ks) - 0.4))
    axes.set_xticks(range(len(ks)), map(str, ks))
    axes.set_ylim(0)


def gains(evidence: Evidence) -> Figure | None:
    """The distribution of the gains of each tool's scored candidates."""
    annotation = evidence.annotation
    if not annotation or not annotation.gains:
        return None
    tools = in_order(annotation.gains)
    panels = [
        partial(_draw_gains, annotation, tool, f"C{index}") for index, tool in enumerate(tools, start=1)
    ]
    caption = (
        f"The gain {annotation.difference} of every scored candidate, or its bound L(ε) − L⁺ where that is below all "
        "thresholds. The dashed line is the tool's threshold τ_f; calls to its right are kept. The outermost bars include "
        "everything beyond the 1st and 99th percentile."
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
    for metrics, title, label in CURVE_PANELS:
        curves = {key: points for key, points in evidence.curves.items() if key[1] in metrics}
        if curves:
            panels.append(partial(_draw_curves, curves, title, label))
    if not panels:
        return None
    caption = (
        "The trainings that were evaluated, or the newest if none was. Held-out text at step 0 is "
        "the model before training."
    )
    return Figure("training", "Training", "Loss and perplexity", panels, caption, "cost")


def _draw_curves(curves: Mapping[tuple[str, str], Points], title: str, label: str, axes: Any) -> None:
    for (data, metric), points in curves.items():
        name, colour = TRAINED.get(data, (clean(data), COLOURS["model"]))
        if metric == "perplexity_calls":
            name, colour = f"calls of {name}", "C4"
        elif metric == "perplexity_results":
            name, colour = f"results of {name}", "C5"
        elif metric == "perplexity_texts":
            name = f"texts of {name}"
        x, y = zip(*points, strict=True)
        _plot(axes, x, y, name, colour, marker="o" if len(x) <= 30 else None)
    axes.set(title=title, xlabel="step", ylabel=label)


def _plot(axes: Any, x: Sequence[float], y: Sequence[float], label: str, colour: str, **style: Any) -> None:
    """Points and the line through them; the paper's are dashed, or hollow."""
    style = {"marker": "o", "linewidth": 1.6, "markersize": 4.5, **style}
    axes.plot(x, y, color=colour, label=label, clip_on=False, **style)
