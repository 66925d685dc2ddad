"""Step 4, to files: finished shards become candidates, C*, C and the funnel.

Thresholds need no model, so this can be repeated with others. Independent of models and configuration.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toolformer.annotation.candidates import SCORED, Filtering
from toolformer.annotation.funnel import KeptInputs
from toolformer.annotation.leaks import Terms
from toolformer.annotation.merge import ENOUGH, Chance, Decision, decide, kept_calls, merge
from toolformer.annotation.shards import CALL, CANDIDATES, BrokenShard, Record, ShardStore
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
"""Numbers and names of a scored call that the text has only after it, separated by `; `; empty without any."""
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
    filtering: Filtering = field(default_factory=Filtering)
    chance: Chance = Chance()
    examples: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By tool, the inputs of the calls in its prompt: copies of them are counted."""
    limit: int | None = None
    """Examples of each tool (`example_of`) at most: the first ones; None is all."""


@dataclass
class Merged:
    """Summary of finished shards."""

    funnel: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By tool, its counts after each step, and how many of its calls were kept."""
    seconds: float = 0.0
    """That the shards took."""
    used: dict[str, Usage] = field(default_factory=dict)
    """Counts of their calls by tool, of all processes."""
    commits: Counter[str] = field(default_factory=Counter)
    """How many shards were made by which commit of the code."""
    dtypes: set[str] = field(default_factory=set)
    """In which the model computed them."""

    def add(
        self,
        records: Mapping[str, Record],
        rows: Sequence[Mapping[str, Any]],
        decisions: Sequence[Decision],
        leaks: Collection[int],
    ) -> None:
        """Adds a shard: its counts, how many of its calls were kept, and why the other scored ones were not; and the leaks."""
        for tool, record in records.items():
            of_tool = {n: decisions[n].reason for n, row in enumerate(rows) if row["tool"] == tool}
            reasons = Counter(reason for n, reason in of_tool.items() if rows[n]["status"] == SCORED)
            counts = {
                "kept": reasons.pop("", 0),
                "leaking": len(of_tool.keys() & set(leaks)),
                "kept_leaking": sum(n in leaks and not reason for n, reason in of_tool.items()),
                **record.funnel,
                "filter_reasons": dict(reasons),
            }
            sums = self.funnel.setdefault(tool, {})
            for name, value in counts.items():
                if isinstance(value, Mapping):
                    sums[name] = dict(Counter(sums.get(name, {})) + Counter(value))
                else:
                    sums[name] = sums.get(name, 0) + value
            self.seconds += record.seconds
            self.used = added(self.used, {tool: record.used})
            self.commits[record.commit] += 1
            self.dtypes |= {record.dtype} - {""}


def write_results(
    folder: Path,
    stores: Mapping[str, ShardStore],
    shards: Iterable[tuple[str, Sequence[Document]]],
    rules: KeepRules,
) -> Merged:
    """Writes candidates, C*, C, texts without calls and the funnel from finished shards, a shard in memory at a time.

    UserError if the folder cannot be written, or shards are damaged, which the same command makes again.

    Args:
        stores: of each tool, by its key.
        shards: (name, documents) of each shard, in the corpus's order.
    """
    merged = Merged()
    to_read: Sample[dict[str, Any]] = Sample(TEXTS_TO_READ, CHARACTERS_TO_READ)
    reader = _Reader(stores, rules.limit)
    inputs = {tool: KeptInputs(rules.examples.get(tool, ())) for tool in stores}
    with ExitStack() as stack:
        files = {name: stack.enter_context(atomic_file(folder / name)) for name in SCHEMAS}
        candidates, augmented, plain, without = (
            stack.enter_context(_table_file(path, SCHEMAS[name])) for name, path in files.items()
        )
        for name, documents in shards:
            rows, records = reader.read(name, documents)
            decisions, leaks = filtered(rows, documents, rules)
            decisions = reader.limited(rows, decisions)
            column = [leaks.get(n, "") for n in range(len(rows))]
            table = pa.Table.from_pylist(rows, schema=CANDIDATES)
            candidates(with_decisions(table, decisions).append_column(LEAK, pa.array(column, _TEXT)))
            merged.add(records, rows, decisions, leaks)
            kept = kept_calls(rows, decisions)
            with_calls = [document for document in documents if document.doc_id in kept]
            for document in with_calls:
                for call in kept[document.doc_id]:
                    inputs[call.tool].add(call.call.input, document.text)
            augmented(_dataset(merge(document, kept[document.doc_id]) for document in with_calls))
            plain(_dataset(merge(document, ()) for document in with_calls))
            tried = {row["doc_id"] for row in rows} - kept.keys()
            for document in documents:
                if document.doc_id in tried:
                    to_read.add(document.doc_id, len(document.text), merge(document, ()))
        reader.check()
        for tool, counts in merged.funnel.items():
            counts |= inputs[tool].named()
        without(_dataset(to_read.items()))
    atomic_write(folder / "funnel.json", json.dumps(merged.funnel, indent=1, sort_keys=True).encode())
    return merged


def write_heldout(folder: Path, documents: Iterable[Document]) -> None:
    """Writes the documents that were held out."""
    with atomic_file(folder / HELDOUT) as path:
        pq.write_table(_dataset(merge(document, ()) for document in documents), path)


def filtered(
    rows: Sequence[Mapping[str, Any]], documents: Iterable[Document], rules: KeepRules
) -> tuple[list[Decision], dict[int, str]]:
    """The filter's decisions on candidates of these documents, and what leaks (`leaks_of`)."""
    leaks = leaks_of(rows, documents)
    dropped = leaks if rules.filtering.leak == "drop" else ()
    return decide(rows, rules.thresholds, rules.filtering, dropped, rules.chance), leaks


def leaks_of(rows: Sequence[Mapping[str, Any]], documents: Iterable[Document]) -> dict[int, str]:
    """By index the scored calls that leak (`Terms.leaked`), with what they hold that appears only after them."""
    terms = {document.doc_id: Terms(document.text) for document in documents}
    leaks = {
        n: "; ".join(terms[row["doc_id"]].leaked(row["position"], row["call"]["input"]))
        for n, row in enumerate(rows)
        if row["status"] == SCORED
    }
    return {n: leak for n, leak in leaks.items() if leak}


def example_of(row: Mapping[str, Any]) -> Hashable:
    """The example of a tool that a kept call belongs to, of which `KeepRules.limit` are kept: a text with calls of the tool."""
    return row["doc_id"], row["tool"]


def examples(rows: Sequence[Mapping[str, Any]], documents: Iterable[Document], rules: KeepRules) -> int:
    """How many examples these candidates of one tool make, without a limit."""
    decisions, _ = filtered(rows, documents, rules)
    return len(
        {example_of(row) for row, decision in zip(rows, decisions, strict=True) if not decision.reason}
    )


class _Reader:
    """Reads the finished shards of all tools, of each tool until it has its examples.

    Args:
        limit: examples of each tool at most.
    """

    def __init__(self, stores: Mapping[str, ShardStore], limit: int | None) -> None:
        self._stores, self._limit = dict(sorted(stores.items())), limit
        self._examples: Counter[str] = Counter()
        self._damaged: Counter[ShardStore] = Counter()

    def _is_full(self, tool: str) -> bool:
        return self._limit is not None and self._examples[tool] >= self._limit

    def read(
        self, name: str, documents: Iterable[Document]
    ) -> tuple[list[dict[str, Any]], dict[str, Record]]:
        """The candidates of a shard by document and tool, and how each tool's were made."""
        rows: list[dict[str, Any]] = []
        records: dict[str, Record] = {}
        for tool, store in self._stores.items():
            if self._is_full(tool):
                continue
            try:
                table, records[tool] = store.read(name)
                rows += table.to_pylist()
            except BrokenShard as error:
                log.warning("generate: %s", error)
                store.discard(name)
                self._damaged[store] += 1
        order = {document.doc_id: n for n, document in enumerate(documents)}
        return sorted(rows, key=lambda row: (order[row["doc_id"]], row["tool"])), records

    def limited(self, rows: Sequence[Mapping[str, Any]], decisions: Sequence[Decision]) -> list[Decision]:
        """The decisions, without the calls of a tool after its last example."""
        limited = list(decisions)
        latest: Hashable = None
        for n, (row, decision) in enumerate(zip(rows, decisions, strict=True)):
            if decision.reason:
                continue
            if latest != example_of(row) and not self._is_full(row["tool"]):
                latest = example_of(row)
                self._examples[row["tool"]] += 1
            if latest != example_of(row):
                limited[n] = replace(decision, reason=ENOUGH)
        return limited

    def check(self) -> None:
        """UserError if shards were damaged; these are discarded."""
        for store in self._damaged:
            raise UserError(
                f"{store.folder}: {self._damaged.total()} shards are damaged; run the same command to make them again"
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
