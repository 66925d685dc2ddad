"""Step 4, to files: finished shards become candidates, C*, C and the funnel.

Thresholds need no model, so this can be repeated with others. Independent of models and configuration.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toolformer.annotation.candidates import SCORED
from toolformer.annotation.leaks import Terms
from toolformer.annotation.merge import Chance, Decision, decide, kept_calls, merge
from toolformer.annotation.score import PAPER
from toolformer.annotation.shards import CALL, CANDIDATES, BrokenShard, ShardStore, documents_of, usage_of
from toolformer.calls import parse
from toolformer.data import Document
from toolformer.data.sampling import Sample
from toolformer.errors import UserError
from toolformer.storage import atomic_file, atomic_write
from toolformer.tools.runtime import Usage, added

log = logging.getLogger(__name__)

TEXTS_TO_READ = 5000
"""How many documents without kept calls to store for the samples page (uniform sample by doc_id)."""
CHARACTERS_TO_READ = 100_000_000
"""Maximum total length of these texts."""
ROW_GROUP = 10_000
"""Minimum rows per row group of a results file."""
_TEXT = pa.string()
_CALL = {"position": pa.int64(), "tool": _TEXT, **CALL, "gain": pa.float64()}
"""A call of C*: `position` is its character offset in the plain text, `tool` the tool's key in the configuration."""
DATASET = pa.schema(
    {"text": _TEXT, "calls": pa.list_(pa.struct(_CALL)), "url": _TEXT, "date": _TEXT, "doc_id": _TEXT}
)
DECISIONS = pa.schema(
    {"kept": pa.bool_(), "reason": _TEXT, "filter_gain": pa.float64(), "threshold": pa.float64()}
)
"""Columns of the filter: whether a call is in C*, why not (else empty), its gain under the run's baseline, and the gain that it
had to reach (null if its gain decided nothing); both in nats."""
LEAK = pa.field("leak", _TEXT)
"""What a scored call holds that appears only after it, separated by `; `; empty if nothing."""
SCHEMAS = {
    "candidates.parquet": pa.unify_schemas([CANDIDATES, DECISIONS, pa.schema([LEAK])]),
    "dataset_augmented.parquet": DATASET,
    "dataset_plain.parquet": DATASET,
    "documents_without_calls.parquet": DATASET,
}
HELDOUT = "heldout.parquet"
"""The documents of the corpus that were held out, as those of C."""
RESULTS = (*SCHEMAS, HELDOUT, "funnel.json")


@dataclass(frozen=True)
class KeepRules:
    """How scored calls are filtered."""

    thresholds: Mapping[str, float]
    """By tool, the gain in nats that a call must reach: τ_f."""
    baseline: str = PAPER
    drop_leaks: bool = False
    chance: Chance = Chance()


def write_results(
    folder: Path,
    store: ShardStore,
    names: Iterable[str],
    rules: KeepRules,
    heldout: Iterable[Document] = (),
) -> tuple[dict[str, dict[str, Any]], float, dict[str, Usage]]:
    """Writes candidates, C*, C, texts without calls and the funnel from finished shards, a shard in memory at a time; and the
    held-out documents.

    Returns the funnel, the seconds that the shards took, and the counts of their calls by tool, of all processes. UserError if the
    folder cannot be written, or shards are damaged, which the same command makes again.
    """
    seconds = 0.0
    funnel: dict[str, dict[str, Any]] = {}
    used: dict[str, Usage] = {}
    to_read: Sample[dict[str, Any]] = Sample(TEXTS_TO_READ, CHARACTERS_TO_READ)
    with ExitStack() as stack:
        files = {name: stack.enter_context(atomic_file(folder / name)) for name in SCHEMAS}
        candidates, augmented, plain, without = (
            stack.enter_context(_table_file(path, SCHEMAS[name])) for name, path in files.items()
        )
        for shard in _shards(store, names):
            table = shard.select(CANDIDATES.names).replace_schema_metadata(None)
            rows = table.to_pylist()
            documents = documents_of(shard)
            decisions, leaks = filtered(rows, documents, rules)
            kept = kept_calls(rows, decisions)
            column = [leaks.get(n, "") for n in range(len(rows))]
            candidates(with_decisions(table, decisions).append_column(LEAK, pa.array(column, _TEXT)))
            _add(funnel, json.loads(shard.schema.metadata[b"funnel"]), rows, decisions, leaks)
            seconds += float(shard.schema.metadata[b"seconds"])
            used = added(used, usage_of(shard))
            with_calls = [document for document in documents if document.doc_id in kept]
            augmented(_dataset(merge(document, kept[document.doc_id]) for document in with_calls))
            plain(_dataset(merge(document, ()) for document in with_calls))
            for document in documents:
                if document.doc_id not in kept:
                    to_read.add(document.doc_id, len(document.text), merge(document, ()))
        without(_dataset(to_read.items()))
    with atomic_file(folder / HELDOUT) as path:
        pq.write_table(_dataset(merge(document, ()) for document in heldout), path)
    atomic_write(folder / "funnel.json", json.dumps(funnel, indent=1, sort_keys=True).encode())
    return funnel, seconds, used


def filtered(
    rows: Sequence[Mapping[str, Any]], documents: Iterable[Document], rules: KeepRules
) -> tuple[list[Decision], dict[int, str]]:
    """The filter's decisions on candidates of these documents, and what leaks (`leaks_of`)."""
    leaks = leaks_of(rows, documents)
    dropped = leaks if rules.drop_leaks else ()
    return decide(rows, rules.thresholds, rules.baseline, dropped, rules.chance), leaks


def leaks_of(rows: Sequence[Mapping[str, Any]], documents: Iterable[Document]) -> dict[int, str]:
    """By index the scored calls that leak (`Terms.leaked`), with what they hold that appears only after them."""
    terms = {document.doc_id: Terms(document.text) for document in documents}
    leaks = {
        n: "; ".join(terms[row["doc_id"]].leaked(row["position"], row["call"]["input"]))
        for n, row in enumerate(rows)
        if row["status"] == SCORED
    }
    return {n: leak for n, leak in leaks.items() if leak}


def _shards(store: ShardStore, names: Iterable[str]) -> Iterator[pa.Table]:
    """The finished shards. UserError after the last one if some are damaged; these are discarded."""
    damaged = 0
    for name in names:
        try:
            yield store.read(name)
        except BrokenShard as error:
            log.warning("generate: %s", error)
            store.discard(name)
            damaged += 1
    if damaged:
        raise UserError(
            f"{store.folder}: {damaged} shards are damaged; run the same command again, which makes them again"
        )


def check_complete(path: Path) -> None:
    """OSError or ValueError if a file of the results is missing, truncated, or of another schema."""
    if path.suffix == ".json":
        json.loads(path.read_bytes())
        return
    if missing := sorted(_columns(SCHEMAS.get(path.name, DATASET)) - _columns(pq.read_schema(path))):
        raise ValueError(f"it has no column {missing[0]}")


def _columns(schema: pa.Schema) -> set[str]:
    """The names of the columns, and of the fields of `calls`."""
    calls = schema.field("calls").type if "calls" in schema.names else None
    fields = calls.value_type if calls is not None and pa.types.is_list(calls) else ()
    return {*schema.names, *(f"calls.{field.name}" for field in fields)}


def with_decisions(table: pa.Table, decisions: Sequence[Decision]) -> pa.Table:
    """Candidates with the columns `DECISIONS`."""
    columns = [
        {
            "kept": not decision.reason,
            "reason": decision.reason,
            "filter_gain": decision.gain,
            "threshold": decision.threshold,
        }
        for decision in decisions
    ]
    decided = pa.Table.from_pylist(columns, schema=DECISIONS)
    for name in DECISIONS.names:
        table = table.append_column(name, decided[name])
    return table


def calls_as_structs(table: pa.Table) -> pa.Table:
    """Candidates that an earlier release stored, with the column `call` of this one.

    There `call` is the call as text, or what was written in its place, and `call_input` and `result` are columns.
    """
    calls = [
        None if row["call_input"] is None else replace(parse(row["call"]), result=row["result"]).as_row()
        for row in table.select(["call", "call_input", "result"]).to_pylist()
    ]
    written = table["call"]
    table = table.drop_columns(["call", "call_input", "result"]).append_column("written", written)
    return table.append_column("call", pa.array(calls, CANDIDATES.field("call").type))


def _dataset(rows: Iterable[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=DATASET)


@contextmanager
def _table_file(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Yields a function that adds rows to a Parquet file, in large row groups: readers hold their list in memory."""
    tables: list[pa.Table] = []
    with pq.ParquetWriter(path, schema) as writer:

        def add(table: pa.Table, least: int = ROW_GROUP) -> None:
            # Most shards of a large corpus keep nothing: dropping empty tables bounds the memory by the rows.
            tables.extend([table] if len(table) else [])
            if tables and sum(map(len, tables)) >= least:
                writer.write_table(pa.concat_tables(tables))
                tables.clear()

        yield add
        add(schema.empty_table(), least=0)


def _add(
    total: dict[str, dict[str, Any]],
    shard: dict[str, dict[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    decisions: Sequence[Decision],
    leaks: Collection[int],
) -> None:
    """Adds a shard's counts, how many of its calls were kept, and why the other scored ones were not; and the leaks."""
    reasons: dict[str, Counter[str]] = {tool: Counter() for tool in shard}
    for row, decision in zip(rows, decisions, strict=True):
        reasons[row["tool"]][decision.reason] += row["status"] == SCORED
    for tool, counts in shard.items():
        sums = total.setdefault(tool, {"kept": 0, "leaking": 0, "kept_leaking": 0})
        leaking = [n for n in leaks if rows[n]["tool"] == tool]
        sums["leaking"] += len(leaking)
        sums["kept_leaking"] += sum(not decisions[n].reason for n in leaking)
        sums["kept"] += reasons[tool].pop("", 0)
        for name, value in {**counts, "filter_reasons": dict(+reasons[tool])}.items():
            if isinstance(value, dict):
                sums[name] = dict(Counter(sums.get(name, {})) + Counter(value))
            else:
                sums[name] = sums.get(name, 0) + value
