"""Which of many evaluations and trainings a report shows. Pure functions of runs, which come the newest first.

A report shows one model M and one training of it per kind of data, with those that differ from it only in their seed. A
table shows the evaluations that are comparable (equal tag `comparison`: questions, tools, decoding, number format), and in
each cell the newest of them for each seed. All but the table of wordings show the paper's wording alone.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from toolformer.benchmarks import GROUPS, PAPER, TASKS
from toolformer.decoding.settings import TRAINED_ON
from toolformer.evaluation.metrics import FAULTS
from toolformer.reporting import paper
from toolformer.reporting.pairing import BASELINE
from toolformer.tracking import Run
from toolformer.tracking.run import REPLICATE

Thresholds = tuple[tuple[str, float], ...]
"""τ_f of each tool."""
K = TypeVar("K", bound=Hashable)
Seeds = Sequence[Run]
"""Evaluations that differ only in their seed, in its order; most often one."""
DEFAULT_K = "10"
FIGURE4 = "figure4"
"""The experiment of Figure 4."""
SCALED = ("toolformer", "toolformer_disabled")
"""The systems of Figure 4."""
TABLES = (
    *(GROUPS[name] for name in ("lama", "math", "qa", "xquad", "temporal", "perplexity")),
    ("arithmetic",),
    (*GROUPS["mlqa"], *GROUPS["mlqa_all_en"], "mlqa_en"),
)
"""The benchmarks that share a table; all of the user's own share another."""
_ANNOTATED = ("model", "corpus.", "tool", "propose.", "prompts", "screen.", "filter.")
_TRAINED = ("model", "trainer.")
"""Parameters that decide an annotation, and a training; besides the seed."""


@dataclass(frozen=True)
class Selection:
    """The runs behind a report's figures; cells as in `data.Evidence`."""

    model: str
    models: Mapping[str, str]
    """The base model of each evaluation by its id; empty for a baseline."""
    trainings: Mapping[str, str]
    """By data, the id of the training behind the figures, of several seeds the first; empty where evaluations name none."""
    k: str
    """At which Toolformer's row was decoded: the paper's where that was measured, else the newest evaluation's."""
    shown: Mapping[tuple[str, str], Seeds]
    by_k: Mapping[tuple[int, str], Seeds]
    by_threshold: Mapping[tuple[Thresholds, str], Seeds]
    wordings: Mapping[tuple[str, str, str], Seeds]
    sizes: Mapping[tuple[str, str, str], Seeds]
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
    systems = [run for run in evaluated if not run.tags.get("baseline")]
    figures = ((models[run.run_id], (run.tags.get("system"), task)) for run, task in _cells(systems))
    model = _most(figures, "")
    of_model = [run for run in evaluated if run.tags.get("baseline") or models[run.run_id] == model]
    worded = _of_one_training(of_model, trained)
    own = [run for run in worded if wording_of(run) == PAPER]
    behind: dict[str, str] = {}
    for run in sorted(worded, key=lambda run: seed_of(run, trained)):
        if data := _data_of(run):
            behind.setdefault(data, _training_of(run))
    called = {
        run.run_id: run.tags.get("decoding.k", "")
        for run in own or worded
        if run.tags.get("system") == "toolformer"
    }
    ks = {run_id: int(k) for run_id, k in called.items() if k.isdecimal()}
    k = next((k for k in called.values() if k not in ("", "0")), DEFAULT_K)
    k = DEFAULT_K if DEFAULT_K in called.values() else k
    rows = {run.run_id: _system(run, k) for run in worded if _system(run, k)}
    rows |= {run_id: BASELINE + name for run_id, name in baseline_names(worded).items()}
    at_k = [run for run in of_model if wording_of(run) == PAPER and _system(run, k) == "toolformer"]
    filtered = _by_threshold(at_k, behind.get("augmented", ""), trained, annotated)
    tasks = dict.fromkeys(task for _, task in _cells(own))
    shown: dict[tuple[str, str], Seeds] = {}
    for table in (*TABLES, tasks.keys() - set(TASKS)):
        shown |= comparable(own, table, rows, trained)
    by_k: dict[tuple[int, str], Seeds] = {}
    by_threshold: dict[tuple[Thresholds, str], Seeds] = {}
    for task in tasks:
        sweep = comparable(own, (task,), ks, trained)
        by_k |= sweep if len(sweep) > 1 else {}
        filters = comparable(at_k, (task,), filtered, trained)
        by_threshold |= filters if len(filters) > 1 else {}
    wordings = _wordings(worded, rows, trained)
    sizes = _sizes([run for run in every if wording_of(run) == PAPER], k, models, trained)
    cells = (*shown.values(), *by_k.values(), *by_threshold.values(), *wordings.values(), *sizes.values())
    used = {run.run_id for runs in cells for run in runs}
    tasks_shown = {key[-1] for key in (*shown, *wordings)}
    left_out = {run.run_id for run, task in _cells(evaluated) if task in tasks_shown} - used
    return Selection(model, models, behind, k, shown, by_k, by_threshold, wordings, sizes, len(left_out))


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

    def settings(training_id: str) -> dict[str, str] | None:
        training = trained.get(training_id)
        annotation = annotated.get(dataset_of(training)) if training else None
        if not training or not annotation:
            return None
        params = {f"train {key}": training.params[key] for key in training.params if key.startswith(_TRAINED)}
        params |= {key: annotation.params[key] for key in annotation.params if key.startswith(_ANNOTATED)}
        return {key: value for key, value in params.items() if not key.endswith("filter_threshold")}

    reference = settings(chosen)
    return {
        run.run_id: tuple(sorted(thresholds(annotated[dataset_of(trained[_training_of(run)])]).items()))
        for run in runs
        if reference is not None and settings(_training_of(run)) == reference
    }


def _wordings(
    runs: Sequence[Run], rows: Mapping[str, str], trained: Mapping[str, Run]
) -> dict[tuple[str, str, str], Seeds]:
    """The cells that were asked in another wording than the paper's, each with all its wordings under equal settings."""
    worded = {run.run_id: (rows[run.run_id], wording_of(run)) for run in runs if run.run_id in rows}
    tasks = dict.fromkeys(task for run, task in _cells(runs) if wording_of(run) != PAPER)
    cells: dict[tuple[str, str, str], Seeds] = {}
    for task in tasks:
        if not task.endswith("_perplexity"):
            found = comparable(runs, (task,), worded, trained)
            reworded = {row for (row, wording), _ in found if wording != PAPER}
            cells |= {(*key, task): seeds for (key, _), seeds in found.items() if key[0] in reworded}
    return cells


def measured(run: Run) -> Iterator[tuple[str, float]]:
    """The tasks of an evaluation with their scores (percent) or perplexities."""
    for name, value in run.metrics.items():
        task, _, kind = name.rpartition("/")
        if kind in ("score", "perplexity") and "/" not in task:
            yield task, value


def _cells(runs: Iterable[Run]) -> Iterator[tuple[Run, str]]:
    """Every run with each of its tasks."""
    return ((run, task) for run in runs for task, _ in measured(run))


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
    pairs = [(run, task) for run, task in _cells(runs) if run.run_id in rows and task in wanted]
    named = (((_comparison(run), asked_by(run)), rows[run.run_id]) for run, _ in pairs)
    comparison, _ = _most(named, ("", 0))
    pairs = [(run, task) for run, task in pairs if _comparison(run) == comparison]
    by_seed = sorted(pairs, key=lambda pair: asked_by(pair[0]))
    asked = _most(((asked_by(run), rows[run.run_id]) for run, _ in by_seed), 0)
    # What a model as it is was asked by further seeds counts where a trained one was asked the same.
    seeds = {asked_by(run) for run, _ in pairs if _data_of(run)} or {asked_by(run) for run, _ in pairs}
    cells: dict[tuple[K, str], dict[int, Run]] = {}
    # Of one training evaluated on the questions of several seeds, those count that the other rows were asked.
    for run, task in sorted(pairs, key=lambda pair: (faults(*pair) > 0, asked_by(pair[0]) != asked)):
        if asked_by(run) in {asked, *seeds}:
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


def _of_one_training(runs: Sequence[Run], trained: Mapping[str, Run]) -> list[Run]:
    """The evaluations without those of models from other trainings than, for each kind of data, the one with most figures."""
    chosen = {}
    for data in set(TRAINED_ON.values()):
        figures = (
            (replicate(run, trained), (run.tags["system"], run.tags.get("decoding.k"), task))
            for run, task in _cells(runs)
            if _data_of(run) == data
        )
        chosen[data] = _most(figures, "")
    return [run for run in runs if not _data_of(run) or replicate(run, trained) == chosen[_data_of(run)]]


def baseline_names(runs: Iterable[Run]) -> dict[str, str]:
    """The name of each evaluation's baseline by the run's id, with its path where two folders share a name."""
    named = {
        run.run_id: (name, run.params.get("model", "") if run.tags["system"] == "baseline" else "")
        for run in runs
        if (name := run.tags.get("baseline"))
    }
    folders = Counter(name for name, _ in set(named.values()))
    return {
        run_id: f"{name} ({path})" if path and folders[name] > 1 else name
        for run_id, (name, path) in named.items()
    }


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


def _most(pairs: Iterable[tuple[K, Hashable]], default: K) -> K:
    """The key with most different values, of several the first."""
    values: dict[K, set[Hashable]] = {}
    for key, value in pairs:
        values.setdefault(key, set()).add(value)
    return max(values, key=lambda key: len(values[key]), default=default)


def _sizes(
    runs: Sequence[Run], k: str, models: Mapping[str, str], trained: Mapping[str, Run]
) -> dict[tuple[str, str, str], Seeds]:
    """Figure 4: the comparable evaluations of every model of known size, each model of one training, at the tables' k."""
    systems = {run.run_id: _system(run, k) or _system(run) for run in runs}
    scaled = [run for run in runs if systems[run.run_id] in SCALED and "parameters" in run.metrics]
    rows: dict[str, tuple[str, str]] = {}
    for model in dict.fromkeys(models[run.run_id] for run in scaled):
        of_model = [run for run in scaled if models[run.run_id] == model]
        rows |= {run.run_id: (model, systems[run.run_id]) for run in _of_one_training(of_model, trained)}
    tasks = [task for group in ("lama", "math", "qa") for task in GROUPS[group]]
    cells = {(*row, task): seeds[:1] for (row, task), seeds in comparable(runs, tasks, rows, trained).items()}
    sizes = {seeds[0].metrics["parameters"] for seeds in cells.values()}
    return cells if len(sizes) > 1 else {}
