"""Results besides the scores: paired differences and their significance, how often tools are called, cost."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from toolformer.benchmarks import GROUPS
from toolformer.benchmarks.declared import is_perplexity
from toolformer.decoding.settings import trained_on
from toolformer.evaluation.metrics import GOLD_NATS
from toolformer.reporting import paper
from toolformer.reporting.annotation_tables import MOST_CUT
from toolformer.reporting.data import Evidence, Score
from toolformer.reporting.formatting import (
    SYSTEMS,
    from_run,
    in_dtypes,
    in_order,
    in_table_order,
    name_of,
    ordered,
    repeats,
    seeds_note,
    share_cell,
    title_of,
)
from toolformer.reporting.pairing import PAIRS, is_significant
from toolformer.reporting.select import DEFAULT_POLICY, scores, seeds_of
from toolformer.reporting.table import Cell, Table, Value, cell, number_columns, p_cell, text_columns
from toolformer.results import Run
from toolformer.tools.limits import CALL_TOO_LONG

DIFFERENCE = ("difference", "only it", "only other", "p", "Holm", "detectable")
FAILURES = {"n_failed": "rolled back", "n_results_begun": "result begun", "n_calls_in_calls": "call in call"}
"""By metric, the head of its column in *Tool use*."""
SIGN_OF = {"toolformer_disabled": "†", "model": "‡"}
_PAIRED = (
    "Percentage points (of perplexity the ratio), on the examples that both systems were asked; bold where p, "
    "corrected, is below 0.05."
)


def signs(evidence: Evidence, system: str, task: str) -> str:
    """The signs of the systems from which this one differs significantly."""
    compared = ((sign, evidence.paired.get((task, system, other))) for other, sign in SIGN_OF.items())
    return "".join(sign for sign, pair in compared if pair and is_significant(pair))


def paired(evidence: Evidence) -> Table:
    """Differences on the same examples, with intervals and p."""
    rows: list[list[Value]] = []
    rules = []
    for system, other in PAIRS:
        rules.append(len(rows))
        for task in in_table_order(task for task, *pair in evidence.paired if pair == [system, other]):
            # Perplexity is measured with calls disabled, so that Toolformer has none.
            if (system == "toolformer") != is_perplexity(task):
                names = cell(SYSTEMS[system], f"against {SYSTEMS[other]}"), title_of(task)
                rows.append([*names, *_difference(evidence, task, system, other)])
    columns = [*text_columns("System", "Benchmark"), *number_columns(*DIFFERENCE)]
    measured = (
        (row, score) for row in SYSTEMS for (other, _), score in evidence.scores.items() if other == row
    )
    caption = _PAIRED + in_dtypes(((SYSTEMS[row],), score) for row, score in measured)
    title = "Toolformer against the disabled model and the base, example by example"
    return Table.of("paired", "Significance", title, columns, rows, caption, rules)


def _difference(evidence: Evidence, task: str, system: str, other: str) -> list[Cell]:
    compared = evidence.paired[task, system, other]
    comparison = compared.comparison
    estimate, notes = comparison.difference, []
    if compared.unit:
        notes.append(f"a {compared.unit}")
    if max(compared.seeds) > 1:
        notes.append(f"({' and '.join(map(str, sorted(set(compared.seeds))))} seeds)")
    notes.append(seeds_note(comparison))
    digits = 3 if compared.unit else 1 if compared.is_score else 2
    difference = Cell(
        estimate.value,
        digits,
        is_signed=not compared.unit,
        low=estimate.low,
        high=estimate.high,
        n=comparison.n,
        has_n=True,
        note=" ".join(filter(None, notes)),
    )
    cells = [
        difference,
        *(cell("" if compared.unit else count) for count in (comparison.only_second, comparison.only_first)),
        p_cell(comparison.p_value),
        p_cell(compared.p_holm, is_significant(compared)),
        Cell(comparison.detectable, digits),
    ]  # fmt: skip
    measured = task.removesuffix(f"/{GOLD_NATS}")
    first, second = (evidence.scores[row, measured].run.id[:8] for row in (other, system))
    return [replace(made, run=second, command=f"toolformer compare {first} {second}") for made in cells]


def by_seed(evidence: Evidence) -> Table:
    """The score of each seed, of all systems that have several: a mean hides that half of the trainings gain nothing."""
    several = {key: score for key, score in evidence.scores.items() if len(score.runs) > 1}
    seeds = sorted({seeds_of(run)[0] for score in several.values() for run in score.runs})
    rows: list[list[Value]] = []
    rules = []
    for task in in_table_order(task for _, task in several):
        rules.append(len(rows))
        for system in ordered((row for row, name in several if name == task), SYSTEMS):
            runs = {seeds_of(run)[0]: run for run in several[system, task].runs}
            digits = 2 if task.endswith("perplexity") else 1
            cells = [
                from_run(Cell(scores(runs[seed])[task], digits), runs[seed]) if seed in runs else Cell("")
                for seed in seeds
            ]
            rows.append([title_of(task), name_of(system), *cells])
    columns = [*text_columns("Benchmark", "System"), *number_columns(*map(str, seeds), group="seed")]
    caption = "Percent correct, or perplexity, of each seed: of a trained system that of its training, else of its questions."
    return Table.of("seeds", "Seeds", "Scores by seed", columns, rows, caption, rules)


def cost(evidence: Evidence) -> Table:
    """Seconds, calls and tokens that making a system took, and its answers."""
    rows: list[list[Value]] = []
    rules: list[int] = []
    for system in ordered([*SYSTEMS, *(row for row, _ in evidence.scores)], SYSTEMS):
        scores = [score for (row, _), score in evidence.scores.items() if row == system]
        trained = evidence.trained.get(trained_on(system))
        if not scores and not trained:
            continue
        if system not in SYSTEMS:
            rules = rules or [len(rows)]
        making = _making(*trained) if trained else [cell(None if trained_on(system) else "")] * 4
        runs = {score.run.id[:8]: repeats(score.run) for score in scores}
        first, again = next(iter(runs), ""), "; ".join(runs.values())
        answers = (replace(answer, run=first, command=again) for answer in _answers(scores))
        rows.append([cell(name_of(system), "(baseline)" * (system not in SYSTEMS)), *making, *answers])
    columns = text_columns("System")
    columns += number_columns("annotation, s", "calls executed", "training, s", "tokens", group="Making it")
    columns += number_columns("examples", "seconds", "calls", "tokens", group="Answering")
    caption = (
        "Wall time on each run's device, over the benchmarks above; a call is an example with an executed call. Toolformer and "
        "Toolformer (disabled) are one model, made once."
    )
    return Table.of("cost", "Cost", "Seconds, calls and tokens", columns, rows, caption, rules)


def _making(training: Run, annotations: Sequence[Run]) -> list[Cell]:
    """Seconds of all its annotations, calls executed, seconds of training, tokens."""
    made, trained = [annotation.metrics for annotation in annotations], training.metrics
    # Not tools/NAME/executed, which counts what was not answered from the cache.
    executed = [
        count
        for metrics in made
        for name, count in metrics.items()
        if name.count("/") == 1 and name.endswith("/executed")
    ]
    seconds = [metrics.get("annotation_seconds", metrics.get("duration_seconds")) for metrics in made]
    known = [value for value in seconds if value is not None]
    # Of a training that was continued in another run, and of shards that it took over, the whole.
    cells = [
        _seconds(sum(known) if seconds and len(known) == len(seconds) else None),
        _rounded(sum(executed) if executed else None),
        _seconds(trained.get("training_seconds", trained.get("duration_seconds"))),
        _rounded(trained.get("train_tokens")),
    ]
    return [from_run(made, training) for made in cells]


def _answers(scores: Sequence[Score]) -> list[Cell]:
    """Examples, seconds, calls and tokens; a rate counts the benchmarks alone that logged both of its parts."""
    timed = [score for score in scores if score.metrics.get("seconds")]
    written = [score for score in timed if score.metrics.get("tokens")]
    calls = [score.calls for score in scores if "n_ac" in score.metrics]
    seconds, writing = (sum(score.metrics["seconds"] for score in part) for part in (timed, written))
    answered, tokens = (
        sum(score.n for score in timed),
        sum(round(score.metrics["tokens"]) for score in written),
    )
    return [
        cell(sum(score.n for score in scores)),
        _seconds(seconds or None, f"{seconds / answered:.2f} an example" if answered else ""),
        cell(sum(calls) if calls else None),
        cell(tokens or None, f"{tokens / writing:,.0f} a second" if tokens else ""),
    ]


def _seconds(seconds: float | None, note: str = "") -> Cell:
    return Cell(seconds, digits=0 if seconds is None or seconds >= 10 else 1, note=note)


def _rounded(number: float | None) -> Cell:
    return cell(None if number is None else round(number))


def tool_use(evidence: Evidence) -> Table:
    """How often Toolformer calls its tools on each benchmark (the paper gives it in its text), and which calls fail."""
    scores = {task: score for (row, task), score in evidence.scores.items() if row == "toolformer"}
    measured = {task: score for task, score in scores.items() if "call_share" in score.metrics}
    start = "call_share/"
    names = {name for score in measured.values() for name in score.metrics if name.startswith(start)}
    tools = in_order(name.removeprefix(start) for name in names)
    failures = [name for name in FAILURES if any(name in score.metrics for score in measured.values())]
    papers = {task: Cell(share, 1, note=tool) for task, (tool, share) in paper.TOOL_USE.items()}
    rows: list[list[Value]] = []
    for task in in_table_order(measured):
        score = measured[task]
        shares = (score.metrics.get(name, 0.0) for name in ("call_share", *(start + tool for tool in tools)))
        cells = [share_cell(100 * share, score.n) for share in shares]
        cells += [_failures(score, name) for name in failures]
        rows.append([title_of(task), *(from_run(made, score.run) for made in cells), papers.get(task, "")])
    columns = [*text_columns("Benchmark"), *number_columns("any tool", *tools, group="with a call, %")]
    columns += number_columns(*(FAILURES[name] for name in failures), group="calls")
    columns += number_columns("paper", paper=True)
    has_math = any(task in GROUPS["math"] for task in measured)
    policies = sorted({score.run.facts.get("policy", DEFAULT_POLICY) for score in measured.values()})
    caption = (
        f"Toolformer with calls enabled (k = {', '.join(policies)})."
        + " The paper's 97.9 % is over its three math benchmarks together." * has_math
        + in_dtypes(((title_of(task),), score) for task, score in measured.items())
        + _too_long(measured)
    )
    return Table.of("tool_use", "Tool use", "Share of examples with a call", columns, rows, caption)


def _too_long(measured: Mapping[str, Score]) -> str:
    """A sentence that names the benchmarks on which more than `MOST_CUT` of the calls were too long."""
    shares = {
        task: score.metrics.get(f"n_failed/{CALL_TOO_LONG}", 0.0)
        / max(1.0, score.metrics.get("n_ac", 0.0) + score.metrics.get("n_failed", 0.0))
        for task, score in measured.items()
    }
    named = [
        f"{title_of(task)} {100 * shares[task]:.0f} %"
        for task in in_table_order(shares)
        if shares[task] > MOST_CUT
    ]
    return f" Calls longer than tool.NAME.max_call_tokens: {', '.join(named)}." if named else ""


def _failures(score: Score, name: str) -> Cell:
    """How many calls failed in some way, a mean over seeds; of those rolled back how many for each reason."""
    if (number := score.metrics.get(name)) is None:
        return Cell(None)
    reasons = {
        key.removeprefix(f"{name}/"): n for key, n in score.metrics.items() if key.startswith(f"{name}/")
    }
    most_first = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    note = "; ".join(f"{reason} {_mean(n)}" for reason, n in most_first)
    return Cell(number, digits=0 if number == round(number) else 1, note=note)


def _mean(number: float) -> str:
    return f"{number:,.1f}".removesuffix(".0")
