"""The published runs of an experiment, written to docs/results/ from a folder of runs.

    python scripts/publish.py ROOT [NAME] [FOLDER]

Writes the finished runs named NAME (headline) or NAME_... below ROOT, and those that they were made from, to FOLDER
(docs/results/NAME): itself a folder of runs, which `paths.root` takes. It may be run again while the experiment goes on.

Everything that decides a result and every number stays. Left out are weights, shards and what may not be redistributed: texts
of documents that were not written for this project, questions of benchmarks that are not generated (a digest stays in their
place), and all but the first characters of what a tool returned. `reduced` in a run's result.json has the SHA-256 of each file
as it was before. Paths are written as if the runs had been made in this repository with paths.data_dir=data.

A run that was made again, and made the same as one that is published, is that one.
"""

import gzip
import itertools
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scripts import sums
from toolformer.annotation.results import DATASET, SCHEMAS
from toolformer.calls import ApiCall, find_calls, insert, linearise
from toolformer.data import demo_corpus
from toolformer.data.files import DEMO_SPLITS
from toolformer.data.parquet import read_table
from toolformer.errors import UserError
from toolformer.jobs.evaluate import LADDER
from toolformer.reporting.pairing import ASKED, QUESTION, SCORED, TEXTS, question_digest
from toolformer.results import Results, Run
from toolformer.results.folder import add_name, read_json, record_digest
from toolformer.results.run import METRICS, RESULT, RUN_STEPS, STEP
from toolformer.step import Step
from toolformer.storage import atomic_file, atomic_write, sha256

ROOT = Path(__file__).resolve().parents[1]
DATA = "data"
"""The published paths.data_dir."""
GENERATED = ("arithmetic", "dateset")
"""Benchmarks whose questions this project makes."""
DERIVED = ("doc_id", "correct")
"""Columns of answers that follow from others."""
RESULT_CHARACTERS = 80
"""Of a tool's result."""
FORMS, FORMS_SEED = 1000, 1
"""Texts of `scripts/sums.py`, among which those of an annotation are."""
POINTS = 100
"""Lines of a file of curves."""

Row = dict[str, Any]


def main(root: Path, name: str = "headline", folder: Path | None = None) -> None:
    """Publishes the finished runs of an experiment. UserError if there are none, or they hold a path of this machine."""
    results, folder = Results(root), folder or ROOT / "docs" / "results" / name
    results.check_root()
    runs = {run.id: run for run in _named(results, name)}
    for stage in reversed(RUN_STEPS):  # what they were made from, whatever its name
        for source in [source for run in runs.values() if run.stage == stage for source in run.made_from]:
            runs.setdefault(source, results.get(source))
    if not runs:
        raise UserError(f"there is no finished run named {name} in {results.root}")
    texts = _written_here()
    moved = {run.id: _moved(run) for run in runs.values()}
    published = {_content(run, run.step.as_json()): run for run in _all(Results(folder))}
    again = {
        old: before
        for old, (record, _) in moved.items()
        if (before := published.get(_content(runs[old], record))) and before.id != _key(record)
    }
    steps = {_text(moved[old][0]): before.step for old, before in again.items()}
    moved = {old: (_with_steps(record, steps), result) for old, (record, result) in moved.items()}
    ids = {old: _key(record) for old, (record, _) in moved.items()}
    for run in runs.values():
        if run.id in again:
            continue
        record, result = (
            json.loads(_replaced(json.dumps(part, ensure_ascii=False), ids)) for part in moved[run.id]
        )
        _check_paths(run, [record, result])
        _write(run, record, result, folder / run.stage / ids[run.id], texts)
        for experiment in sorted(run.experiments):
            if _is_named(experiment, name):
                add_name(folder / run.stage / ids[run.id], experiment)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {len(runs)} runs published, {size / 1e6:.1f} MB in all")


def _named(results: Results, name: str) -> Iterable[Run]:
    return (
        run for run in _all(results) if any(_is_named(experiment, name) for experiment in run.experiments)
    )


def _all(results: Results) -> Iterable[Run]:
    return (run for stage in RUN_STEPS for run in results.runs(stage))


def _is_named(experiment: str, name: str) -> bool:
    return experiment == name or experiment.startswith(f"{name}_")


def _written_here() -> set[str]:
    """The texts that were written or made up for this project."""
    bundled = {document.text for split in DEMO_SPLITS for document in demo_corpus(split)}
    return bundled | {each.text for each in itertools.islice(sums.texts(FORMS_SEED), FORMS)}


# Paths


def _moved(run: Run) -> tuple[Row, Row]:
    """`step.json` and `result.json` as if the run had been made in this repository."""
    paths = {str(run.setting("paths.root", "")): f"runs/{run.setting('name', '')}"}
    if data := str(run.setting("paths.data_dir") or ""):
        paths[data] = DATA
    paths |= {str(Path(path).absolute()): place for path, place in paths.items() if path}
    paths |= {f"{ROOT}/": "", f"{Path.cwd()}/": ""}
    record, result = (
        json.loads(_replaced(json.dumps(read_json(run.folder / name), ensure_ascii=False), paths))
        for name in (STEP, RESULT)
    )
    return record, result


def _replaced(text: str, new: Mapping[str, str]) -> str:
    for old in sorted(filter(None, new), key=len, reverse=True):
        if old != new[old]:
            after = "" if old.endswith("/") else r"(?![\w-])"
            text = re.sub(rf"(?<![\w./-]){re.escape(old)}{after}", new[old], text)
    return text


def _check_paths(run: Run, records: Sequence[Any]) -> None:
    found = re.search(
        r"(?<![\w.:/*)-])(?:/[\w.-]+){2,}|~/", json.dumps([_without_prompts(part) for part in records])
    )
    if found:
        raise UserError(
            f"{run.stage} run {run.id} names {found[0]}, a path of this machine; run its command again with paths below "
            "paths.data_dir or this repository"
        )


def _without_prompts(value: Any) -> Any:
    """Without texts of more than a line, which are prompts."""
    if isinstance(value, Mapping):
        return {key: _without_prompts(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_without_prompts(part) for part in value]
    return "" if isinstance(value, str) and "\n" in value else value


# Runs that were made again


def _content(run: Run, step: Mapping[str, Any]) -> str:
    """A step and what it made (candidates, weights or scores), whatever the digests of the files that it read: an index that is
    built again may have other bytes. Of other runs, its id."""
    made = {**run.digests, **run.reduced}.get("candidates.parquet") or run.facts.get("weights")
    made = made or {task: of.get("score", of.get("perplexity")) for task, of in run.tasks.items()}
    return f"{made} {re.sub(r'[0-9a-f]{64}', '', _text(step))}" if made else run.id


def _key(record: Mapping[str, Any]) -> str:
    return Step.of_json(record).key()


def _text(step: Mapping[str, Any]) -> str:
    return json.dumps([step[name] for name in ("name", "version", "settings", "inputs")], sort_keys=True)


def _with_steps(value: Any, steps: Mapping[str, Step]) -> Any:
    """A record with other steps in place of some of its own."""
    if isinstance(value, list):
        return [_with_steps(part, steps) for part in value]
    if not isinstance(value, Mapping):
        return value
    if {"name", "version", "settings", "inputs"} <= value.keys() and (step := steps.get(_text(value))):
        return {**value, **step.as_json()}
    return {key: _with_steps(part, steps) for key, part in value.items()}


# Files


def _write(run: Run, record: Row, result: Row, folder: Path, texts: set[str]) -> None:
    """Writes a run; of one that was published before, the same."""
    folder.mkdir(parents=True, exist_ok=True)
    published: dict[str, str] = {}
    tables = _tables(run, texts) if not run.reduced else {name: run.folder / name for name in run.digests}
    for name, content in tables.items():
        (folder / name).parent.mkdir(exist_ok=True)
        if isinstance(content, pa.Table):
            with atomic_file(folder / name) as temporary:
                pq.write_table(
                    content,
                    temporary,
                    compression="zstd",
                    compression_level=19,
                    write_statistics=False,
                    store_schema=False,
                )
        else:
            atomic_write(folder / name, content.read_bytes())
        published[name] = sha256(folder / name)
    if (run.folder / METRICS).is_file():
        atomic_write(folder / METRICS, _curves(run))
    whole = {name: digest for name, digest in run.digests.items() if digest != published.get(name)}
    result |= {"digests": published, "reduced": dict(run.reduced) or whole}
    result["digest"] = record_digest(result)
    record = {**record, "digest": record_digest(record)}
    step, ended = (
        json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode() for part in (record, result)
    )
    atomic_write(folder / f"{STEP}.gz", gzip.compress(step, mtime=0))
    atomic_write(folder / RESULT, ended)


def _curves(run: Run) -> bytes:
    lines = (run.folder / METRICS).read_bytes().split(b"\n")
    lines = [line for line in lines if line]
    kept = lines[:: max(1, -(-len(lines) // POINTS))]
    return b"".join(line + b"\n" for line in dict.fromkeys([*kept, *lines[-1:]]))


def _tables(run: Run, texts: set[str]) -> dict[str, pa.Table | Path]:
    """The files of a run that are published, by name."""
    if run.stage == "generate":
        return _annotation(run, texts)
    reduced = {
        name: _answers(run.folder / name, Path(name).stem)
        if name.startswith("samples/")
        else _classes(run.folder / name)
        for name in run.digests
        if name.startswith(("samples/", f"{LADDER}/"))
    }
    return {**reduced}


def _annotation(run: Run, texts: set[str]) -> dict[str, pa.Table | Path]:
    """All candidates, the calls of C*, and the texts that were written for this project."""
    candidates = read_table(run.folder / "candidates.parquet").to_pylist()
    for row in candidates:
        if row["call"]:
            row["call"]["result"] = _cut(row["call"]["result"])
    tables = {"candidates.parquet": pa.Table.from_pylist(candidates, schema=SCHEMAS["candidates.parquet"])}
    plain: dict[str, str] = {}
    for name in ("dataset_plain.parquet", "documents_without_calls.parquet"):
        rows = [row for row in read_table(run.folder / name).to_pylist() if row["text"] in texts]
        plain |= {row["doc_id"]: row["text"] for row in rows}
        tables[name] = pa.Table.from_pylist(rows, schema=DATASET)
    augmented = read_table(run.folder / "dataset_augmented.parquet").to_pylist()
    rows = [_called(row, plain.get(row["doc_id"])) for row in augmented]
    tables["dataset_augmented.parquet"] = pa.Table.from_pylist(rows, schema=DATASET)
    return {**tables, "funnel.json": run.folder / "funnel.json"}


def _called(row: Row, text: str | None) -> Row:
    """A row of C* with the results of its calls cut, and its text if that is published."""
    calls = [{**call, "result": _cut(call["result"])} for call in row["calls"]]
    placed = [(call["position"], ApiCall.of_row(call)) for call in calls]
    return {**row, "calls": calls, "text": text and insert(text, placed)}


def _answers(path: Path, task: str) -> pa.Table:
    """The answers of a benchmark, without columns that follow from others or hold nothing."""
    rows = read_table(path).to_pylist()
    for row in rows:
        if row.get("seconds") is not None:
            row["seconds"] = float(f"{row['seconds']:.2g}")
        if "score" not in row:
            continue
        if task not in GENERATED:
            row[QUESTION] = question_digest(row)
            for name in ASKED:
                del row[name]
        row["completion"] = _cut_results(row["completion"], row["tools"])
        row["call_result"] = _cut(row["call_result"])
    named = [name for name in rows[0] if name not in DERIVED and any(row[name] for row in rows)]
    named = [name for name in rows[0] if name in (*SCORED, *TEXTS, *named)]
    return pa.Table.from_pylist([{name: row[name] for name in named} for row in rows])


def _classes(path: Path) -> pa.Table:
    """The class of each example and where it was right, without the texts of its conditions."""
    names = pq.read_schema(path).names
    return read_table(path, [name for name in names if name in ("id", "class") or name.endswith("_right")])


def _cut_results(text: str, tools: Sequence[str]) -> str:
    pieces, last = [], 0
    for start, end, call in find_calls(text, set(tools)):
        pieces += [text[last:start], _linearised(call)]
        last = end
    return "".join([*pieces, text[last:]])


def _linearised(call: ApiCall) -> str:
    return linearise(call.with_result(_cut(call.result) or ""))


def _cut(result: str | None) -> str | None:
    if result is None or len(result) <= RESULT_CHARACTERS:
        return result
    return f"{result[:RESULT_CHARACTERS].rstrip()} …"


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        print("python scripts/publish.py ROOT [NAME] [FOLDER]", file=sys.stderr)
        sys.exit(2)
    root, name, folder = [*sys.argv[1:], *["", "headline", ""][len(sys.argv) - 1 :]]
    try:
        main(Path(root), name, Path(folder) if folder else None)
    except (OSError, UserError) as error:
        print(f"publish: {error}", file=sys.stderr)
        sys.exit(2)
