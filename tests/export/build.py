"""A finished annotation, training and evaluations, made up: what export reads, without running a stage."""

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toolformer.annotation.merge import KeptCall, merge
from toolformer.annotation.results import SCHEMAS
from toolformer.calls import ApiCall
from toolformer.data import Document
from toolformer.export import FORMATS
from toolformer.export.formats import Source
from toolformer.jobs.train import annotated_text
from toolformer.results import Results, Run, RunInfo
from toolformer.step import Step
from toolformer.storage import sha256
from toolformer.training.data import PackedTexts, one_per_sequence
from toolformer.training.tokens import tokenize

CALLS = {
    "calculator": ApiCall("Calculator", "400 / 1400", "0.29"),
    "qa": ApiCall("QA", 'Who "said" <|endoftext|> \\ [sic]?', "he did, 他说 <|endoftext|> 😀", quoted=True),
    "calendar": ApiCall("Calendar", "", "Today is Monday, January 30, 2023."),
}


PIECES = [
    *"ab 1.,\n\t\r[]{}()\"'\\%<>|_é北नम\u0301\u200d\u2028\u00a0\x00\x07\ufffd😀",
    *("The population is ", "<|endoftext|>", "👩‍👩‍👧", "  \n\n ", "مرحبا", "\u202eback"),
]


GENERATE = Step("generate", 1, {"tool": {tool: {"filter_threshold": 0.5} for tool in CALLS}}, {})


TRAIN = Step("train", 1, {"seed": 0}, {"datasets": [GENERATE]})


def rows_of(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of C*, also with their plain text, with every kind of character and up to three calls anywhere."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        plain = "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 20)))
        positions = sorted(chance.randint(0, len(plain)) for _ in range(chance.randint(1, 3)))
        kept = [
            KeptCall(position, tool, CALLS[tool], 1.5)
            for position, tool in ((each, chance.choice([*CALLS])) for each in positions)
        ]
        row: dict[str, Any] = merge(Document(f"doc{number}", plain), kept)
        rows.append({**row, "plain": plain})
    return rows


def candidates_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kept calls as candidates, and of each another one that harms."""
    return [
        {
            **{"doc_id": row["doc_id"], "tool": call["tool"], "position": call["position"]},
            "call": {**call, "name": "Harmful", "input": str(call["position"]), "quoted": False}
            if harms
            else call,
            **{"status": "scored", "kept": not harms},
            "filter_gain": -1.0 if harms else call["gain"],
            "loss_none": 3.0,
            "loss_result": 4.0 if harms else 3.0 - call["gain"],
        }
        for row in rows
        for call in row["calls"]
        for harms in (False, True)
    ]


def annotate(results: Results, rows: Sequence[dict[str, Any]], model: Path) -> Run:
    """A finished generate run with these rows."""
    config = {
        "model": str(model),
        "corpus": {"source": "jsonl", "path": "/home/me/secret folder/texts.jsonl"},
    }
    command = "toolformer generate corpus=jsonl corpus.path=/home/me/texts.jsonl"
    facts = {"corpus": "texts.jsonl"}
    with results.open(GENERATE, RunInfo("annotation", config, command, "default", facts=facts)) as folder:
        plain = [{**row, "text": row["plain"], "calls": []} for row in rows]
        tables = {"dataset_augmented": rows, "dataset_plain": plain, "documents_without_calls": []}
        for name, table in {**tables, "candidates": candidates_of(rows)}.items():
            path = folder.path / f"{name}.parquet"
            schema = SCHEMAS[path.name]
            of_schema = [{key: row.get(key) for key in schema.names} for row in table]
            pq.write_table(pa.Table.from_pylist(of_schema, schema=schema), path)
            folder.artifact(path)
        reasons = {"gain below the threshold": 3}
        funnel = {tool: {"documents": 9, "kept": 4, "filter_reasons": reasons} for tool in CALLS}
        folder.text("funnel.json", json.dumps(funnel))
        folder.metrics({"calls_kept": 12, "texts_kept": len(rows)})
    return results.get(GENERATE.key())


def train(results: Results, model: Path, data: str = "augmented") -> Run:
    """A finished train run of that annotation, whose model is a copy of this one."""
    step = TRAIN if data == "augmented" else Step("train", 1, {"data": data}, TRAIN.inputs)
    beginning = RunInfo(
        "training", {"model": str(model)}, "toolformer train", "default", facts={"data": data}
    )
    with results.open(step, beginning) as folder:
        shutil.copytree(model, folder.path / "model")
        digest = sha256(model / "model.safetensors")
        record = {"sha256": {"model.safetensors": digest}}
        (folder.path / "model" / "training.json").write_text(json.dumps(record))
        folder.metrics(
            {"initial_heldout_perplexity": 9, "best_heldout_perplexity": 8, "train_steps": 2, "texts": 3}
        )
        folder.add_facts(model="model")
    return results.get(step.key())


def evaluate(results: Results, system: str, **values: float) -> Run:
    """A finished evaluation of that training: the score of each benchmark, of 100 questions."""
    step = Step("evaluate", 1, {"system": system}, {"answers": Step("answer", 1, {}, {"training": TRAIN})})
    facts = {"system": system, "policy": "10", "version.lm-eval": "0.4.13"}
    with results.open(step, RunInfo(system, {}, "toolformer evaluate", "default", facts=facts)) as folder:
        for task, value in values.items():
            measure = "perplexity" if task.endswith("perplexity") else "score"
            folder.task(
                task, {measure: value, "n": 100, "n_ac": 40, "ci_low": value - 1, "ci_high": value + 1}
            )
    return results.get(step.key())


def write(name: str, rows: Sequence[Any], folder: Path, tokenizer: Any = None, results: bool = True) -> Path:
    """The file of a format with these rows."""
    path = folder / Path(FORMATS[name].file).name
    FORMATS[name].write(Source(folder, rows, lambda: tokenizer, results), path)
    return path


def trained(rows: Sequence[Any], tokenizer: Any, results: bool) -> list[tuple[list[int], list[int]]]:
    """Token ids and labels, a text per sequence, as training makes them."""
    documents = tokenize([annotated_text(row) for row in rows], tokenizer)
    layout = one_per_sequence(documents.lengths, range(len(documents)), max(documents.lengths))
    packed = PackedTexts(documents, layout, results)
    return [(packed[n]["input_ids"].tolist(), packed[n]["labels"].tolist()) for n in range(len(packed))]
