"""Evaluations as one frame of cells, and which of them a report shows. Pure functions of runs, which come newest first.

A cell is one benchmark of one evaluation. A report shows one model M and one training of it per kind of data, with those
that differ only in the seed. A table shows evaluations with the same `comparison` (questions, tools, decoding limits,
dtype), and in each of its cells the newest of them per seed. Only the table of wordings has wordings other than the paper's.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pandas import DataFrame, Series, concat

from toolformer.benchmarks import GROUPS, PAPER, TASKS
from toolformer.benchmarks.declared import data_files, is_perplexity
from toolformer.decoding.settings import PAPER_SYSTEMS, trained_on
from toolformer.evaluation.metrics import FAULTS
from toolformer.results import Run
from toolformer.results.run import MAIN

Thresholds = tuple[tuple[str, float], ...]
"""τ_f of each tool."""
Seeds = Sequence[Run]
"""Evaluations that differ only in their seed, in its order; most often one."""
Runs = Mapping[str, Run]
"""By id."""
COLUMNS = [
    *"run id task system policy k wording baseline comparison content data model".split(),
    *"training training_family before_filter thresholds sampled_by seed faults parameters n".split(),
]
"""Of a frame. A cell's `training` is an id, `training_family` the key of the trainings that differ only in the seed, `before_filter`
of those that differ in τ_f too; `content` identifies the files that the benchmark was read from; `sampled_by` is the seed that chose
the questions, `seed` that of the training, if any."""
SAME_BUT_SEED = [
    "comparison",
    "content",
    "wording",
    "system",
    "baseline",
    "policy",
    "training_family",
    "model",
]
"""The columns in which evaluations are equal that differ only in their seed."""
BASELINE = "baseline "
"""Precedes a baseline's name in place of a system's key, which contains no blank."""
DEFAULT_POLICY = "10"
"""The paper's: k = 10."""
FIGURE4 = "figure4"
"""The experiment of Figure 4."""
SCALED = ("toolformer", "toolformer_disabled")
"""The systems of Figure 4."""
ENGLISH = ("mlqa_en", "xquad_en")
"""Foreign benchmarks' questions in English, to English paragraphs."""
TABLES = (
    *(GROUPS[name] for name in ("lama", "math", "qa", "xquad", "temporal", "perplexity")),
    ("arithmetic",),
    (*GROUPS["mlqa"], *GROUPS["mlqa_all_en"]),
    ENGLISH,
)
"""The benchmarks that share a table; all custom ones share another."""
_THRESHOLDS = ["seed", "tool.*.filter_threshold", "score.floor"]


@dataclass(frozen=True)
class Selection:
    """The evaluations that a report shows."""

    model: str
    trainings: Mapping[str, str]
    """By data, the id of the training that was evaluated; of several seeds the first; empty if it is unknown."""
    policy: str
    """Toolformer's, in all tables but those of k: the paper's k if it was measured, else the newest evaluation's."""
    cells: Mapping[str, Mapping[Any, Seeds]]
    """Of each kind of table, by row and task: `scores`, `by_k`, `by_threshold`, `wordings`, `sizes` as in `data.Evidence`."""

    def used(self) -> set[str]:
        """The ids of the evaluations shown."""
        return {run.id for cells in self.cells.values() for runs in cells.values() for run in runs}


def frame(evaluated: Sequence[Run], trained: Runs, annotated: Runs) -> DataFrame:
    """The cells of evaluations; trainings and annotations are those that they may have been made from."""
    baselines = _baseline_names(evaluated)
    rows = []
    for run in evaluated:
        step = run.step.find("train")
        training = source(run, trained)
        annotation = source(training, annotated)
        system = run.facts.get("system", "")
        facts = {
            "run": run,
            "id": run.id,
            "system": system,
            "comparison": run.facts.get("comparison", ""),
            "k": run.facts.get("k") if system == "toolformer" else None,
            "policy": run.facts.get("policy", DEFAULT_POLICY),
            "wording": run.facts.get("wording", PAPER),
            "baseline": baselines.get(run.id, ""),
            "data": trained_on(system),
            "model": (training or run).setting("model", ""),
            "training": step.key() if step else "",
            "training_family": step.key(without=["seed"]) if step else "",
            "before_filter": step.key(without=_THRESHOLDS) if step and annotation else "",
            "thresholds": tuple(sorted(thresholds(annotation).items())) if annotation else (),
            "parameters": run.metrics.get("parameters"),
            "sampled_by": run.setting("seed", 0),
            "seed": (training or run).setting("seed", 0),
        }
        rows += [
            {
                **facts,
                "content": _content_of(run, task),
                "task": task,
                "faults": faults(run, task),
                "n": run.tasks[task].get("n", 0),
            }
            for task in scores(run)
        ]
    return DataFrame(rows, columns=COLUMNS, dtype=object)


def scores(run: Run) -> dict[str, float]:
    """The score in percent, or the perplexity, of each benchmark of an evaluation."""
    return {task: metrics[name] for task, metrics in run.tasks.items() for name in MAIN if name in metrics}


def _content_of(run: Run, task: str) -> str:
    """What identifies the content of the files that a benchmark was read from."""
    inputs = run.step.inputs
    if task == "heldout_perplexity":
        return str(inputs.get("heldout", ""))
    names = {name for files in data_files(task) for name in files}
    return " ".join(
        f"{name}={digest}" for name, digest in sorted(dict(inputs.get("data") or {}).items()) if name in names
    )


def seeds_of(run: Run) -> tuple[int, int]:
    """The seeds of a run's training (if it has none, its own) and of the questions that a limit selects."""
    training, run_seed = run.step.find("train"), int(run.setting("seed", 0))
    return int(training.settings.get("seed", 0)) if training else run_seed, run_seed


def faults(run: Run, task: str) -> int:
    """Answers that were given while a tool, or the model's server, was broken."""
    return round(run.tasks[task].get(FAULTS, 0))


def source(run: Run | None, known: Runs) -> Run | None:
    """The first of the known runs that a run was made from."""
    return next((known[run_id] for run_id in run.made_from if run_id in known), None) if run else None


def thresholds(run: Run) -> dict[str, float]:
    """τ_f of each tool of an annotation."""
    return run.thresholds


def _baseline_names(runs: Iterable[Run]) -> dict[str, str]:
    """The name of each baseline by the id of its run, with its path if two folders share a name."""
    named = {
        run.id: (name, run.setting("model", "") if run.facts["system"] == "baseline" else "")
        for run in runs
        if (name := run.facts.get("baseline"))
    }
    folders = Counter(name for name, _ in set(named.values()))
    return {
        run_id: f"{name} ({path})" if path and folders[name] > 1 else name
        for run_id, (name, path) in named.items()
    }


def select(cells: DataFrame, further: DataFrame) -> Selection:
    """The evaluations that a report shows; the `further` ones count in Figure 4 alone."""
    model = _most(cells[cells.baseline == ""], ["model"], ["system", "task"]) or ""
    of_model = cells[(cells.baseline != "") | (cells.model == model)]
    worded = _keep_one_training(of_model)
    paper_worded = worded[worded.wording == PAPER]
    called = paper_worded if len(paper_worded) else worded
    policy = _policy(called)
    trained = worded[worded.data != ""].sort_values("seed", kind="stable").drop_duplicates("data")
    trainings = dict(zip(trained.data, trained.training, strict=True))
    at_policy = of_model[(of_model.wording == PAPER) & (_rows(of_model, policy) == "toolformer")]
    worded = worded.assign(row=_rows(worded, policy))
    paper_worded = worded[worded.wording == PAPER]
    scored: dict[Any, Seeds] = {}
    for table in (*TABLES, {*paper_worded.task} - {*TASKS}):
        scored |= comparable(paper_worded[paper_worded.task.isin(table) & (paper_worded.row != "")], ["row"])
    tables = {
        "scores": scored,
        "by_k": _by_setting(paper_worded[paper_worded.k.notna()], "k"),
        "by_threshold": _by_setting(_keep_one_filter(at_policy, trainings.get("augmented")), "thresholds"),
        "wordings": _wordings(worded[worded.row != ""]),
        "sizes": _sizes(concat([cells, further], ignore_index=True), policy),
    }
    return Selection(model, trainings, policy, tables)


def comparable(cells: DataFrame, row: list[str]) -> dict[Any, Seeds]:
    """The cells of a table by row and task: of the largest `comparison` (`_largest`) the newest run per seed.

    Rows share a table if their questions were chosen by the same seed; evaluations of other seeds join theirs. One in which
    tools were broken counts only if there is no other.

    Args:
        row: the columns that name a row.
    """
    if cells.empty:
        return {}
    comparison = _largest(cells, row)[0]
    cells = cells[cells.comparison == comparison]
    # A benchmark is not shown beside itself from other data.
    contents = {task: _most(table, ["content"], row) for task, table in cells.groupby("task", sort=False)}
    cells = cells[cells.content == cells.task.map(contents)]
    common = _most(cells.sort_values("sampled_by", kind="stable"), ["sampled_by"], row)
    # Further seeds of an untrained model count where a trained one was asked the same.
    seeds = {common, *(cells.sampled_by[cells.data != ""] if any(cells.data) else cells.sampled_by)}
    cells = cells[cells.sampled_by.isin(seeds)]
    # One training may have been asked the questions of several seeds: those of the other rows count.
    cells = cells.assign(broken=cells.faults > 0, apart=cells.sampled_by != common)
    cells = cells.sort_values(["broken", "apart"], kind="stable").drop_duplicates([*row, "task", "seed"])
    groups = cells.groupby([*row, "task"], sort=False)
    return {key: [*group.sort_values("seed").run] for key, group in groups if not all(group.apart)}


def _policy(cells: DataFrame) -> str:
    """The policy of the Toolformer that was measured with most: other systems and questions; of equals the paper's k."""
    sizes: dict[str, tuple[Any, ...]] = {}
    for policy in dict.fromkeys(cells.policy[cells.system == "toolformer"]):
        rows = cells.assign(row=_rows(cells, policy))
        tables = [
            _largest(table, ["row"])[1] for _, table in rows[rows.row != ""].groupby("task", sort=False)
            if (table.row == "toolformer").any()
        ]  # fmt: skip
        sizes[policy] = (policy != "0", max(tables), policy == DEFAULT_POLICY)
    return max(sizes, key=sizes.__getitem__, default=DEFAULT_POLICY)


def _largest(cells: DataFrame, row: list[str]) -> tuple[str, tuple[bool, float, int]]:
    """The `comparison` that a table shows, and its size: one that compares rows before one that cannot, then by its number
    of questions and of rows; of equals the newest. So a small run does not replace an earlier, larger one.
    """
    sizes = {}
    for key, group in cells.groupby(["comparison", "sampled_by"], sort=False):
        rows = len(group.drop_duplicates(row))
        sizes[key] = (rows > 1, float(group.groupby("task").n.max().sum()), rows)
    largest = max(sizes, key=sizes.__getitem__)
    return largest[0], sizes[largest]


def _most(cells: DataFrame, key: list[str], values: list[str]) -> Any:
    """The key with most distinct values; of several the first; None if there are no cells."""
    counts = cells.drop_duplicates([*key, *values]).groupby(key, sort=False).size()
    return None if counts.empty else counts.idxmax()


def _keep_one_training(cells: DataFrame) -> DataFrame:
    """The cells, without other trainings than the one with most of them for each kind of data."""
    for data, trained in cells[cells.data != ""].groupby("data"):
        chosen = _most(trained, ["training_family"], ["system", "policy", "task"])
        cells = cells[(cells.data != data) | (cells.training_family == chosen)]
    return cells


def _rows(cells: DataFrame, policy: str) -> Series:
    """The row of each cell in a table that has Toolformer under this policy: a system or a baseline; empty if it has none."""
    system = cells.system.where(cells.system.isin(PAPER_SYSTEMS), "")
    system = system.where((cells.system != "toolformer") | (cells.policy == policy), "")
    return system.where(cells.baseline == "", BASELINE + cells.baseline)


def _by_setting(cells: DataFrame, setting: str) -> dict[Any, Seeds]:
    """The benchmarks that were measured with several values of a setting."""
    tables = (comparable(table, [setting]) for _, table in cells.groupby("task", sort=False))
    return {key: runs for table in tables if len(table) > 1 for key, runs in table.items()}


def _keep_one_filter(cells: DataFrame, training: str | None) -> DataFrame:
    """The cells whose trainings equal this one but for τ_f."""
    equal = cells.before_filter[(cells.training == training) & (cells.before_filter != "")]
    return cells[cells.before_filter.isin(equal)]


def _wordings(cells: DataFrame) -> dict[tuple[str, str, str], Seeds]:
    """By row, wording and task: what was measured in another wording than the paper's, with all its wordings."""
    results: dict[tuple[str, str, str], Seeds] = {}
    reworded = {*cells.task[cells.wording != PAPER]}
    cells = cells[cells.task.isin({task for task in reworded if not is_perplexity(task)})]
    for _, table in cells.groupby("task", sort=False):
        rows = comparable(table, ["row", "wording"])
        others = {row for row, wording, _ in rows if wording != PAPER}
        results |= {key: runs for key, runs in rows.items() if key[0] in others}
    return results


def _sizes(cells: DataFrame, policy: str) -> dict[tuple[str, str, str], Seeds]:
    """Figure 4: by model, system and task, the models of known size, each of one training."""
    row = _rows(cells, policy)
    cells = cells.assign(row=row.where(row != "", _rows(cells, DEFAULT_POLICY)))
    cells = cells[(cells.wording == PAPER) & cells.row.isin(SCALED) & cells.parameters.notna()]
    models = [_keep_one_training(of_model) for _, of_model in cells.groupby("model")]
    cells = concat(models).sort_index() if models else cells
    tasks = [task for group in ("lama", "math", "qa") for task in GROUPS[group]]
    results = comparable(cells[cells.task.isin(tasks)], ["model", "row"])
    sizes = {runs[0].metrics["parameters"] for runs in results.values()}
    return {key: runs[:1] for key, runs in results.items()} if len(sizes) > 1 else {}
