"""Evaluations as one frame of cells, and which of them a report shows. Pure functions of runs, which come newest first.

A cell is one benchmark of one evaluation. A report shows one model M, the one with most cells. Two rules choose the rest:

1. **A row is an arm**: the evaluations whose answers have the same key but for seeds. Of several arms for one row a report shows the
   one with most cells; of equals that with the paper's k, then the newest. Another one is shown where that was not measured, and named.
2. **A column is the set of questions that most rows answered**, by its digest; of equals the largest, then the newest. Where each seed
   chose its own questions, each has such a set of the same size.

In each cell are the newest runs per seed, and one in which tools were broken only if there is no other.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pandas import DataFrame, Series, concat

from toolformer.benchmarks import GROUPS, PAPER
from toolformer.benchmarks.declared import is_perplexity
from toolformer.decoding.settings import PAPER_SYSTEMS, trained_on
from toolformer.evaluation.metrics import FAULTS
from toolformer.results import Run
from toolformer.results.run import MAIN
from toolformer.step import Step

Thresholds = tuple[tuple[str, float], ...]
"""τ_f of each tool."""
Seeds = Sequence[Run]
"""Evaluations that differ only in their seed, in its order; most often one."""
Runs = Mapping[str, Run]
"""By id."""
COLUMNS = [
    *"run id task system policy k wording baseline arm annotated questions data model".split(),
    *"training training_family before_filter thresholds sampled_by seed faults parameters n".split(),
]
"""Of a frame. A cell's `arm` is the key of its answers without seeds, `annotated` the same with the seed of the annotation; `questions` is
the digest of those that were asked, `sampled_by` the seed that chose them; `training` is an id, `training_family` the key of the
trainings that differ only in the seed, `before_filter` of those that differ in τ_f too; `seed` is that of the training, if any."""
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
    """Cells of each kind of table, by row and task: `scores`, `by_k`, `by_threshold`, `wordings`, `sizes` as in
    `data.Evidence`."""

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
            "arm": arm_of(run),
            "annotated": arm_of(run, but=("annotate",)),
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
                "questions": run.questions.get(task, ""),
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


def arm_of(run: Run, but: Collection[str] = ()) -> str:
    """The key of an evaluation's answers without seeds, and the wording of their prompts: runs of one arm differ only in seeds.

    Args:
        but: names of steps whose seeds count.
    """
    step = run.step.find("answer") or run.step
    key = json.dumps([_seedless(step, but), run.facts.get("wording", PAPER)], sort_keys=True)
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _seedless(step: Step, but: Collection[str]) -> dict[str, Any]:
    """A step in plain types, without the seeds of it and of the steps that it was made from."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(part) for part in value]
        return _seedless(value, but) if isinstance(value, Step) else value

    kept = {name: value for name, value in step.settings.items() if name != "seed" or step.name in but}
    inputs = {name: plain(value) for name, value in step.inputs.items() if name != "seed"}  # of chance
    return {"name": step.name, "version": step.version, "settings": kept, "inputs": inputs}


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
    policy = _policy(called[called.system == "toolformer"])
    trained = worded[worded.data != ""].sort_values("seed", kind="stable").drop_duplicates("data")
    trainings = dict(zip(trained.data, trained.training, strict=True))
    at_policy = of_model[(of_model.wording == PAPER) & (_rows(of_model, policy) == "toolformer")]
    worded = worded.assign(row=_rows(worded, policy))
    paper_worded = worded[worded.wording == PAPER]
    tables = {
        "scores": comparable(paper_worded[paper_worded.row != ""], ["row"]),
        "by_k": _by_setting(paper_worded[paper_worded.k.notna()], "k"),
        "by_threshold": _by_setting(_keep_one_filter(at_policy, trainings.get("augmented")), "thresholds"),
        "wordings": _wordings(worded[worded.row != ""]),
        "sizes": _sizes(concat([cells, further], ignore_index=True), policy),
    }
    return Selection(model, trainings, policy, tables)


def comparable(cells: DataFrame, row: list[str]) -> dict[Any, Seeds]:
    """The cells of a table by row and task, chosen by the two rules of this module.

    Args:
        row: the columns that name a row.
    """
    if cells.empty:
        return {}
    cells = _keep_columns(_keep_arms(cells, row), row)
    # Of two annotations for the same seeds of training the one with more: their runs are not mixed.
    size = cells.groupby([*row, "annotated"], sort=False).id.transform("nunique")
    cells = cells.assign(broken=cells.faults > 0, size=-size)
    cells = cells.sort_values(["broken", "size"], kind="stable").drop_duplicates([*row, "task", "seed"])
    groups = cells.groupby([*row, "task"], sort=False)
    return {key: [*group.sort_values("seed").run] for key, group in groups}


def _keep_arms(cells: DataFrame, row: list[str]) -> DataFrame:
    """The cells of one arm for each row, and of the next one for a benchmark that it was not measured on.

    The first is the one with most benchmarks and sets of questions; of equals that with most runs, then the paper's k, then the
    newest.
    """
    if cells.empty:
        return cells
    arms = cells.drop_duplicates([*row, "arm"])[[*row, "arm", "policy"]]
    asked = cells.drop_duplicates([*row, "arm", "task", "questions"]).groupby([*row, "arm"]).size()
    runs = cells.groupby([*row, "arm"]).id.nunique()
    arms = arms.merge(DataFrame({"asked": asked, "runs": runs}).reset_index(), on=[*row, "arm"])
    arms = arms.assign(calls=arms.policy != "0", is_paper=arms.policy == DEFAULT_POLICY)
    arms = arms.sort_values(["calls", "asked", "runs", "is_paper"], ascending=False, kind="stable")
    pairs = arms.merge(cells.drop_duplicates([*row, "arm", "task"])[[*row, "arm", "task"]], on=[*row, "arm"])
    return cells.merge(pairs.drop_duplicates([*row, "task"])[[*row, "arm", "task"]], on=[*row, "arm", "task"])


def _policy(cells: DataFrame) -> str:
    """The policy of the Toolformer with most results (`_keep_arms`)."""
    kept = _keep_arms(cells, ["system"])
    return next(iter(kept.policy.value_counts().index), DEFAULT_POLICY)


def _keep_columns(cells: DataFrame, row: list[str]) -> DataFrame:
    """The cells of the questions that most rows answered, for each benchmark; of equals the most, then the newest."""
    named = cells.assign(named=cells[row].astype(str).agg("|".join, axis=1))
    groups = named.groupby(["task", "questions"], sort=False)
    sets = DataFrame({
        "rows": groups.named.nunique(), "n": groups.n.max(), "sampled_by": groups.sampled_by.first(),
    }).reset_index()  # fmt: skip
    sets = sets.sort_values(["rows", "n"], ascending=False, kind="stable")
    # A seed that chose its own questions has as many; fewer rows may have been asked by it.
    best = sets.drop_duplicates("task")[["task", "n"]]
    sets = sets.merge(best, on=["task", "n"]).drop_duplicates(["task", "sampled_by"])
    return cells.merge(sets[["task", "questions"]], on=["task", "questions"])


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
    # The digest is of prompts, which differ by wording: here the seed and the number of questions say which they are.
    cells = cells.assign(questions=cells.sampled_by.astype(str) + " " + cells.n.astype(str))
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
