"""Which of many evaluations and trainings a report shows. Pure functions of runs, which come the newest first.

A report shows one model M and one training of it per kind of data, with those that differ from it only in their seed. A
table shows the evaluations that are comparable (equal tag `comparison`: questions, tools, decoding, number format), and in
each cell the newest of them for each seed. All but the table of wordings show the paper's wording alone.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from benchmarks import GROUPS, PAPER, TASKS
from benchmarks.figures import FAULTS
from toolformer.decoding.settings import TRAINED_ON
from toolformer.reporting import paper
from toolformer.reporting.pairing import BASELINE
from toolformer.tracking import Run
from toolformer.tracking.run import REPLICATE

Thresholds = tuple[tuple[str, float], ...]
"""τ_f of each tool."""
K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=Hashable)
Seeds = Sequence[Run]
"""Evaluations that differ only in their seed, in its order; most often one."""
DEFAULT_K = "10"
FIGURE4 = "figure4"
"""The experiment of Figure 4."""
SCALED = ("toolformer", "toolformer_disabled")
"""The systems of Figure 4."""
_TABLES = ("lama", "math", "qa", "xquad", "temporal", "perplexity")
TABLES = (
    *(GROUPS[name] for name in _TABLES),
    ("arithmetic",),
    (*GROUPS["mlqa"], *GROUPS["mlqa_all_en"], "mlqa_en"),
)
"""The benchmarks that share a table; all of the user's own share another."""
_ANNOTATED = ("model", "corpus.", "tool", "propose.", "prompts", "screen.", "filter.")
_TRAINED = ("model", "trainer.")
"""Parameters that decide an annotation, and a training; besides the seed."""


@dataclass(frozen=True)
class Selection:
    """The runs behind a report's figures."""

    model: str
    """The model of the tables: the one with most figures, of several the one measured last."""
    models: Mapping[str, str]
    """The base model of each evaluation by its id; empty for a baseline."""
    trainings: Mapping[str, str]
    """By data, the id of the training behind the figures, of several seeds the first; empty where evaluations name none."""
    shown: Mapping[tuple[str, str], Seeds]
    """By row (a system, or a baseline's name after `BASELINE`) and task."""
    k: str
    """At which Toolformer's row was decoded: the paper's where that was measured, else the newest evaluation's."""
    by_k: Mapping[tuple[int, str], Seeds]
    """Toolformer's by k and task, for the tasks that were measured with at least two."""
    by_threshold: Mapping[tuple[Thresholds, str], Seeds]
    """Toolformer's by τ_f and task, likewise, of trainings that differ in τ_f alone."""
    wordings: Mapping[tuple[str, str], Mapping[str, Seeds]]
    """By row and task, those in each wording; of what was asked in another than the paper's."""
    sizes: Mapping[tuple[str, str, str], Run]
    """Figure 4: by model, system and task, if there are models of two sizes."""
    parameters: Mapping[str, float]
    """Of the models of Figure 4."""
    left_out: int
    """Evaluations of shown benchmarks that no table shows."""


def select(
    evaluated: Sequence[Run],
    further: Sequence[Run],
    trained: Mapping[str, Run],
    annotated: Mapping[str, Run],
) -> Selection:
    """The runs that a report shows.

    Args:
        evaluated: finished evaluations, the newest first.
        further: those that count in Figure 4 alone.
        trained: trainings by id, where evaluations name them.
        annotated: annotations by id, where trainings name them.
    """
    every = [*evaluated, *further]
    models = {run.run_id: _model_of(run, trained) for run in every}
    figures = (
        (models[run.run_id], (run.tags.get("system", ""), task))
        for run in evaluated
        if not run.tags.get("baseline")
        for task, _ in measured(run)
    )
    model = _most(figures, "")
    own = [run for run in evaluated if run.tags.get("baseline") or models[run.run_id] == model]
    behind = trainings(own, trained)
    worded = of_trainings(own, behind, trained)
    of_all_trainings = [run for run in own if wording_of(run) == PAPER]
    own = of_trainings(of_all_trainings, behind, trained)
    first: dict[str, Run] = {}
    for run in sorted(worded, key=lambda run: seed_of(run, trained)):
        first.setdefault(_data_of(run), run)
    ids = {data: _training_of(first[data]) for data in behind}
    called = [run for run in own or worded if run.tags.get("system") == "toolformer"]
    decoded = [run.tags["decoding.k"] for run in called if run.tags.get("decoding.k", "0") != "0"]
    k = DEFAULT_K if DEFAULT_K in decoded or not decoded else decoded[0]
    rows = {run.run_id: _system(run, k) for run in worded if _system(run, k)}
    rows |= {run_id: BASELINE + name for run_id, name in baseline_names(worded).items()}
    ks = {run.run_id: int(run.tags["decoding.k"]) for run in own if _is_of_sweep(run)}
    shown: dict[tuple[str, str], Seeds] = {}
    by_k: dict[tuple[int, str], Seeds] = {}
    by_threshold: dict[tuple[Thresholds, str], Seeds] = {}
    at_k = [run for run in of_all_trainings if _system(run, k) == "toolformer"]
    filtered = _by_threshold(at_k, ids.get("augmented", ""), trained, annotated)
    tasks = dict.fromkeys(task for run in own for task, _ in measured(run))
    for table in (*TABLES, tasks.keys() - set(TASKS)):
        shown |= comparable(own, table, rows, trained)
    for task in tasks:
        sweep = comparable(own, (task,), ks, trained)
        by_k |= sweep if len(sweep) > 1 else {}
        filters = comparable(at_k, (task,), filtered, trained)
        by_threshold |= filters if len(filters) > 1 else {}
    wordings = _wordings(worded, rows, trained)
    in_papers_words = [run for run in every if wording_of(run) == PAPER]
    sizes, parameters = _sizes(in_papers_words, models, trained)
    of_wordings = (runs for by_wording in wordings.values() for runs in by_wording.values())
    cells = (*shown.values(), *by_k.values(), *by_threshold.values(), sizes.values(), *of_wordings)
    used = {run.run_id for runs in cells for run in runs}
    tasks_shown = {task for _, task in (*shown, *wordings)}
    left_out = sum(
        run.run_id not in used and any(task in tasks_shown for task, _ in measured(run)) for run in evaluated
    )
    return Selection(model, models, ids, shown, k, by_k, by_threshold, wordings, sizes, parameters, left_out)


def wording_of(run: Run) -> str:
    """In which words an evaluation asked; `paper` for those from before there were others."""
    return run.params.get("wording", PAPER)


def thresholds(run: Run) -> dict[str, float]:
    """τ_f by tool, of an annotation."""
    tools = re.findall(r"\w+", run.params.get("tools", ""))
    found: dict[str, float] = {}
    for key, value in run.params.items():
        match = re.fullmatch(r"tool\.(\w+)\.filter_threshold", key)
        if match and (not tools or match[1] in tools):
            with suppress(ValueError):
                found[match[1]] = float(run.params.get("filter_threshold", "") if value == "null" else value)
    return found


def dataset_of(run: Run) -> str:
    """The id of the annotation that a training read."""
    return run.tags.get("lineage.dataset_run_id", "")


def _by_threshold(
    runs: Iterable[Run], chosen: str, trained: Mapping[str, Run], annotated: Mapping[str, Run]
) -> dict[str, Thresholds]:
    """τ_f of the evaluations, by id, whose trainings have all settings of the chosen one but for τ_f."""

    def made(training_id: str) -> tuple[Run, Run] | None:
        training = trained.get(training_id)
        annotation = annotated.get(dataset_of(training)) if training else None
        return (training, annotation) if training and annotation else None

    def settings(training: Run, annotation: Run) -> dict[str, str]:
        params = {f"train {key}": training.params[key] for key in training.params if key.startswith(_TRAINED)}
        params |= {key: annotation.params[key] for key in annotation.params if key.startswith(_ANNOTATED)}
        return {key: value for key, value in params.items() if not key.endswith("filter_threshold")}

    reference = made(chosen)
    found: dict[str, Thresholds] = {}
    for run in runs:
        pair = made(_training_of(run))
        if pair and reference and settings(*pair) == settings(*reference):
            found[run.run_id] = tuple(sorted(thresholds(pair[1]).items()))
    return found


def _wordings(
    runs: Sequence[Run], rows: Mapping[str, str], trained: Mapping[str, Run]
) -> dict[tuple[str, str], dict[str, Seeds]]:
    """The cells that were asked in another wording than the paper's, each with all its wordings under equal settings."""
    cells = {run.run_id: (rows[run.run_id], wording_of(run)) for run in runs if run.run_id in rows}
    reworded = [run for run in runs if wording_of(run) != PAPER]
    tasks = dict.fromkeys(task for run in reworded for task, _ in measured(run))
    found: dict[tuple[str, str], dict[str, Seeds]] = {}
    for task in tasks:
        if not task.endswith("_perplexity"):
            for ((row, wording), _), of_seeds in comparable(runs, (task,), cells, trained).items():
                found.setdefault((row, task), {})[wording] = of_seeds
    return {cell: by_wording for cell, by_wording in found.items() if set(by_wording) != {PAPER}}


def measured(run: Run) -> Iterator[tuple[str, float]]:
    """The tasks of an evaluation with their scores (percent) or perplexities."""
    for name, value in run.metrics.items():
        task, _, kind = name.rpartition("/")
        if kind in ("score", "perplexity") and "/" not in task:
            yield task, value


def faults(run: Run, task: str) -> int:
    """Answers that were given while a tool, or the model's server, was broken."""
    return round(run.metrics.get(f"{task}/{FAULTS}", 0))


def comparable(
    runs: Iterable[Run], tasks: Iterable[str], rows: Mapping[str, K], trained: Mapping[str, Run]
) -> dict[tuple[K, str], Seeds]:
    """The cells of a table by row and task: of the `comparison` with most rows (then the newest) the newest run a seed.

    Rows stand together that were asked the questions of one seed; runs of other seeds join those of theirs. A run in
    which tools broke down counts only where there is no other. `rows` gives a run's row by its id.
    """
    wanted = set(tasks)
    pairs = [(run, task) for run in runs if run.run_id in rows for task, _ in measured(run) if task in wanted]
    named = ((run, (_comparison(run), asked_by(run))) for run, _ in pairs)
    comparison, _ = _most(((key, rows[run.run_id]) for run, key in named), ("", 0))
    pairs = [(run, task) for run, task in pairs if _comparison(run) == comparison]
    by_seed = sorted(((asked_by(run), rows[run.run_id]) for run, _ in pairs), key=lambda pair: pair[0])
    asked = _most(by_seed, 0)
    # What a model as it is was asked by further seeds counts where a trained one was asked the same.
    joined = {asked_by(run) for run, _ in pairs if _data_of(run)} | {asked}
    if not any(_data_of(run) for run, _ in pairs):
        joined |= {asked_by(run) for run, _ in pairs}
    cells: dict[tuple[K, str], dict[int, Run]] = {}
    # Of one training evaluated on the questions of several seeds, those count that the other rows were asked.
    for run, task in sorted(pairs, key=lambda pair: (faults(*pair) > 0, asked_by(pair[0]) != asked)):
        if asked_by(run) in joined:
            cells.setdefault((rows[run.run_id], task), {}).setdefault(seed_of(run, trained), run)
    return {
        cell: [of_seed[seed] for seed in sorted(of_seed)]
        for cell, of_seed in cells.items()
        if any(asked_by(run) == asked for run in of_seed.values())
    }


def _comparison(run: Run) -> str:
    """What evaluations share that stand in one table, but for the wording."""
    return run.tags.get("comparison", "").removesuffix(f"-{wording_of(run)}")


def asked_by(run: Run) -> int:
    """The seed of a run, which of an evaluation chose its questions."""
    seed = run.params.get("seed", "0")
    return int(seed) if seed.isdecimal() else 0


def seed_of(run: Run, trained: Mapping[str, Run]) -> int:
    """What tells an evaluation from those that differ only in their seed: its training's seed, or its own."""
    return asked_by(trained.get(_training_of(run), run))


class Kind(NamedTuple):
    """What evaluations share that differ only in their seed."""

    comparison: str
    wording: str
    system: str
    baseline: str
    k: str
    replicate: str
    """As `replicate` gives it."""
    model: str
    """Of a model as it is."""


def kind_of(run: Run, trained: Mapping[str, Run]) -> Kind:
    """What an evaluation shares with those that differ from it only in their seed."""
    training = replicate(run, trained)
    comparison, system, baseline, k = (
        run.tags.get(tag, "") for tag in ("comparison", "system", "baseline", "decoding.k")
    )
    model = "" if training else run.params.get("model", "")
    return Kind(comparison, wording_of(run), system, baseline, k, training, model)


def replicate(run: Run, trained: Mapping[str, Run]) -> str:
    """What the trainings share that differ from an evaluation's only in their seed; empty for a model as it is."""
    training = _training_of(run)
    return trained[training].tags.get(REPLICATE, training) if training in trained else training


def trainings(runs: Iterable[Run], trained: Mapping[str, Run]) -> dict[str, str]:
    """By data, what the training whose model has most figures shares with its replicates; of several the last measured."""
    cells: dict[str, list[tuple[str, Hashable]]] = {}
    for run in runs:
        if data := _data_of(run):
            rows = ((run.tags["system"], run.tags.get("decoding.k", ""), task) for task, _ in measured(run))
            cells.setdefault(data, []).extend((replicate(run, trained), row) for row in rows)
    return {data: _most(pairs, "") for data, pairs in cells.items()}


def of_trainings(runs: Iterable[Run], chosen: Mapping[str, str], trained: Mapping[str, Run]) -> list[Run]:
    """The evaluations without those of models from other trainings; `chosen` is as `trainings` gives it."""
    return [run for run in runs if not (data := _data_of(run)) or replicate(run, trained) == chosen.get(data)]


def baseline_names(runs: Iterable[Run]) -> dict[str, str]:
    """The name of each evaluation's baseline by the run's id, with its path where two folders share a name."""
    named = [
        (
            run.run_id,
            run.tags["baseline"],
            run.params.get("model", "") if run.tags.get("system") == "baseline" else "",
        )
        for run in runs
        if run.tags.get("baseline")
    ]
    paths = {(name, path) for _, name, path in named}
    shared = {name for name, _ in paths if sum(name == other for other, _ in paths) > 1}
    return {run_id: f"{name} ({path})" if name in shared and path else name for run_id, name, path in named}


def _data_of(run: Run) -> str:
    """What an evaluation's model was trained on; empty for one that was not trained here."""
    return TRAINED_ON.get(run.tags.get("system", ""), "")


def _training_of(run: Run) -> str:
    return run.tags.get("lineage.train_run_id", "")


def _model_of(run: Run, trained: Mapping[str, Run]) -> str:
    """The base model of an evaluation: of a trained system that of its training."""
    if run.tags.get("baseline"):
        return ""
    return trained.get(_training_of(run), run).params.get("model", "")


def _system(run: Run, at: str = DEFAULT_K) -> str:
    """The system of a table's row: one of the paper's, Toolformer decoded at this k."""
    system = run.tags.get("system", "")
    k = run.tags.get("decoding.k", DEFAULT_K)
    return system if system in paper.SYSTEMS and (system != "toolformer" or k == at) else ""


def _is_of_sweep(run: Run) -> bool:
    return run.tags.get("system") == "toolformer" and run.tags.get("decoding.k", "").isdecimal()


def _most(pairs: Iterable[tuple[M, Hashable]], default: M) -> M:
    """The key with most different values, of several the first; `default` where there is none."""
    values: dict[M, set[Hashable]] = {}
    for key, value in pairs:
        values.setdefault(key, set()).add(value)
    return max(values, key=lambda key: len(values[key]), default=default)


def _sizes(
    runs: Sequence[Run], models: Mapping[str, str], trained: Mapping[str, Run]
) -> tuple[dict[tuple[str, str, str], Run], dict[str, float]]:
    """Figure 4: the comparable evaluations of every model of known size, each model of one training, and the sizes."""
    sizes: dict[str, float] = {}
    for run in reversed(runs):
        model = models[run.run_id]
        size = run.metrics.get("parameters") or paper.PARAMETERS.get(model.rpartition("/")[2])
        if model and size:
            sizes[model] = size
    rows: dict[str, tuple[str, str]] = {}
    for model in sizes:
        of_model = [run for run in runs if models[run.run_id] == model and _system(run) in SCALED]
        chosen = trainings(of_model, trained)
        rows |= {run.run_id: (model, _system(run)) for run in of_trainings(of_model, chosen, trained)}
    tasks = [task for group in ("lama", "math", "qa") for task in GROUPS[group]]
    cells = {(*row, task): runs[0] for (row, task), runs in comparable(runs, tasks, rows, trained).items()}
    sizes = {model: size for model, size in sizes.items() if any(model == other for other, *_ in cells)}
    return (cells, sizes) if len(set(sizes.values())) > 1 else ({}, {})
