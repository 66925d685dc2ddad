"""The content of cells: numbers with their intervals, names, and sizes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from toolformer.benchmarks import MLQA_LANGUAGES
from toolformer.data.assets import ASSETS
from toolformer.decoding import settings
from toolformer.reporting import paper
from toolformer.reporting.data import Score
from toolformer.reporting.select import BASELINE
from toolformer.reporting.table import DASH, Cell, Table
from toolformer.results import Run
from toolformer.statistics.intervals import wilson
from toolformer.statistics.paired import Comparison

UNKNOWN = "dtype not recorded"
LM_EVAL = "lm_eval"
"""The stage of a run that is a file of lm-eval's."""
T = TypeVar("T", Cell, Table)

SYSTEMS: Mapping[str, str] = {system: settings.SYSTEMS[system].title for system in settings.PAPER_SYSTEMS}
TASK_TITLES: Mapping[str, str] = {
    "lama_squad": "SQuAD", "lama_google_re": "Google-RE", "lama_trex": "T-REx",
    "asdiv": "ASDiv", "svamp": "SVAMP", "mawps": "MAWPS", "arithmetic": "Arithmetic",
    "webqs": "WebQS", "nq": "NQ", "triviaqa": "TriviaQA",
    **{f"mlqa_{language}": f"MLQA {language}" for language in MLQA_LANGUAGES},
    **{f"mlqa_all_en_{language}": f"MLQA {language} (All En)" for language in MLQA_LANGUAGES},
    "mlqa_en": "MLQA en",
    **{f"xquad_{language}": f"XQuAD {language}" for language in MLQA_LANGUAGES},
    "xquad_en": "XQuAD en", "templama": "TempLAMA", "dateset": "Dateset",
    "wikitext_perplexity": "WikiText", "heldout_perplexity": "Held-out text",
}  # fmt: skip
SYMBOLS: Mapping[str, str] = {
    "M": "the language model as it is",
    "M + CC": "the model, finetuned on the texts without calls",
    "Toolformer": "the model, finetuned on the texts with calls, and free to call tools",
    "Toolformer (disabled)": "the same model, not allowed to call",
    "C*": "the texts with the calls that were kept; C: the same texts without",
    "τ_f": "the gain, in nats, that a call must reach to be kept",
    "L(ε)": "loss on the tokens after the call's place, in nats, without a call",
    "L⁺": "the same with the call and its result",
    "L⁻": "the same without the result: the smaller of the losses without a call and with one whose result is empty",
    "k": "a call starts when its token is among the k most likely",
    "rolled back": "calls that were begun and rolled back, by reason: their text does not count",
    "result begun": "calls whose result the model began to write itself, before the tool was run",
    "call in call": "calls inside of which the model began another call",
    "AC": "over the examples with a call",
    "NC": "over the examples without a call",
    "n": "examples, or texts, that a number rests on",
    "p": "how likely so large a difference is by chance alone if the systems are equal, on the same examples: McNemar's exact test "
    "of one run each, else Student's t over seeds and questions as crossed random effects",
    "Holm": "p corrected for all comparisons of the report",
    "only it": "examples that the first system alone has right; only other: those that the second alone has right",
    "detectable": "the smallest true difference (perplexity: ratio) that a test at 5 % finds in four cases of five",
    "[a, b]": "95 % interval: Wilson's of the right and wrong answers of one run, else Student's t over seeds and questions",
    "†": "differs from Toolformer (disabled): corrected p below 0.05",
    "‡": "differs from M: corrected p below 0.05",
    "bold": "our best system, where all were asked as many examples",
    "tie": "another system has the same figure",
    DASH: "not measured",
}
"""The meaning of the tables' symbols."""


def from_run(numbers: T, run: Run) -> T:
    """A cell, or a table, with the run that its numbers come from."""
    return replace(numbers, run=run.id[:8], command=repeats(run))


def repeats(run: Run) -> str:
    """The command that does what the run did; of a file of lm-eval's, its name."""
    if run.stage == LM_EVAL:
        return run.name
    return f"toolformer {run.stage} like={run.id[:8]}"


def dtypes(cells: Iterable[tuple[tuple[Any, ...], Score]]) -> dict[str, list[Any]]:
    """By dtype, the rows of a table (first parts of their keys) whose runs were made in it; empty where no run says."""
    found: dict[str, dict[Any, None]] = {}
    for (row, *_), score in cells:
        for run in score.runs:
            found.setdefault(str(run.facts.get("dtype", UNKNOWN)), {})[row] = None
    return {} if {*found} <= {UNKNOWN} else {dtype: [*found[dtype]] for dtype in sorted(found)}


def in_dtypes(cells: Iterable[tuple[tuple[Any, ...], Score]]) -> str:
    """The end of a caption: in which dtype a table was measured, or which rows in which."""
    found = dtypes(cells)
    if len(found) < 2:
        return "".join(f" Measured in {dtype}." for dtype in found)
    parts = "; ".join(f"{dtype}: {', '.join(map(str, rows))}" for dtype, rows in found.items())
    return f" The rows differ in dtype, and a part of their difference may be rounding: {parts}."


def tools_by_model(cells: Mapping[tuple[str, str, str], Score]) -> str:
    """The part of a caption that says which tools the models had, and what answered their calls; by model, system and task."""
    found: dict[str, dict[str, None]] = {}
    for (model, system, _), score in cells.items():
        if system == "toolformer":
            tools = implementations(score.runs, in_order(score.run.setting("tools", [])))
            found.setdefault(tools, {})[model_title(model)] = None
    if len(found) < 2:
        return "".join(f" Tools: {tools}." for tools in found if tools)
    return "".join(
        f" Tools of {', '.join(models)}: {tools or 'not recorded'}." for tools, models in found.items()
    )


def implementations(runs: Iterable[Run], tools: Iterable[str] = ()) -> str:
    """Implementations that answered the calls of these runs, by tool; tools with only one, such as the calculator,
    are left out unless `tools` names them."""
    found: dict[str, dict[str, None]] = {tool: {} for tool in tools}
    for run in runs:
        named = run.facts.get("implementations")
        for tool, text in named.items() if isinstance(named, Mapping) else ():
            found.setdefault(str(tool), {})[str(text)] = None
    return "; ".join(
        tool_name(tool) + (f" ({' or '.join(found[tool])})" if found[tool] else "")
        for tool in in_order(found)
    )


def tools_used(cells: Iterable[Score]) -> str:
    """The sentence of a caption that says what answered the calls of these results."""
    found = implementations(run for score in cells for run in score.runs)
    return f" Tools: {found}." if found else ""


def shown_sizes(column: Iterable[Score]) -> str:
    """For the head of a column: the number of examples."""
    known = sorted({score.n for score in column if score.n})
    if len(known) < 2:
        return f"n = {known[0]:,}" if known else ""
    return f"n differs: {known[0]:,} to {known[-1]:,}"


def title_of(task: str) -> str:
    """A task's name in tables; a custom task keeps its own."""
    name, _, measure = task.partition("/")
    return TASK_TITLES.get(name, name) + (f", {measure.replace('_', ' ')}" if measure else "")


def name_of(row: str) -> str:
    """A system's name in tables, or a baseline's."""
    return SYSTEMS.get(row, row.removeprefix(BASELINE))


def model_title(model: str) -> str:
    """A model's name: of a bundled one that which its makers gave it."""
    asset = ASSETS.get(model)
    return asset.licence.partition(" by ")[0] if asset else model


def tool_name(tool: str) -> str:
    return paper.TOOLS.get(tool, tool)


def ordered(known: Iterable[str], order: Iterable[str]) -> list[str]:
    """The known names in this order; those that the order lacks come last, by name."""
    names = set(known)
    first = [name for name in order if name in names]
    return first + sorted(names - set(first))


def in_table_order(tasks: Iterable[str]) -> list[str]:
    """The measured tasks, custom ones last (docs/extending.md)."""
    return ordered(tasks, TASK_TITLES)


def seeds_note(comparison: Comparison) -> str:
    """The difference of each seed where there is no interval, as small print."""
    if comparison.difference.low is not None:
        return ""
    return f"seeds {' '.join(Cell(value, 1, is_signed=True).text for value in comparison.by_seed)}"


def in_order(tools: Iterable[str]) -> list[str]:
    return ordered(tools, paper.TOOLS)


def of_task(cells: Mapping[Any, Score], task: str) -> list[Score]:
    """A benchmark's column, of cells whose keys end in the benchmark."""
    return [score for key, score in cells.items() if key[-1] == task]


def score_cell(
    score: Score, column: Iterable[Score], rivals: Sequence[Score] = (), digits: int = 1, lower: bool = False
) -> Cell:
    """A result with its interval, and with n unless its whole column has the same.

    Bold if it is, as printed, the best of its `rivals`, provided that all of them have as many examples.
    """
    has_n = len({other.n for other in column}) != 1
    notes = [f"({len(score.runs)} seeds)"] if len(score.runs) > 1 else []
    made = Cell(score.value, digits, low=score.low, high=score.high, n=score.n, has_n=has_n)
    values = [round(rival.value, digits) for rival in rivals if math.isfinite(rival.value)]
    is_fair = len(values) > 1 and len({rival.n for rival in rivals}) == 1
    is_best = is_fair and round(score.value, digits) == (min if lower else max)(values)
    if is_best and values.count(round(score.value, digits)) > 1:
        notes.append("tie")
    return from_run(replace(made, note=" ".join(notes), bold=is_best), score.run)


def share_cell(percent: float, n: int, has_n: bool = False) -> Cell:
    """A share of `n` examples with Wilson's interval."""
    if not n:
        return Cell(percent, 1)
    low, high = wilson(min(n, max(0, round(percent * n / 100))), n)
    return Cell(percent, 1, low=100 * low, high=100 * high, n=n, has_n=has_n)
