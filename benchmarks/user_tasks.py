"""User benchmarks (docs/extending.md): found, and checked before a model is loaded."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from lm_eval.tasks import TaskManager

from toolformer.benchmarks import GROUPS, TASKS, tasks
from toolformer.benchmarks.loaders.sources import as_splits
from toolformer.errors import UserError, one_line

log = logging.getLogger(__name__)

_IGNORED = (".log", ".out", ".pyc", ".swp", ".lock")
"""Endings of files that do not affect a result."""
_TEXTS = (
    "task",
    "group",
    "test_split",
    "validation_split",
    "training_split",
    "fewshot_split",
    "dataset_path",
    "dataset_name",
)
"""The keys of a task file whose value is a text."""


def user_tasks(tasks_dir: str | Path | None) -> dict[str, Path]:
    """The tasks of a folder with their files; UserError if there are none, or a file or a name cannot be used."""
    if tasks_dir is None:
        return {}
    folder = Path(tasks_dir).expanduser().resolve()
    for file in sorted(folder.rglob("*.yaml")):
        try:
            # Only the syntax: lm-eval skips a broken file without a word.
            node = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise UserError(f"paths.tasks_dir: {file} cannot be read: {one_line(error)}") from error
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            kind = value.tag.rpartition(":")[2]
            if key.value in _TEXTS and kind in ("bool", "int", "float", "timestamp"):
                text = f"{key.value}: {value.value}"
                raise UserError(
                    f"paths.tasks_dir: {file}: {text} is read as {kind}, not as text; put it in quotes: {key.value}: '{value.value}'"
                )
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
    """The files of a folder of tasks that may affect a result: not hidden ones, logs, or compiled Python."""
    files = [file.relative_to(folder) for file in folder.rglob("*") if file.is_file()]
    return [
        folder / file
        for file in files
        if file.suffix not in _IGNORED
        and not any(part.startswith((".", "__pycache__")) for part in file.parts)
    ]


def fit(path: Path, task: Any, metadata: Mapping[str, Any]) -> None:
    """Checks lm-eval's `task` of the file `path`, and takes the requested subset of its rows.

    Every score is checked from here on: of every row those of an empty and a right answer now, the others as they are computed.
    Rows whose right answers score 0 are counted in a warning.
    UserError if it is not answered in words, its rows have no unique ids, answers or prompts, or its scores are not from 0 to 100.
    """
    config, split = task.config, task.config.test_split
    if task.OUTPUT_TYPE != "generate_until":
        raise UserError(f"{path}: output_type is {task.OUTPUT_TYPE}; it must be generate_until")
    if split is None or split not in task.dataset:
        raise UserError(f"{path}: test_split is {split!r}; it must name a split of the task's data")
    if "id" not in task.dataset[split].column_names:
        raise UserError(f"{path}: the rows have no field `id`, which pairs two systems' answers; add it")
    if twice := [name for name, count in Counter(map(str, task.dataset[split]["id"])).items() if count > 1]:
        raise UserError(f"{path}: several rows have the id {twice[0]!r}; give each row its own")
    if config.process_results is None or [entry["metric"] for entry in config.metric_list or ()] != ["score"]:
        needed = "it needs process_results and a metric_list with `score` alone, from 0 to 100"
        raise UserError(f"{path}: {needed}; toolformer.benchmarks.tasks has functions for both")
    if metadata.get("subset") is not None:
        task.dataset[split] = as_splits(config.task, list(task.dataset[split]), metadata)["test"]
    score_of: Callable[[Any, Any], Any] = task.process_results
    rule = (
        config.process_results
        if getattr(config.process_results, "__module__", "") == tasks.__name__
        else None
    )

    def score(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
        where = f"{path}: process_results on the row {doc['id']!r}"
        try:
            value = float(score_of(doc, results)["score"])
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise UserError(
                f'{where} returns no number `score` ({reason}); return {{"score": NUMBER}}'
            ) from error
        if not 0.0 <= value <= 100.0:
            raise UserError(f"{where} gives the score {value}; it must be from 0 to 100")
        return {"score": value}

    rights: dict[str, float] = {}
    for row in task.test_docs():
        try:
            tasks.day_of(row)
            if rule:  # the user's own rule may read any form
                tasks.number_of(row) if rule is tasks.math_score else tasks.answers_of(row)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        try:
            task.doc_to_text(row)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise UserError(
                f"{path}: doc_to_text on the row {row['id']!r} gives no prompt: {reason}"
            ) from error
        score(row, [""])
        answers = map(str, targets(row, task.doc_to_target(row)))
        rights[str(row["id"])] = max(score(row, [answer])["score"] for answer in answers)
    if not rights:
        raise UserError(f"{path}: the split {split} has no rows; name another test_split, or other data")
    best = max(rights.values())
    if 0.0 < best <= 1.0:
        raise UserError(f"{path}: process_results gives {best:g} to a right answer; scores are from 0 to 100")
    if lost := [name for name, value in rights.items() if value == 0.0]:
        advice = (
            "an answer may be longer than what is scored (answer_in_20_words reads most), or have no word"
        )
        reason = f"{path}: process_results gives 0 to every right answer of {len(lost)} of {len(rights)} rows"
        if rule and len(lost) == len(rights):
            raise UserError(f"{reason}; {advice}")
        log.warning("%s, such as that with the id %s: no model can score there; %s", reason, lost[0], advice)
    task.process_results = score


def targets(document: Mapping[str, Any], target: Any) -> list[Any]:
    """The right answers: the document's, or else its task's target."""
    try:
        return tasks.answers_of(document)
    except UserError:  # of a form that only the user's own rule reads
        return list(target) if isinstance(target, list | tuple) and target else [target]
