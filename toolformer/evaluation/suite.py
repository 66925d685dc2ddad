"""Runs benchmarks through lm-eval and puts intervals and samples beside its numbers."""

import contextlib
import functools
import hashlib
import logging
import unittest.mock
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lm_eval
import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from toolformer.benchmarks import DATA_FILES, GROUPS, PAPER, TASKS, TASKS_DIR
from toolformer.benchmarks.loaders.sources import data_folder, find_file
from toolformer.benchmarks.metrics import as_written
from toolformer.benchmarks.user_tasks import deciding_files, fit, own_tasks, targets
from toolformer.benchmarks.wordings import reworded
from toolformer.decoding.call_state import Completion
from toolformer.decoding.recording import Record
from toolformer.errors import UserError, near
from toolformer.statistics.intervals import (
    RESAMPLES,
    Interval,
    bootstrap_ends,
    percent_interval,
    perplexity_interval,
)
from toolformer.storage import sha256


@dataclass(frozen=True)
class TaskResult:
    """What a task came to."""

    task: str
    interval: Interval
    """Score in percent, or perplexity per token (per word where the model counts no tokens)."""
    samples: list[dict[str, Any]]
    """A row a document, all with the same keys."""
    others: dict[str, Interval] = field(default_factory=dict)
    """Perplexity tasks: `word_perplexity`, and `token_perplexity` where tokens are known."""
    gold_nats: Interval | None = None
    """−log p of the gold answer, its mean, where that was asked for."""

    @property
    def is_perplexity(self) -> bool:
        return bool(self.others)


@dataclass(frozen=True)
class Loaded:
    """Tasks with their documents, ready to be asked."""

    names: tuple[str, ...]
    tasks: Any
    """lm-eval's own dictionary of them."""
    switched_off: Mapping[str, frozenset[str]]
    """The tools, by key, that each of them may not use."""


def task_names(names: Sequence[str], tasks_dir: str | Path | None = None) -> list[str]:
    """Tasks and groups as tasks, each once; UserError for an unknown one. `tasks_dir` has the user's own task files."""
    own = own_tasks(tasks_dir)
    if not names:
        raise UserError(f"benchmarks: the list is empty; name some of {', '.join([*TASKS, *GROUPS])}")
    for name in names:
        if name not in TASKS and name not in GROUPS and name not in own:
            known = [*GROUPS, *TASKS, *own]
            hint = near(name, known) or f"; known: {', '.join(known)}"
            raise UserError(f"benchmarks: there is no task or group {name!r}{hint}")
    return list(dict.fromkeys(task for name in names for task in GROUPS.get(name, (name,))))


def load(
    tasks: Sequence[str],
    metadata: Mapping[str, Any] | None = None,
    ids: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    tasks_dir: str | Path | None = None,
) -> Loaded:
    """Reads the documents of tasks; no model is needed, so bad data is found before one is loaded.

    Args:
        metadata: goes to the loaders (data_dir, heldout_path, subset, seed, ...); `wording` decides in which words is asked.
        ids: leaves only the documents with these ids, given for each task, or in one list for all.
        tasks_dir: a folder of the user's own task files.

    UserError for an unknown task or id, data that is missing or of another schema, or a task of the user's that cannot be
    asked and scored as the others.
    """
    names = task_names(tasks, tasks_dir)
    check_data(names, (metadata or {}).get("data_dir"), tasks_dir)
    own = own_tasks(tasks_dir)
    folders = [TASKS_DIR, *([Path(tasks_dir).expanduser().resolve()] if tasks_dir is not None else [])]
    with _quiet():
        manager = TaskManager(include_path=folders, include_defaults=False, metadata=dict(metadata or {}))
        try:
            loaded = manager.load(names)
        except UserError:
            raise
        except Exception as error:
            mine = ", ".join(str(own[name]) for name in names if name in own)
            if not mine:
                raise
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"paths.tasks_dir: {mine} cannot be loaded: {reason}") from error
    wording = (metadata or {}).get("wording", PAPER)
    for name in names:
        task = loaded["tasks"][name]
        if name in own:
            fit(own[name], task, metadata or {})
        if wording != PAPER and task.OUTPUT_TYPE == "generate_until":
            task.config.doc_to_text = reworded(name, task.config.doc_to_text, wording)
    if ids is not None:
        _choose(loaded["tasks"], ids)
    off = {
        name: switched_off(loaded["tasks"][name].config.metadata, str(own.get(name, name))) for name in names
    }
    return Loaded(tuple(names), loaded, off)


def switched_off(metadata: Any, file: str) -> frozenset[str]:
    """The tools, by key, that a task's metadata says it may not use: `switched_off: [search]`."""
    tools = (metadata or {}).get("switched_off") or []
    if not isinstance(tools, list) or not all(isinstance(tool, str) for tool in tools):
        raise UserError(
            f"{file}: metadata.switched_off is {tools!r}; it must be a list of tools by key, as [search, qa]"
        )
    return frozenset(tools)


def check_data(names: Sequence[str], data_dir: str | None, tasks_dir: str | Path | None = None) -> None:
    """Refuses a data folder that lacks the file of a benchmark, without reading any; None is the hub."""
    folder = data_folder({"data_dir": data_dir})
    if folder is None:
        return
    missing: dict[str, str] = {}
    for task in task_names(names, tasks_dir):
        for file in DATA_FILES.get(task, ()):
            try:
                find_file(folder, task, file)
            except UserError as error:
                missing.setdefault(task, str(error))
    if missing:
        first, *others = missing
        more = f"; files of {', '.join(others)} are missing too" if others else ""
        raise UserError(f"{missing[first]}{more}")


def data_state(tasks: Sequence[str], data_dir: str | None, root: str | Path) -> dict[str, tuple[int, int]]:
    """The data that tasks may read, by name: size in bytes and time of change in nanoseconds.

    Tasks of the user's own may read everything two or three levels deep, but for what runs write below `root`.
    """
    folder = data_folder({"data_dir": data_dir})
    if folder is None:
        return {}
    names = {name for task in tasks for file in DATA_FILES.get(task, ()) for name in file}
    files = {folder / name for name in names}
    if set(tasks) - set(TASKS):
        runs = Path(root).expanduser().resolve()
        found = [*folder.glob("*/*"), *folder.glob("*/test/*")]
        files |= {file for file in found if not file.resolve().is_relative_to(runs)}
    states = {file: file.stat() for file in sorted(files) if file.is_file()}
    return {str(file): (state.st_size, state.st_mtime_ns) for file, state in states.items()}


def scoring_code() -> dict[str, str]:
    """The Python files that load, prompt and score: each one's path below the benchmarks, and its SHA-256."""
    return _hashed(TASKS_DIR, [*TASKS_DIR.glob("*.py"), *TASKS_DIR.glob("loaders/*.py")])


def scoring(tasks: Sequence[str], tasks_dir: str | Path | None = None) -> dict[str, str]:
    """`scoring_code`, and the task files of these tasks with what they share."""
    files = [
        *TASKS_DIR.glob("_*.yaml"),
        *(file for task in tasks for file in TASKS_DIR.glob(f"*/{task}.yaml")),
    ]
    found = scoring_code() | _hashed(TASKS_DIR, files)
    if tasks_dir is not None and set(own_tasks(tasks_dir)) & set(tasks):
        folder = Path(tasks_dir).expanduser().resolve()
        found |= {f"own/{name}": digest for name, digest in _hashed(folder, deciding_files(folder)).items()}
    return found


def _hashed(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    return {file.relative_to(folder).as_posix(): sha256(file) for file in sorted(files)}


def _choose(tasks: Mapping[str, Any], ids: Mapping[str, Sequence[str]] | Sequence[str]) -> None:
    """Leaves the documents with these ids; lm-eval numbers those that are left anew."""
    each = ids if isinstance(ids, Mapping) else dict.fromkeys(tasks, ids)
    if each.keys() != tasks.keys():
        raise UserError(f"samples: ids of {', '.join(each)} are given, of the benchmarks {', '.join(tasks)}")
    unknown = {str(identity) for chosen in each.values() for identity in chosen}
    for name, task in tasks.items():
        split, wanted = task.config.test_split, set(map(str, each[name]))
        known = list(map(str, task.dataset[split]["id"]))
        rows = [row for row, identity in enumerate(known) if identity in wanted]
        missing = wanted.difference(known)
        if not rows or (missing and each is ids):
            like = f"its {len(known)} ids are like {', '.join(known[:3])}"
            raise UserError(f"samples: {name} has no document {min(missing, default='')!r}; {like}")
        unknown -= set(known)
        task.dataset[split] = task.dataset[split].select(rows)
    if unknown:
        raise UserError(f"samples: none of {', '.join(tasks)} has a document {min(unknown)!r}")


def requests(loaded: Loaded) -> dict[str, list[Instance]]:
    """What a model is asked for tasks, by lm-eval's name of the kind (`generate_until`, ...), as `run` asks it."""
    asked: dict[str, list[Instance]] = {}
    with _quiet():
        for name in loaded.names:
            task = loaded.tasks["tasks"][name]
            task.build_all_requests(rank=0, world_size=1)
            for instance in task.instances:
                asked.setdefault(instance.request_type, []).append(instance)
    return asked


def scores(loaded: Loaded, name: str, answers: Sequence[str]) -> list[float]:
    """A task's scores in percent of an answer to each of its documents, in the order in which `requests` has asked them."""
    task = loaded.tasks["tasks"][name]
    for instance, answer in zip(task.instances, answers, strict=True):
        instance.resps = [answer]
    task.apply_filters()
    given = [(each.doc, list(each.filtered_resps.values())) for each in task.instances]
    return [float(task.process_results(document, results)["score"]) for document, results in given]


def run(
    lm: LM,
    tasks: Sequence[str] | Loaded,
    metadata: Mapping[str, Any] | None = None,
    limit: int | None = None,
    bootstrap_iters: int = RESAMPLES,
    seed: int = 0,
    ids: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    gold_nats: bool = False,
) -> dict[str, TaskResult]:
    """Evaluates a model; a result a task, in the order asked for.

    Args:
        tasks: names, loaded with `metadata` and `ids` (see `load`), or what `load` gave.
        limit: takes the first documents only, as lm-eval's; `metadata`'s `subset` makes a seeded choice.
        bootstrap_iters: resamples of the intervals, which `seed` decides.
        gold_nats: ask a model of ours also for −log p of each first right answer (of tasks that are answered in words).
    """
    loaded = tasks if isinstance(tasks, Loaded) else load(tasks, metadata, ids)
    before = len(getattr(lm, "records", []))
    if hasattr(lm, "switched_off"):
        lm.switched_off = loaded.switched_off
    if gold_nats and hasattr(lm, "gold"):
        lm.gold = {name: functools.partial(_gold, loaded.tasks["tasks"][name]) for name in loaded.names}
    with _quiet():
        # lm-eval's own bootstrap knows nothing of perplexities: the intervals are made below.
        results = lm_eval.evaluate(lm, loaded.tasks, limit=limit, bootstrap_iters=0)
    assert results is not None  # as in every rank but the first
    records = {(record.task, record.doc_id): record for record in getattr(lm, "records", [])[before:]}
    found: dict[str, TaskResult] = {}
    for name in loaded.names:
        samples = sorted(results["samples"][name], key=lambda sample: sample["doc_id"])
        unknown = Record(name, -1, tokens=None)  # of a model that keeps no records
        rows = [(sample, records.get((name, sample["doc_id"]), unknown)) for sample in samples]
        make = _scored if "score" in samples[0] else _perplexity
        found[name] = make(name, rows, bootstrap_iters, seed)
    return found


def _gold(task: Any, document: Mapping[str, Any]) -> str:
    return as_written(targets(document, task.doc_to_target(document))[0])


def _scored(name: str, rows: Sequence[tuple[Any, Record]], resamples: int, seed: int) -> TaskResult:
    samples: list[dict[str, Any]] = []
    for sample, record in rows:
        document, answer = sample["doc"], sample["resps"][0][0]
        completion = record.completion or Completion(answer, answer)
        call = completion.call
        score = float(sample["score"])
        samples.append(
            {
                "doc_id": sample["doc_id"],
                "id": str(document["id"]),
                "family": document.get("family"),
                "current_date": document.get("current_date"),
                "prompt": sample["arguments"][0][0],
                "completion": completion.text,
                "tools": [one.tool for one in completion.calls],
                "tool": call.tool if call else None,
                "call_input": call.input if call else None,
                "call_result": call.result if call else None,
                "failed": completion.failed,
                "fault": completion.fault,
                "prompt_cut": completion.prompt_cut if record.completion else None,
                "prediction": completion.plain,
                "target": targets(sample["doc"], sample["target"]),
                "correct": score >= 100,
                "score": score,
                "tokens": record.tokens,
                "seconds": record.seconds,
            }
        )
    gold = None
    if all(record.gold_nats is not None for _, record in rows):
        for sample, (_, record) in zip(samples, rows, strict=True):
            sample["gold_nats"] = record.gold_nats
        values = np.array([record.gold_nats for _, record in rows], dtype=float)
        mean = float(values.mean())
        gold = Interval(mean, *bootstrap_ends(mean, (values,), np.mean, seed, resamples), len(values))
    percent = percent_interval([sample["score"] / 100 for sample in samples], seed, resamples)
    return TaskResult(name, percent, samples, gold_nats=gold)


def _perplexity(name: str, rows: Sequence[tuple[Any, Record]], resamples: int, seed: int) -> TaskResult:
    samples: list[dict[str, Any]] = []
    for sample, record in rows:
        log_likelihood, words = sample["word_perplexity"]
        (text,) = sample["arguments"][0]
        samples.append(
            {
                "doc_id": sample["doc_id"],
                "id": str(sample["doc"]["id"]),
                "text_sha256": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
                "log_likelihood": float(log_likelihood),
                "tokens": record.tokens,
                "seconds": record.seconds,
                "words": int(words),
                "bytes": int(sample["byte_perplexity"][1]),
            }
        )
    sums = [sample["log_likelihood"] for sample in samples]
    others = {
        f"{unit[:-1]}_perplexity": perplexity_interval(sums, [s[unit] for s in samples], seed, resamples)
        for unit in ("words", "tokens")
        if all(s[unit] is not None for s in samples)
    }
    value = others.get("token_perplexity", others["word_perplexity"])
    return TaskResult(name, value, samples, others)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """lm-eval without its log lines and its bars."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with unittest.mock.patch("lm_eval.api.task.tqdm", lambda rows, **_: rows):
            yield
    finally:
        logger.setLevel(level)
