"""Benchmarks of the user's own (docs/extending.md): found, and checked before a model is loaded."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from lm_eval.tasks import TaskManager

from toolformer.benchmarks import GROUPS, TASKS
from toolformer.benchmarks.loaders.sources import as_splits
from toolformer.errors import UserError, one_line

_IGNORED = (".log", ".out", ".pyc", ".swp", ".lock")
"""Endings of files in a folder of tasks that decide no result."""


def own_tasks(tasks_dir: str | Path | None) -> dict[str, Path]:
    """The tasks of a folder, each with its file; UserError if there are none, or a file or a name cannot be used."""
    if tasks_dir is None:
        return {}
    folder = Path(tasks_dir).expanduser().resolve()
    for file in sorted(folder.rglob("*.yaml")):
        try:
            # The syntax alone: lm-eval passes a broken file over in silence.
            yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise UserError(f"paths.tasks_dir: {file} cannot be read: {one_line(error)}") from error
    manager = TaskManager(include_path=folder, include_defaults=False)
    files = {name: manager.task_index[name].yaml_path for name in manager.all_subtasks}
    found = {name: file for name, file in files.items() if file is not None}
    if not found:
        raise UserError(
            f"paths.tasks_dir: {folder} holds no task file; a task is a .yaml file with a key `task`"
        )
    for name, file in found.items():
        if name in TASKS or name in GROUPS:
            raise UserError(f"paths.tasks_dir: {file}: a task named {name} already exists; rename this one")
    return found


def deciding_files(folder: Path) -> list[Path]:
    """The files of a folder of tasks, without hidden ones, logs and what Python compiles, which decide no result."""
    files = [file.relative_to(folder) for file in folder.rglob("*") if file.is_file()]
    return [
        folder / file
        for file in files
        if file.suffix not in _IGNORED
        and not any(part.startswith((".", "__pycache__")) for part in file.parts)
    ]


def fit(path: Path, task: Any, metadata: Mapping[str, Any]) -> None:
    """Sees that lm-eval's `task` of the file `path` has what is asked of all, and takes the subset that is wanted.

    Its scores are looked at from here on: of no answer and of a right one now, of the others as they come. UserError if it
    is asked in another way, its rows have no ids of their own, or its scores are none.
    """
    config, split = task.config, task.config.test_split
    if task.OUTPUT_TYPE != "generate_until":
        raise UserError(f"{path}: output_type is {task.OUTPUT_TYPE}; it must be generate_until")
    if split is None or split not in task.dataset:
        raise UserError(f"{path}: test_split is {split!r}; it must name a split of the task's data")
    if "id" not in task.dataset[split].column_names:
        raise UserError(f"{path}: the rows have no field `id`, which pairs two systems' answers; add it")
    if twice := [one for one, count in Counter(map(str, task.dataset[split]["id"])).items() if count > 1]:
        raise UserError(f"{path}: the id {twice[0]!r} stands in several rows; give each row its own")
    if config.process_results is None or [one["metric"] for one in config.metric_list or ()] != ["score"]:
        wanted = "process_results and a metric_list of `score` alone are needed, which is 0 to 100"
        raise UserError(f"{path}: {wanted} (toolformer.benchmarks.tasks has some)")
    if metadata.get("subset") is not None:
        task.dataset[split] = as_splits(config.task, list(task.dataset[split]), metadata)["test"]
    score_of: Callable[[Any, Any], Any] = task.process_results

    def score(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
        place = f"{path}: process_results on the row {doc['id']!r}"
        try:
            value = float(score_of(doc, results)["score"])
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"{place} gives no `score`, a number: {reason}") from error
        if not 0.0 <= value <= 100.0:
            raise UserError(f"{place} gives the score {value}; it must be from 0 to 100")
        return {"score": value}

    first = task.dataset[split][0]
    score(first, [""])
    right = score(first, [str(targets(first, task.doc_to_target(first))[0])])["score"]
    if 0.0 < right <= 1.0:
        raise UserError(
            f"{path}: process_results gives {right:g} to a right answer; scores are from 0 to 100"
        )
    task.process_results = score


def targets(document: Mapping[str, Any], target: Any) -> list[Any]:
    """What would have been right: the document's answers, or what its task calls the target."""
    found = document.get("answers", document.get("answer", target))
    return list(found) if isinstance(found, list | tuple) else [found]
