"""Benchmarks of the user's own: lm-eval task files in a folder of his (docs/extending.md).

Finds them, and sees before a model is loaded that they can be asked and scored as the project's. Knows no model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from lm_eval.tasks import TaskManager

from benchmarks import GROUPS, TASKS
from benchmarks.loaders.sources import as_splits
from benchmarks.rules import hashed
from toolformer.errors import UserError

_NO_MATTER = (".log", ".out", ".pyc", ".swp", ".lock")
"""Endings of files in a folder of tasks that decide no result."""


def own_tasks(tasks_dir: str | Path | None) -> dict[str, Path]:
    """The tasks of a folder, each with its file.

    Raises:
        UserError: there are none, a file is no YAML, or a task has no usable name.
    """
    if tasks_dir is None:
        return {}
    folder = Path(tasks_dir).expanduser().resolve()
    for file in sorted(folder.rglob("*.yaml")):
        try:
            # The syntax alone: lm-eval passes a broken file over in silence.
            yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise UserError(
                f"paths.tasks_dir: {file} cannot be read: {' '.join(str(error).split())}"
            ) from error
    manager = TaskManager(include_path=folder, include_defaults=False)
    files = {name: manager.task_index[name].yaml_path for name in manager.all_subtasks}
    found = {name: file for name, file in files.items() if file is not None}
    if not found:
        raise UserError(
            f"paths.tasks_dir: {folder} holds no task file; a task is a .yaml file with a key `task`"
        )
    for name, file in found.items():
        if not isinstance(name, str):
            raise UserError(f"paths.tasks_dir: {file}: `task` is {name!r}; it must be a text")
        if name in TASKS or name in GROUPS:
            raise UserError(f"paths.tasks_dir: {file} is called {name}, as a task that is there; rename it")
    return found


def files_of(tasks: Sequence[str], tasks_dir: str | Path | None) -> dict[str, str]:
    """What the folder holds, where one of its tasks is among `tasks`: each file's place in it, and its hash.

    Without hidden files, logs and what Python compiles, which decide nothing.
    """
    if tasks_dir is None or not set(own_tasks(tasks_dir)) & set(tasks):
        return {}
    root = Path(tasks_dir).expanduser().resolve()
    return hashed(
        root, (file for file in root.rglob("*") if file.is_file() and _matters(file.relative_to(root)))
    )


def _matters(place: Path) -> bool:
    hidden = any(part.startswith((".", "__pycache__")) for part in place.parts)
    return not hidden and place.suffix not in _NO_MATTER


def fit(path: Path, task: Any, metadata: Mapping[str, Any]) -> None:
    """Sees that lm-eval's `task` of the file `path` has what is asked of all, and takes the subset that is wanted.

    Its scores are looked at from here on: of no answer and of a right one now, of the others as they come.

    Raises:
        UserError: it is asked in another way, its rows have no ids of their own, or its scores are none.
    """
    config, split = task.config, task.config.test_split
    if task.OUTPUT_TYPE != "generate_until":
        raise UserError(f"{path}: output_type is {task.OUTPUT_TYPE}; it must be generate_until")
    if split is None or split not in task.dataset:
        raise UserError(f"{path}: test_split is {split!r}; it must name a split of the task's data")
    if "id" not in task.dataset[split].column_names:
        raise UserError(
            f"{path}: the rows have no field `id`, which pairs the answers of two systems; add it"
        )
    if twice := [one for one, count in Counter(map(str, task.dataset[split]["id"])).items() if count > 1]:
        raise UserError(
            f"{path}: the id {twice[0]!r} stands in several rows; ids pair the answers of two systems"
        )
    if config.process_results is None:
        raise UserError(
            f"{path}: process_results is missing, which scores an answer; benchmarks.tasks has some"
        )
    if [one["metric"] for one in config.metric_list or ()] != ["score"]:
        raise UserError(
            f"{path}: metric_list must name `score` alone, which process_results gives as 0 to 100 "
            "(benchmarks.tasks has some)"
        )
    if metadata.get("subset") is not None:
        task.dataset[split] = as_splits(config.task, list(task.dataset[split]), metadata)["test"]
    score = _checked(path, task.process_results)
    first = task.dataset[split][0]
    score(first, [""])
    right = score(first, [str(targets(first, task.doc_to_target(first))[0])])["score"]
    if 0.0 < right <= 1.0:
        raise UserError(
            f"{path}: process_results gives {right:g} to a right answer; scores are from 0 to 100"
        )
    task.process_results = score


def _checked(
    path: Path, score_of: Callable[[Any, Any], Any]
) -> Callable[[Mapping[str, Any], Sequence[str]], dict[str, float]]:
    def score(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
        place = f"{path}: process_results on the row {doc['id']!r}"
        try:
            value = float(score_of(doc, results)["score"])
        except Exception as error:
            raise UserError(
                f"{place} gives no `score`, a number: {type(error).__name__}: {error}; benchmarks.tasks has examples"
            ) from error
        if not 0.0 <= value <= 100.0:
            raise UserError(f"{place} gives the score {value}; it must be from 0 to 100")
        return {"score": value}

    return score


def targets(document: Mapping[str, Any], target: Any) -> list[Any]:
    """What would have been right: the document's answers, or what its task calls the target."""
    found = document.get("answers", document.get("answer", target))
    return list(found) if isinstance(found, list | tuple) else [found]
