"""Small runs of every stage, in folders."""

import datetime
import itertools
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toolformer.annotation.funnel import STEPS
from toolformer.annotation.merge import decide, kept_calls, merge
from toolformer.annotation.results import LEAK, SCHEMAS, leaks_of, with_decisions
from toolformer.annotation.shards import CANDIDATES
from toolformer.calls import ApiCall
from toolformer.data import Document
from toolformer.reporting import tables
from toolformer.reporting.data import Evidence, Score
from toolformer.reporting.table import Table
from toolformer.results import Dataset, Folder, Results, Run, RunInfo
from toolformer.step import Step

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


NOTE = Run(Step("evaluate", 1, {}), Path("r" * 16), "a run", "FINISHED", START)


Curves = Mapping[str, Sequence[tuple[int, float]]]


class Runs(Results):
    """Results of runs that finished one after another, in a folder that goes with them."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.numbers = itertools.count(1)
        super().__init__(Path(self.folder.name))

    def add(
        self,
        stage: str,
        metrics: Mapping[str, float] | None = None,
        files: Mapping[str, Path] | None = None,
        config: Mapping[str, Any] | None = None,
        curves: Curves | None = None,
        experiment: str = "default",
        made_from: Run | Step | None = None,
        settings: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        questions: str = "",
        **facts: Any,
    ) -> Run:
        """A run; `settings` are those of its step, without which it equals no other."""
        source = made_from.step if isinstance(made_from, Run) else made_from
        step = Step(
            stage,
            1,
            settings or {"number": next(self.numbers)},
            {**({"from": source} if source else {}), **(inputs or {})},
        )
        with self.open(step, RunInfo("run", config or {}, experiment=experiment)) as folder:
            if isinstance(folder, Folder):
                for metric, points in (curves or {}).items():
                    for number, value in points:
                        folder.metrics({metric: value}, number)
                tasks: dict[str, dict[str, float]] = {}
                for name, value in (metrics or {}).items():
                    task, slash, measure = name.partition("/")
                    if slash and stage in ("evaluate", "explain"):
                        tasks.setdefault(task, {})[measure] = value
                    else:
                        folder.metrics({name: value})
                for task, values in tasks.items():
                    folder.task(task, values)
                    if questions:
                        folder.datasets(Dataset(task, questions, "evaluation", task, 1))
                folder.add_facts(**{"git_commit": "c0ffee", "device": "", "device_name": "", **facts})
                for name, path in (files or {}).items():
                    (folder.path / name).parent.mkdir(exist_ok=True)
                    shutil.copy(path, folder.path / name)
                    folder.artifact(folder.path / name, name.rpartition("/")[0])
        return self.get(step.key())


HOSTILE = 'x</td><script>alert("1")</script>|`a`\\input{/etc/passwd} $1 & 50% #_^~{} 中文 ế \x00\u202e\ud800'.encode(
    "utf-8", "replace"
).decode()


ENDING = "</script><img src=x onerror=alert(1)><!--<script>"


SIZES = {"gpt2": 124e6, "EleutherAI/gpt-j-6B": 6.05e9, "large": 66e9}


TEXTS = {
    "math": "Of the 1400 people who took part in the long study, 400 passed the test, which is 29 percent of them.",
    "date": "The library will be open on Friday, March 10, and Sunday, March 19 for regular hours.",
    "nile": "The Nile has an approximate length of 6,853 kilometers, the White Nile being its main source.",
    "evil": f"Before it {HOSTILE} stands the call and after it <img src=x onerror=alert(2)> the rest.",
}


ROWS: list[tuple[str, str, int, int, str, str, str, float | None]] = [
    # doc, tool, position, sample, input, result, status, gain
    ("math", "calculator", 77, 0, "400 / 1400", "0.29", "scored", 2.5),
    ("math", "calculator", 77, 1, "400/1400", "0.29", "scored", 2.25),
    ("math", "calculator", 60, 0, "1400 - 400", "1000", "scored", 0.75),
    ("math", "calculator", 10, 0, "1 + 1", "2", "scored", -0.5),
    ("date", "calendar", 35, 0, "", "Today is Thursday, March 9, 2017.", "scored", 2.0),
    ("date", "calendar", 51, 0, "", "Today is Thursday, March 9, 2017.", "scored", 1.5),
    ("lost", "calendar", 3, 0, "", "Today is Monday, May 1, 2017.", "scored", 0.1),
    ("nile", "qa", 37, 0, "What is the length of the Nile?", "6,853 km", "scored", 2.08),
    ("nile", "qa", 37, 1, "What?", "unknown", "no result", None),
    ("evil", "qa", 10, 0, HOSTILE, HOSTILE, "scored", 1.2),
]


NAMES = {"calculator": "Calculator", "calendar": "Calendar", "qa": "QA"}


def funnel(*counts: int | None, **reasons: dict[str, int]) -> dict[str, Any]:
    steps = {step: count for step, count in zip(STEPS, counts, strict=True) if count is not None}
    return {**steps, "reasons": {}, "drop_reasons": {}, **reasons}


FUNNEL = {
    "calculator": funnel(
        *(40, 9, 11, 50, 120, 95, 80, 60, 1),
        reasons={"numbers that compute": 9, "fewer than three numbers": 31},
        drop_reasons={"invalid expression": 40},
        window_reasons={"no start probability above the threshold": 2},
        filter_reasons={"gain below the threshold": 59},
    ),
    "calendar": funnel(40, 30, None, 20, 90, None, 90, 90, 2),
    "qa": funnel(
        *(40, 40, None, 100, 400, None, 350, 300, 2),
        reasons={"selected": 40},
        drop_reasons={"<b>odd</b> | reason": 50},
    ),
    "search": funnel(40, 40, None, 0, 0, None, 0, 0, 0),
}


EXECUTED = {f"{tool}/executed": float(entry["executed"]) for tool, entry in FUNNEL.items()} | {
    "tools/qa/executed": 9.0
}
"""Metrics of a generate run."""


def write_annotation(folder: Path, rows: Sequence[Any] = ROWS) -> dict[str, Path]:
    """The artifacts of a generate run by name, as the stage writes them."""
    candidates: list[dict[str, Any]] = []
    for doc_id, tool, position, sample, call_input, result, status, gain in rows:
        call = ApiCall(NAMES[tool], call_input, result, quoted=tool == "qa").as_row()
        row = {"doc_id": doc_id, "tool": tool, "position": position, "sample": sample, "call": call}
        row |= {"status": status, "start_probability": 0.5}
        if gain is not None:
            row |= {"loss_result": 1.0, "loss_no_result": 1.0 + gain, "loss_none": 1.0 + gain}
        candidates.append(dict.fromkeys(CANDIDATES.names) | row)
    decisions = decide(candidates, dict.fromkeys(NAMES, 1.0))
    kept = kept_calls(candidates, decisions)
    documents = [Document(doc_id, text) for doc_id, text in TEXTS.items() if doc_id in kept]
    contents = {
        "dataset_augmented.parquet": [merge(document, kept[document.doc_id]) for document in documents],
        "dataset_plain.parquet": [merge(document, []) for document in documents],
    }
    for name, content in contents.items():
        pq.write_table(pa.Table.from_pylist(content, schema=SCHEMAS[name]), folder / name)
    table = with_decisions(pa.Table.from_pylist(candidates, schema=CANDIDATES), decisions)
    ids = {row["doc_id"] for row in candidates}
    leaks = leaks_of(candidates, [Document(doc_id, TEXTS.get(doc_id, "")) for doc_id in ids])
    column = [leaks.get(n, "") for n in range(len(candidates))]
    table = table.append_column(LEAK, pa.array(column, pa.string()))
    pq.write_table(table, folder / "candidates.parquet")
    (folder / "funnel.json").write_text(json.dumps(FUNNEL))
    return {name: folder / name for name in ("candidates.parquet", *contents, "funnel.json")}


def without_calls(folder: Path) -> dict[str, Path]:
    """The artifact with the texts in which no call was kept: here some in which one was."""
    name = "documents_without_calls.parquet"
    shutil.copy(folder / "dataset_plain.parquet", folder / name)
    return {name: folder / name}


def accuracy(task: str, value: float, n: int = 1000, **shares: float) -> dict[str, float]:
    """Metrics of a benchmark; `shares` of the examples have a call of a tool."""
    metrics = {"score": value, "ci_low": value - 2, "ci_high": value + 2, "n": float(n)}
    metrics |= {f"call_share/{tool}": share for tool, share in shares.items()}
    metrics |= {"call_share": sum(shares.values())} if shares else {}
    return {f"{task}/{name}": number for name, number in metrics.items()}


def perplexity(task: str, value: float, n: int = 60) -> dict[str, float]:
    metrics = {"perplexity": value, "ci_low": value - 1, "ci_high": value + 1, "n": float(n)}
    return {f"{task}/{name}": number for name, number in metrics.items()}


def scored(number: int, score: float, prompt: str = "", **more: Any) -> dict[str, Any]:
    """A sample with a score."""
    row = {"id": str(number), "prompt": prompt or f"p{number}", "target": [str(number)], "score": score}
    return {**row, **more}


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A Parquet file of these rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def shown(evidence: Evidence, full: bool = False) -> dict[str, Table]:
    """The tables of a report by key."""
    return {table.key: table for table in tables.report_content(evidence, full).tables}


def samples(path: Path, scores: Sequence[float], tool: str | None = None) -> Path:
    """A file of samples as an evaluation writes it."""
    rows = [
        {"id": f"q{number}", "prompt": f"Question {number}? {ENDING}", "target": ["yes", ENDING]}
        | {"completion": f" [{tool}(1 + 1) -> 2] {ENDING}" if tool else " no", "tool": tool}
        | {"call_input": "1 + 1" if tool else None, "call_result": "2" if tool else None, "failed": None}
        | {"prediction": "no", "score": score, "tokens": 4, "seconds": 0.5}
        for number, score in enumerate(scores)
    ]
    return write(path, rows)


def annotated(
    runs: Runs,
    metrics: Mapping[str, float] | None = None,
    files: Mapping[str, Path] | None = None,
    thresholds: Mapping[str, float] | None = None,
    replicate: str = "",
    **more: Any,
) -> Run:
    """An annotation; those of a `replicate` differ only in τ_f."""
    of_tools = {tool: {"filter_threshold": threshold} for tool, threshold in (thresholds or {}).items()}
    settings = {"tool": of_tools, "number": replicate or next(runs.numbers)}
    metrics = {"annotation_seconds": 7.0, **(metrics or {})}
    return runs.add("generate", metrics, files, settings=settings, **more)


def trained(
    runs: Runs,
    data: str = "augmented",
    dataset: Run | Step | None = None,
    model: str = "gpt2",
    seed: int = 0,
    replicate: str = "",
    **more: Any,
) -> Run:
    """A training; those of a `replicate` differ only in their seed and data set."""
    settings = {"seed": seed, "data": data, "number": replicate or next(runs.numbers)}
    metrics = {"train_tokens": 512.0, "training_seconds": 8.0}
    config = {"model": model, "seed": seed}
    return runs.add("train", metrics, None, config, made_from=dataset, settings=settings, data=data, **more)


def evaluated(
    runs: Runs,
    system: str,
    metrics: Mapping[str, float],
    training: Run | None = None,
    model: str = "gpt2",
    seed: int = 0,
    k: int | None = 10,
    file: Path | None = None,
    questions: str = "all",
    settings: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    **more: Any,
) -> Run:
    """An evaluation, `file` with its samples of SVAMP; `settings` are those of its answers."""
    facts = {
        "system": system,
        "k": k,
        "policy": str(k),
        "dtype": "bfloat16",
        "device_name": "A Processor",
        **more,
    }
    files = {"samples/svamp.parquet": file} if file else {}
    metrics = {"parameters": SIZES.get(model, 124e6), **metrics}
    asked = {"system": system, "model": model, "k": k, "wording": more.get("wording"), **(settings or {})}
    inputs = {"training": training.step} if training else {}
    inputs = {"answers": Step("answer", 1, asked, inputs)}
    config = {"model": model, "seed": seed}
    return runs.add("evaluate", metrics, files, config, inputs=inputs, questions=questions, **facts)


def answered(
    runs: Runs, folder: Path, system: str, scores: Sequence[float], training: Run | None = None, k: int = 10,
    metrics: Mapping[str, float] | None = None, **more: Any,
) -> Run:  # fmt: skip
    """An evaluation on SVAMP with its samples, and further metrics."""
    n = len(scores)
    calls = n // 2 if system == "toolformer" and k else 0
    local = {"seconds": 0.5 * n, "tokens_per_second": 8.0, "n_ac": calls, "score_nc": 1.0}
    known = accuracy("svamp", sum(scores) / n, n, **({"calculator": 0.5} if calls else {}))
    known |= {f"svamp/{name}": value for name, value in local.items()}
    path = folder / str(next(runs.numbers)) / "svamp.parquet"
    file = samples(path, scores, "Calculator" if calls else None)
    return evaluated(runs, system, {**(metrics or {}), **known}, training, k=k, file=file, **more)


SCORE = Score(15.0, 14.0, 16.0, (NOTE,), {"n": 100})
