"""What the page of samples holds of large runs: an even sample, with its texts, within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from tests.reporting.conftest import write_annotation
from tests.reporting.test_figures import samples
from toolformer.documents.drawing import Draw, lot
from toolformer.reporting import candidates, viewer
from toolformer.reporting.evidence import Annotation, RunNote, Sampled

NOTE = RunNote("r" * 32, "generate", "", "c", "2026-01-01", "cpu")


@given(
    st.lists(st.tuples(st.text(max_size=4), st.integers(0, 50)), unique_by=lambda one: one[0]),
    st.integers(1, 9),
)
def test_what_is_held_are_the_lowest_lots_in_order(documents: list[tuple[str, int]], count: int) -> None:
    draw: Draw[str] = Draw(count, 100)
    for doc_id, length in documents:
        draw.add(doc_id, length, doc_id)
    held = draw.held()
    lengths = dict(documents)
    assert held == [doc_id for doc_id, _ in documents if doc_id in held]
    assert len(held) <= count and sum(lengths[one] for one in held) <= 100
    highest = max(map(lot, held), default=-1)
    assert {doc_id for doc_id, _ in documents if lot(doc_id) <= highest} == set(held)


def annotation(folder: Path, sizes: dict[str, int], held: dict[str, str], length: int = 3) -> Annotation:
    """A generate run whose further documents have so many candidates; `held` are texts of those without calls."""
    files = {path.name: path for path in write_annotation(folder)}
    table = pq.read_table(files["candidates.parquet"])
    row = {**table.to_pylist()[3], "result": "r" * length}
    more = [
        {**row, "doc_id": doc_id, "position": n, "sample": n}
        for doc_id, size in sizes.items()
        for n in range(size)
    ]
    pq.write_table(
        pa.concat_tables([table, pa.Table.from_pylist(more, schema=table.schema)]),
        files["candidates.parquet"],
    )
    path = folder / candidates.WITHOUT_CALLS
    schema = pq.read_schema(files["dataset_plain.parquet"])
    rows = [{"doc_id": doc_id, "text": text, "calls": []} for doc_id, text in held.items()]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return Annotation(NOTE, {}, {}, (), files=files | {path.name: path})


def shown(found: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    assert found is not None
    return {one["id"]: one for one in found["documents"]}


def test_drawn_documents_have_their_texts_where_the_run_holds_some_only(tmp_path: Path) -> None:
    names = [f"more-{n}" for n in range(200)]
    draw: Draw[str] = Draw(40, 10_000)
    for name in names:
        draw.add(name, 5, name)
    found = viewer.annotated(
        annotation(tmp_path, dict.fromkeys(names, 2), dict.fromkeys(draw.held(), "some text"))
    )
    documents = shown(found)
    drawn = [name for name in documents if name in names]
    assert len(drawn) == 40 and all(documents[name]["text"] == "some text" for name in drawn)
    assert found is not None and found["total"] == 10 + 400 and "evenly drawn from 410" in found["drawn"]
    # Those with calls are drawn no more often than the others.
    assert {"math", "date", "nile", "evil"} & documents.keys() == {
        name for name in ("math", "date", "nile", "evil") if lot(name) <= max(map(lot, drawn))
    }


def test_a_huge_document_does_not_break_the_bound(tmp_path: Path) -> None:
    sizes = {"huge": 3 * viewer.OF_DOCUMENT, **dict.fromkeys((f"more-{n}" for n in range(50)), 100)}
    found = viewer.annotated(annotation(tmp_path, sizes, {}), limit=2000)
    assert found is not None and viewer.OF_DOCUMENT < len(found["rows"]) <= 2000
    documents = shown(found)
    if "huge" in documents:
        assert documents["huge"]["left"] == 2 * viewer.OF_DOCUMENT
    few = viewer.annotated(annotation(tmp_path, {"huge": 3000}, {}), limit=10)
    assert few is not None and 0 < len(few["rows"]) <= 10


def test_the_characters_of_a_page_are_bounded(tmp_path: Path) -> None:
    found = viewer.annotated(
        annotation(tmp_path, dict.fromkeys((f"more-{n}" for n in range(50)), 10), {}, length=100),
        characters=20_000,
    )
    assert found is not None and 0 < sum(len(row["result"] or "") for row in found["rows"]) <= 20_000
    assert "and 0.02 million characters" in found["drawn"] and len(found["rows"]) < found["total"]
    everything = viewer.annotated(annotation(tmp_path, {}, {}))
    assert everything is not None and everything["drawn"] == ""


def test_the_characters_of_answers_are_bounded(tmp_path: Path) -> None:
    file = samples(tmp_path / "svamp.parquet", [0.0] * 100)
    sampled = (Sampled("r" * 32, "M", "M", {"svamp": file}),)
    (whole,) = viewer.questions(sampled)
    (part,) = viewer.questions(sampled, characters=4_000)
    assert len(whole["rows"]) == 100 and whole["drawn"] == ""
    assert 0 < viewer._length(part["rows"]) <= 4_000 and "evenly drawn from 100" in part["drawn"]
