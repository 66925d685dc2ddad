"""The report's figures as plain series: scaling (Figure 4), scores by k, gains, training. Knows no plotting library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks import GROUPS
from toolformer.reporting import paper
from toolformer.reporting.cells import SYSTEMS, TASKS, in_order, own_tasks, title_of
from toolformer.reporting.commands import figure_4_command, no_training
from toolformer.reporting.evidence import Curve, Evidence, KScore, Score
from toolformer.reporting.layout import Axis, Figure, Panel, Series, footnote

SCALING_GROUPS = {"lama": "LAMA", "math": "Math", "qa": "QA"}
SCALED = ("toolformer", "toolformer_disabled")
COLOURS = {"model": 0, "model_cc": 3, "toolformer_disabled": 2, "toolformer": 1}
"""Places of the systems in the palette."""
CURVE_PANELS = (
    (("loss",), "Training loss", "nats a token"),
    (("heldout_perplexity",), "Held-out text", "perplexity"),
    (("perplexity_texts", "perplexity_calls"), "Texts and calls trained on", "perplexity"),
)
TRAINED = {"augmented": "toolformer", "plain": "model_cc"}
DATA = {"augmented": "C* (Toolformer)", "plain": "C (M + CC)"}


def figures(evidence: Evidence) -> tuple[Figure, ...]:
    """The figures of a report; each names the table that it follows."""
    found = (overview(evidence), scaling(evidence), by_k(evidence), gains(evidence), starts(evidence))
    return tuple(figure for figure in (*found, training(evidence)) if figure)


def overview(evidence: Evidence) -> Figure | None:
    """Every measured benchmark at a glance, or None where there are no scores."""
    tasks = [*TASKS, *own_tasks(task for _, task in evidence.scores)]
    tasks = [task for task in tasks if not task.endswith("perplexity")]
    tasks = [task for task in tasks if any((system, task) in evidence.scores for system in SYSTEMS)]
    if not tasks:
        return None
    series = []
    shown = [system for system in SYSTEMS if any((system, task) in evidence.scores for task in tasks)]
    for place, system in enumerate(shown):
        points = [(row, evidence.scores[system, task]) for row, task in enumerate(reversed(tasks))
                  if (system, task) in evidence.scores]  # fmt: skip
        shift = 0.16 * ((len(shown) - 1) / 2 - place)
        series.append(
            Series(
                SYSTEMS[system],
                tuple(score.value for _, score in points),
                tuple(row + shift for row, _ in points),
                "points",
                COLOURS[system],
                low=tuple(score.value if score.low is None else score.low for _, score in points),
                high=tuple(score.value if score.high is None else score.high for _, score in points),
                lying=True,
            )
        )
    ticks = tuple((float(row), title_of(task)) for row, task in enumerate(reversed(tasks)))
    panel = Panel(
        "", Axis("percent correct", whole=True), Axis("", ticks=ticks), tuple(series), tall=len(tasks)
    )
    caption = "Benchmarks that were measured, with 95 % intervals. The tables below have the figures."
    return Figure("overview", "At a glance", "What tools change", (panel,), caption)


def scaling(evidence: Evidence) -> Figure:
    """Figure 4: mean score by model size, with calls and without; without data of two sizes, how to get it."""
    title = "Scores by model size, with and without calls"
    panels = tuple(_scaling_panel(evidence, group, tasks) for group, tasks in scaled(evidence).items())
    if not panels:
        text = "Models of two sizes were not measured yet, or share no benchmark with the same tools:"
        note = footnote("a", text, figure_4_command(evidence))
        return Figure("figure4", "Figure 4", title, (), "", "table8", (note,))
    tools = ", ".join(paper.TOOLS[tool] for tool in paper.FIGURE4_TOOLS)
    caption = (
        "Mean percent correct over the benchmarks that all models shown were measured on, named in brackets. Hollow: "
        f"the paper's GPT-J, and GPT-3 as a line, from its tables of the same benchmarks. The paper's tools here: {tools}."
    )
    return Figure("figure4", "Figure 4", title, panels, caption, "table8")


def scaled(evidence: Evidence) -> dict[str, list[str]]:
    """The groups of benchmarks that Figure 4 draws, those of two sizes of model, with the benchmarks all share."""
    found = {}
    for group in SCALING_GROUPS:
        measured = _measured(evidence, group)
        tasks = [task for task in GROUPS[group] if all(task in own for own in measured.values())]
        if tasks and len({evidence.parameters[model] for model, _ in measured}) > 1:
            found[group] = tasks
    return found


def drawn(evidence: Evidence) -> dict[tuple[str, str, str], Score]:
    """The scores that Figure 4 draws, by model, system and task."""
    tasks = {task for own in scaled(evidence).values() for task in own}
    return {key: score for key, score in evidence.sizes.items() if key[1] in SCALED and key[2] in tasks}


def _measured(evidence: Evidence, group: str) -> dict[tuple[str, str], set[str]]:
    """The benchmarks of a group that were measured, by model and system."""
    measured: dict[tuple[str, str], set[str]] = {}
    for model, system, task in evidence.sizes:
        if system in SCALED and task in GROUPS[group]:
            measured.setdefault((model, system), set()).add(task)
    return measured


def _scaling_panel(evidence: Evidence, group: str, tasks: Sequence[str]) -> Panel:
    measured = _measured(evidence, group)
    series = []
    for system in SCALED:
        models = sorted(
            (one for one, name in measured if name == system), key=lambda one: (evidence.parameters[one], one)
        )
        means = [_mean(evidence.sizes[model, system, task].value for task in tasks) for model in models]
        sizes = tuple(evidence.parameters[model] for model in models)
        name = SYSTEMS[system]
        series.append(Series(name, sizes, tuple(means), colour=COLOURS[system], labels=tuple(models)))
        theirs = _mean(paper.SCORES[task][paper.SYSTEMS[system]] for task in tasks)
        at = (_place_of_gpt_j(evidence),)
        series.append(
            Series(f"{name}, paper", at, (theirs,), "points", COLOURS[system], True, labels=(paper.MODEL,))
        )
    ends = [x for one in series for x in one.x]
    gpt3 = _mean(paper.SCORES[task][paper.LARGER[1]] for task in tasks)
    series.append(Series(paper.LARGER[1], (min(ends), max(ends)), (gpt3, gpt3), colour=5, paper=True))
    names = ", ".join(TASKS[task] for task in tasks)
    ticks = tuple((size, _size(size)) for size in _apart(ends))
    label = Axis("parameters", logarithmic=True, ticks=ticks)
    return Panel(
        f"{SCALING_GROUPS[group]} ({names})", label, Axis("percent correct", whole=True), tuple(series)
    )


def _place_of_gpt_j(evidence: Evidence) -> float:
    """Where the paper's GPT-J stands: above ours, whose parameters are counted, where it was measured."""
    ours = (
        size
        for model, size in evidence.parameters.items()
        if model.rpartition("/")[2].lower().startswith("gpt-j-6b")
    )
    return next(ours, paper.PARAMETERS["gpt-j-6b"])


def _apart(sizes: Iterable[float], ratio: float = 1.25) -> list[float]:
    """The sizes in order, without those whose labels would overlap the one before."""
    found: list[float] = []
    for size in sorted(set(sizes)):
        if not found or size > ratio * found[-1]:
            found.append(size)
    return found


def _size(parameters: float) -> str:
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.3g}M"


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def by_k(evidence: Evidence) -> Figure | None:
    """The sweep over k, as Table 9; None where no benchmark has two k (the table has the command)."""
    panels = []
    for task in dict.fromkeys(task for _, task in evidence.by_k):
        found = sorted((k, score) for (k, one), score in evidence.by_k.items() if one == task)
        if len(found) > 1:
            panels.append(_k_panel(task, found))
    if not panels:
        return None
    caption = (
        "Toolformer's score over all examples, over those with a call (AC) and without one (NC), and the share of "
        "examples with a call. Dashed: the paper's score over all examples."
    )
    return Figure("by_k", "k-sweep", "Scores and calls by k", tuple(panels), caption, "table9")


def _k_panel(task: str, found: Sequence[tuple[int, KScore]]) -> Panel:
    theirs = paper.BY_K.get(task, {})
    ks = sorted({k for k, _ in found} | set(theirs))
    place = {k: float(number) for number, k in enumerate(ks)}

    def series(
        name: str, values: Iterable[tuple[int, float | None]], colour: int, papers: bool = False
    ) -> Series:
        points = [(place[k], value) for k, value in values if value is not None]
        return Series(name, tuple(x for x, _ in points), tuple(y for _, y in points), "line", colour, papers)

    drawn = [
        series("all examples", ((k, score.value) for k, score in found), 1),
        series("with a call (AC)", ((k, score.ac) for k, score in found), 2),
        series("without (NC)", ((k, score.nc) for k, score in found), 3),
        series("share with a call", ((k, 100 * score.n_ac / score.n) for k, score in found if score.n), 0),
    ]
    if theirs:
        drawn.append(
            series("all examples, paper", ((k, figures[0]) for k, figures in theirs.items()), 1, True)
        )
    ticks = tuple((place[k], str(k)) for k in ks)
    shown = tuple(one for one in drawn if one.x)
    return Panel(TASKS.get(task, task), Axis("k", ticks=ticks), Axis("percent", whole=True), shown)


def gains(evidence: Evidence) -> Figure | None:
    """How the gains of each tool's scored candidates are distributed."""
    annotation = evidence.annotation
    if not annotation or not annotation.gains:
        return None
    edges = annotation.edges
    middles = tuple((low + high) / 2 for low, high in zip(edges, edges[1:], strict=False))
    panels = []
    for tool in in_order(annotation.gains):
        found = annotation.gains[tool]
        bars = Series(
            "candidates", middles, tuple(map(float, found.counts)), "bars", _tool_colour(evidence, tool)
        )
        marks = () if found.threshold is None else ((found.threshold, f"τ_f = {found.threshold:g}"),)
        name = f"{paper.TOOLS.get(tool, tool)} ({sum(found.counts):,})"
        panels.append(
            Panel(name, Axis("gain, nats"), Axis("candidates", whole=True), (bars,), ((0.0, ""), *marks))
        )
    caption = (
        f"The gain {annotation.difference} of every scored candidate; the dashed line is the tool's threshold τ_f, right of it calls are "
        "kept. The outermost bars also hold what lies beyond the 1st and 99th percentile."
    )
    return Figure("gains", "Gains", "Distribution of gains, by tool", tuple(panels), caption, "reasons")


def starts(evidence: Evidence) -> Figure | None:
    """Whether places where a call is likely are places where it helps."""
    annotation = evidence.annotation
    found = {tool: one for tool, one in (annotation.gains if annotation else {}).items() if one.starts}
    series = []
    for tool in in_order(found):
        points = [(p, gain) for p, gain in found[tool].starts if p > 0]
        if points:
            x, y = (tuple(values) for values in zip(*points, strict=True))
            series.append(Series(paper.TOOLS.get(tool, tool), x, y, "cloud", _tool_colour(evidence, tool)))
    if not series:
        return None
    axis = Axis("start probability of a call at the position", logarithmic=True)
    panel = Panel("", axis, Axis("gain, nats"), tuple(series))
    drawn = sum(len(one.x) for one in series)
    caption = f"Does a place where the model would start a call gain from it? {drawn:,} scored candidates, evenly drawn."
    return Figure("starts", "Gains", "Start probability and gain", (panel,), caption, "reasons")


def _tool_colour(evidence: Evidence, tool: str) -> int:
    known = evidence.annotation.gains if evidence.annotation else {}
    return 1 + in_order({*paper.TOOLS, *known}).index(tool)


def training(evidence: Evidence) -> Figure:
    """Loss and perplexity over the steps of training."""
    panels = []
    for metrics, title, label in CURVE_PANELS:
        series = [_curve(curve, metrics) for curve in evidence.curves if curve.metric in metrics]
        if series:
            panels.append(Panel(title, Axis("step"), Axis(label), tuple(series)))
    if not panels:
        note = footnote("a", *no_training(evidence, "augmented"))
        if evidence.trained:
            why = "The curves are not to be had: the trainings have one step, or their store does not give them."
            note = footnote("a", why)
        return Figure("training", "Training", "Loss and perplexity", (), "", "cost", (note,))
    caption = (
        "From the trainings behind the scores, or the newest where none was evaluated; the first held-out figure is of "
        "the model before training."
    )
    return Figure("training", "Training", "Loss and perplexity", tuple(panels), caption, "cost")


def _curve(curve: Curve, metrics: Sequence[str]) -> Series:
    name, colour = DATA.get(curve.data, curve.data), COLOURS[TRAINED.get(curve.data, "model")]
    if len(metrics) > 1:
        calls = curve.metric == "perplexity_calls"
        name, colour = f"{'calls' if calls else 'texts'} of {name}", 4 if calls else colour
    x, y = (tuple(float(value) for value in values) for values in zip(*curve.points, strict=True))
    return Series(name, x, y, colour=colour)
