"""Loads benchmarks and runs them through lm-eval: for each task its score with an interval, and its samples."""

import contextlib
import functools
import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lm_eval
import lm_eval.api.task
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from toolformer.benchmarks import GROUPS, PAPER, TASKS, TASKS_DIR
from toolformer.benchmarks.declared import data_files
from toolformer.benchmarks.loaders.sources import data_folder, find_file
from toolformer.benchmarks.metrics import as_written
from toolformer.benchmarks.user_tasks import deciding_files, fit, targets, user_tasks
from toolformer.benchmarks.wordings import reworded
from toolformer.decoding.completion import Completion
from toolformer.decoding.lm_eval_model import generation_limits
from toolformer.decoding.recording import Record
from toolformer.errors import UserError, near
from toolformer.statistics.intervals import (
    Answers,
    Interval,
    mean_interval,
    perplexity_interval,
    score_interval,
)
from toolformer.storage import content_digest, sha256


@dataclass(frozen=True)
class TaskResult:
    """The result of one task."""

    task: str
    interval: Interval
    """Score in percent, or perplexity per token (per word where the model counts no tokens)."""
    samples: list[dict[str, Any]]
    """One row per document, all with the same keys."""
    perplexities: dict[str, Interval] = field(default_factory=dict)
    """Perplexity tasks: `word_perplexity`, and `token_perplexity` where tokens are known."""
    gold_nats: Interval | None = None
    """Mean −log p of the gold answer, if requested."""

    @property
    def is_perplexity(self) -> bool:
        return bool(self.perplexities)


@dataclass(frozen=True)
class Loaded:
    """Tasks with their documents."""

    names: tuple[str, ...]
    tasks: Any
    """lm-eval's dictionary of them."""
    switched_off: Mapping[str, frozenset[str]]
    """The keys of the tools that each task may not use."""


def task_names(names: Sequence[str], tasks_dir: str | Path | None = None) -> list[str]:
    """Tasks and groups as tasks without repeats; UserError for an unknown name. `tasks_dir` has the user's task files."""
    if not names:
        raise UserError(f"benchmarks: the list is empty; name some of {', '.join([*TASKS, *GROUPS])}")
    known = [*GROUPS, *TASKS, *user_tasks(tasks_dir)]
    for name in names:
        if name not in known:
            hint = near(name, known) or f"; known: {', '.join(known)}"
            raise UserError(f"benchmarks: there is no task or group {name!r}{hint}")
    return list(dict.fromkeys(task for name in names for task in GROUPS.get(name, (name,))))


def load_tasks(
    tasks: Sequence[str],
    metadata: Mapping[str, Any] | None = None,
    ids: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    tasks_dir: str | Path | None = None,
) -> Loaded:
    """Reads the documents of tasks, without a model: bad data is reported before one is loaded.

    Args:
        metadata: goes to the loaders (data_dir, heldout_path, subset, seed, ...); `wording` names the paraphrase of the prompts.
        ids: leaves only the documents with these ids, given per task, or in one list for all.
        tasks_dir: a folder of the user's task files.

    UserError for an unknown task or id, missing or malformed data, or a user's task that does not fit the others.
    """
    metadata = dict(metadata or {})
    names = task_names(tasks, tasks_dir)
    check_data(names, metadata.get("data_dir"), tasks_dir)
    files = user_tasks(tasks_dir)
    loaded = _read(names, metadata, tasks_dir, files)
    wording = metadata.get("wording", PAPER)
    for name in names:
        task = loaded["tasks"][name]
        if name in files:
            fit(files[name], task, metadata)
        if task.OUTPUT_TYPE == "generate_until":
            generation_limits(str(files.get(name, name)), task.config.generation_kwargs or {})
        if wording != PAPER and task.OUTPUT_TYPE == "generate_until":
            task.config.doc_to_text = reworded(name, task.config.doc_to_text, wording)
    if ids is not None:
        _choose(loaded["tasks"], ids)
    off = {
        name: switched_off(loaded["tasks"][name].config.metadata, str(files.get(name, name)))
        for name in names
    }
    return Loaded(tuple(names), loaded, off)


def _read(
    names: Sequence[str],
    metadata: dict[str, Any],
    tasks_dir: str | Path | None,
    files: Mapping[str, Path],
) -> Any:
    """lm-eval's dictionary of tasks; UserError if one of the user's `files` cannot be loaded."""
    folders = [TASKS_DIR, *([Path(tasks_dir).expanduser().resolve()] if tasks_dir is not None else [])]
    try:
        with _quiet():
            return TaskManager(include_path=folders, include_defaults=False, metadata=metadata).load(names)
    except UserError:
        raise
    except Exception as error:
        chosen = ", ".join(str(files[name]) for name in names if name in files)
        if not chosen:
            raise
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"paths.tasks_dir: {chosen} cannot be loaded: {reason}") from error


def switched_off(metadata: Any, file: str) -> frozenset[str]:
    """The keys of the tools that a task's metadata forbids: `switched_off: [search]`."""
    tools = (metadata or {}).get("switched_off") or []
    if not isinstance(tools, list) or not all(isinstance(tool, str) for tool in tools):
        raise UserError(
            f"{file}: metadata.switched_off is {tools!r}; it must be a list of tools by key, such as [search, qa]"
        )
    return frozenset(tools)


def check_data(names: Sequence[str], data_dir: str | None, tasks_dir: str | Path | None = None) -> None:
    """UserError if a data folder lacks the file of a benchmark; reads none. `data_dir` None is the hub."""
    folder = data_folder({"data_dir": data_dir})
    if folder is None:
        return
    missing: dict[str, str] = {}
    for task in task_names(names, tasks_dir):
        for file in data_files(task):
            try:
                find_file(folder, task, file)
            except UserError as error:
                missing.setdefault(task, str(error))
    if missing:
        first, *others = missing
        more = f"; files of {', '.join(others)} are missing too" if others else ""
        raise UserError(f"{missing[first]}{more}")


def data_state(tasks: Sequence[str], data_dir: str | None, root: str | Path) -> dict[str, str]:
    """The files that tasks may read, by name in the data folder: a hash of their content, so that a copied folder counts as the same.

    A user's tasks may read every file two or three levels deep, except those that runs write below `root`.
    """
    folder = data_folder({"data_dir": data_dir})
    if folder is None:
        return {}
    names = {name for task in tasks for file in data_files(task) for name in file}
    files = {folder / name for name in names}
    if set(tasks) - set(TASKS):
        runs = Path(root).expanduser().resolve()
        candidates = [*folder.glob("*/*"), *folder.glob("*/test/*")]
        files |= {file for file in candidates if not file.resolve().is_relative_to(runs)}
    return {
        file.relative_to(folder).as_posix(): content_digest(file) for file in sorted(files) if file.is_file()
    }


def user_files(tasks: Sequence[str], tasks_dir: str | Path | None = None) -> dict[str, str]:
    """The SHA-256 of each file in the user's folder if `tasks` has tasks of it."""
    if tasks_dir is None or not set(user_tasks(tasks_dir)) & set(tasks):
        return {}
    folder = Path(tasks_dir).expanduser().resolve()
    return {file.relative_to(folder).as_posix(): sha256(file) for file in sorted(deciding_files(folder))}


def _choose(tasks: Mapping[str, Any], ids: Mapping[str, Sequence[str]] | Sequence[str]) -> None:
    """Leaves the documents with these ids; lm-eval renumbers them."""
    by_task = ids if isinstance(ids, Mapping) else dict.fromkeys(tasks, ids)
    if by_task.keys() != tasks.keys():
        raise UserError(
            f"samples: the ids are for {', '.join(by_task)}, but the benchmarks are {', '.join(tasks)}; name the same ones"
        )
    unknown = {str(identity) for chosen in by_task.values() for identity in chosen}
    for name, task in tasks.items():
        split, chosen = task.config.test_split, set(map(str, by_task[name]))
        known = list(map(str, task.dataset[split]["id"]))
        rows = [row for row, identity in enumerate(known) if identity in chosen]
        missing = chosen.difference(known)
        if not rows or (missing and by_task is ids):
            like = f"its {len(known)} ids are like {', '.join(known[:3])}"
            raise UserError(f"samples: {name} has no document {min(missing, default='')!r}; {like}")
        unknown -= set(known)
        task.dataset[split] = task.dataset[split].select(rows)
    if unknown:
        raise UserError(f"samples: none of {', '.join(tasks)} has a document {min(unknown)!r}")


def requests(loaded: Loaded) -> dict[str, list[Instance]]:
    """The requests of all tasks, by lm-eval's kind (`generate_until`, ...), as `evaluate_tasks` sends them to a model."""
    by_kind: dict[str, list[Instance]] = {}
    with _quiet():
        for name in loaded.names:
            task = loaded.tasks["tasks"][name]
            task.build_all_requests(rank=0, world_size=1)
            for instance in task.instances:
                by_kind.setdefault(instance.request_type, []).append(instance)
    return by_kind


def evaluate_tasks(
    lm: LM,
    tasks: Sequence[str] | Loaded,
    metadata: Mapping[str, Any] | None = None,
    limit: int | None = None,
    ids: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    gold_nats: bool = False,
) -> dict[str, TaskResult]:
    """Evaluates a model: one result per task, in the order of `tasks`.

    Args:
        tasks: names, loaded with `metadata` and `ids` (see `load_tasks`), or its value.
        limit: takes the first documents only, as lm-eval's; `metadata`'s `subset` is a seeded choice.
        gold_nats: also score the first right answer (of tasks that are answered in words) with a model of this project.
    """
    loaded = tasks if isinstance(tasks, Loaded) else load_tasks(tasks, metadata, ids)
    before = len(getattr(lm, "records", []))
    if hasattr(lm, "switched_off"):
        lm.switched_off = loaded.switched_off
    if gold_nats and hasattr(lm, "gold"):
        lm.gold = {name: functools.partial(_gold, loaded.tasks["tasks"][name]) for name in loaded.names}
    with _quiet():
        # lm-eval's bootstrap has no intervals of perplexities: all intervals are made here.
        evaluated = lm_eval.evaluate(lm, loaded.tasks, limit=limit, bootstrap_iters=0)
    assert evaluated is not None  # as in every rank but the first
    records = {(record.task, record.doc_id): record for record in getattr(lm, "records", [])[before:]}
    results: dict[str, TaskResult] = {}
    for name in loaded.names:
        samples = sorted(evaluated["samples"][name], key=lambda sample: sample["doc_id"])
        unknown = Record(name, -1, tokens=None)  # of a model that keeps no records
        rows = [(sample, records.get((name, sample["doc_id"]), unknown)) for sample in samples]
        result_of = _scored if "score" in samples[0] else _perplexity
        results[name] = result_of(name, rows)
    return results


def _gold(task: Any, document: Mapping[str, Any]) -> str:
    return as_written(targets(document, task.doc_to_target(document))[0])


def _scored(name: str, rows: Sequence[tuple[Any, Record]]) -> TaskResult:
    samples = [_scored_row(sample, record) for sample, record in rows]
    percent = score_interval([_by_document(sample["score"] for sample in samples)])
    if any(record.gold_nats is None for _, record in rows):
        return TaskResult(name, percent, samples)
    for row, (_, record) in zip(samples, rows, strict=True):
        row["gold_nats"] = record.gold_nats
    gold = mean_interval([_by_document(row["gold_nats"] for row in samples)])
    return TaskResult(name, percent, samples, gold_nats=gold)


def _scored_row(sample: Any, record: Record) -> dict[str, Any]:
    """A row of a task that is answered in words; `sample` is lm-eval's."""
    document, answer = sample["doc"], sample["resps"][0][0]
    completion = record.completion or Completion(answer, answer)
    call, score = completion.call, float(sample["score"])
    return {
        "doc_id": sample["doc_id"],
        "id": str(document["id"]),
        "family": document.get("family"),
        "current_date": document.get("current_date"),
        "prompt": sample["arguments"][0][0],
        "completion": completion.text,
        "tools": [executed.tool for executed in completion.calls],
        "tool": call.tool if call else None,
        "call_input": call.input if call else None,
        "call_result": call.result if call else None,
        "failed": completion.failed,
        "fault": completion.fault,
        "prompt_cut": completion.prompt_cut if record.completion else None,
        "results_begun": completion.results_begun if record.completion else None,
        "results_cut": completion.results_cut if record.completion else None,
        "calls_in_calls": completion.calls_in_calls if record.completion else None,
        "prediction": completion.plain,
        "target": targets(document, sample["target"]),
        "correct": score >= 100,
        "score": score,
        "tokens": record.tokens,
        "seconds": record.seconds,
    }


def _by_document(values: Iterable[float], units: Sequence[float] | None = None) -> Answers:
    """Values in the order of the documents, as intervals take them."""
    every = [*values]
    return {str(n): pair for n, pair in enumerate(zip(every, units or [1.0] * len(every), strict=True))}


def _perplexity(name: str, rows: Sequence[tuple[Any, Record]]) -> TaskResult:
    samples = [_perplexity_row(sample, record) for sample, record in rows]
    sums = [sample["log_likelihood"] for sample in samples]
    perplexities = {
        f"{unit[:-1]}_perplexity": perplexity_interval([_by_document(sums, [s[unit] for s in samples])])
        for unit in ("words", "tokens")
        if all(s[unit] is not None for s in samples)
    }
    value = perplexities.get("token_perplexity", perplexities["word_perplexity"])
    return TaskResult(name, value, samples, perplexities)


def _perplexity_row(sample: Any, record: Record) -> dict[str, Any]:
    """A row of a text; `sample` is lm-eval's."""
    log_likelihood, words = sample["word_perplexity"]
    (text,) = sample["arguments"][0]
    return {
        "doc_id": sample["doc_id"],
        "id": str(sample["doc"]["id"]),
        "text_sha256": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        "log_likelihood": float(log_likelihood),
        "tokens": record.tokens,
        "seconds": record.seconds,
        "words": int(words),
        "bytes": int(sample["byte_perplexity"][1]),
    }


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """lm-eval without its log lines and its bar for each task, which it has no switch for."""
    logger, module = logging.getLogger("lm_eval"), vars(lm_eval.api.task)
    level, bar = logger.level, module["tqdm"]
    logger.setLevel(logging.ERROR)
    module["tqdm"] = lambda rows, **_: rows
    try:
        yield
    finally:
        logger.setLevel(level)
        module["tqdm"] = bar
