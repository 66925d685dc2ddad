"""What is shown of candidates and answers: decisions and sides, even samples of large runs, lost texts, and the ladder."""

import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.runs import NOTE, TEXTS, Runs, annotated, samples, write_annotation
from toolformer.annotation import merge
from toolformer.annotation.merge import Chance, decide
from toolformer.annotation.results import SCHEMAS, with_decisions
from toolformer.annotation.shards import CANDIDATES
from toolformer.calls import ApiCall
from toolformer.data.sampling import Sample, hash64
from toolformer.evaluation.ladder.classes import CLASSES, RUNGS
from toolformer.reporting import candidate_stats, plots, reader, samples_page
from toolformer.reporting.annotation_tables import funnel as funnel_table
from toolformer.reporting.annotation_tables import leaking, nearest
from toolformer.reporting.candidate_stats import FATES
from toolformer.reporting.data import NEWEST, Annotation, Evidence, Sampled
from toolformer.reporting.ladder import ladder, picture
from toolformer.tools.limits import CALL_TOO_LONG


def annotation(folder: Path, sizes: dict[str, int], held: Sequence[str] = ()) -> Annotation:
    """A generate run whose further documents have so many candidates; `held` are those without calls whose text it has."""
    files = write_annotation(folder)
    files[candidate_stats.WITHOUT_CALLS] = folder / candidate_stats.WITHOUT_CALLS
    rows = pq.read_table(files["candidates.parquet"]).to_pylist()
    for doc_id, size in sizes.items():
        rows += [{**rows[3], "doc_id": doc_id, "position": n, "sample": n} for n in range(size)]
    texts = [{"doc_id": doc_id, "text": "some text", "calls": []} for doc_id in held]
    for name, content in (("candidates.parquet", rows), (candidate_stats.WITHOUT_CALLS, texts)):
        pq.write_table(pa.Table.from_pylist(content, schema=SCHEMAS[name]), files[name])
    thresholds = dict.fromkeys(("calculator", "calendar", "qa"), 1.0)
    return Annotation(NOTE, {}, {}, (), thresholds=thresholds, files=files)


def shown(found: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    assert found is not None
    return {document["id"]: document for document in found["documents"]}


def test_sampled_documents_have_their_texts(tmp_path: Path) -> None:
    names = [f"more-{n}" for n in range(200)]
    draw: Sample[str] = Sample(40, 10_000)
    for name in names:
        draw.add(name, 5, name)
    found = samples_page.annotated(annotation(tmp_path, dict.fromkeys(names, 2), draw.items()))
    documents = shown(found)
    drawn = [name for name in documents if name in names]
    assert {*drawn} == {*draw.items()} == {*sorted(names, key=hash64)[:40]}
    assert all(documents[name]["text"] == "some text" for name in drawn)
    assert found is not None and found["drawn"] == ", evenly drawn from 410"
    # Those with calls are drawn no more often than the others.
    with_calls = {"math", "date", "nile", "evil"}
    highest = max(map(hash64, drawn))
    assert with_calls & documents.keys() == {name for name in with_calls if hash64(name) <= highest}
    sizes = {"huge": 3 * samples_page.OF_DOCUMENT, **dict.fromkeys(names[:50], 100)}
    found = samples_page.annotated(annotation(tmp_path, sizes), limit=2_000)
    assert found is not None and samples_page.OF_DOCUMENT < len(found["rows"]) <= 2_200
    assert 2 * samples_page.OF_DOCUMENT <= shown(found)["huge"]["left"] < sizes["huge"]
    assert all(document["left"] == 0 for name, document in shown(found).items() if name != "huge")


def test_candidates_have_their_decision(tmp_path: Path) -> None:
    found = samples_page.annotated(annotation(tmp_path, {}))
    assert found is not None and len(found["rows"]) == 10 and found["drawn"] == ""
    texts = [document["text"] for document in found["documents"]]
    rows = {(texts[row["document"]], row["position"], row["sample"]): row for row in found["rows"]}
    reasons = {
        (TEXTS["math"], 77, 0): "", (TEXTS["math"], 77, 1): merge.BEATEN, (TEXTS["math"], 60, 0): merge.BELOW,
        (TEXTS["nile"], 37, 1): "no result", (None, 3, 0): merge.BELOW,
    }  # fmt: skip
    assert {place: rows[place]["reason"] for place in reasons} == reasons
    assert rows[TEXTS["math"], 77, 0]["kept"] and rows[TEXTS["nile"], 37, 1]["gain"] is None


def test_answers_to_the_same_question_are_side_by_side(tmp_path: Path) -> None:
    runs = [
        Sampled(title, title, title, {"svamp": samples(tmp_path / title / "svamp.parquet", [score] * 100)})
        for title, score in (("Toolformer", 0.0), ("M", 100.0))
    ]
    (task,) = samples_page.questions(runs)
    assert [run["title"] for run in task["runs"]] == ["M", "Toolformer"] and task["drawn"] == ""
    assert all([answer["score"] for answer in row["answers"]] == [100.0, 0.0] for row in task["rows"])
    (part,) = samples_page.questions(runs, limit=10)
    assert len(part["rows"]) == 10 and part["drawn"] == ", evenly drawn from 100"
    assert [row["id"] for row in part["rows"]][:: len(part["rows"]) - 1] == ["q0", "q99"]


def test_only_the_newest_runs_are_read(tmp_path: Path) -> None:
    file = samples(tmp_path / "svamp.parquet", [0.0] * 5)
    missing = Sampled("old", "M", "M", {"svamp": tmp_path / "gone.parquet"})
    newest = [Sampled(str(n), "M", "M", {"svamp": file}) for n in range(NEWEST)]
    (task,) = samples_page.questions([*newest, missing])
    assert len(task["runs"]) == NEWEST
    assert samples_page.data(Evidence()) is None


def test_five_times_the_candidates_take_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidate_stats, "ROWS", 2**11)
    monkeypatch.setattr(candidate_stats, "_SAMPLED", 2**14)

    def peak(documents: int) -> int:
        store, folder = Runs(), tmp_path / str(documents)
        folder.mkdir()
        files = write_annotation(folder)
        few = pq.read_table(files["candidates.parquet"])
        many = few.take(np.full(10 * documents, 3))
        ids = pa.array(f"more-{number // 10}" for number in range(10 * documents))
        positions = pa.array(np.tile(np.arange(10), documents))
        many = many.set_column(0, "doc_id", ids).set_column(2, "position", positions)
        pq.write_table(pa.concat_tables([few, many]), files["candidates.parquet"])
        annotated(store, files=files)
        del few, many
        pool, usual = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            found = reader.read_evidence(store).annotation
            assert found is not None and found.counts["calendar", 0.5][1] > 0
            assert samples_page.annotated(found)
            return tracemalloc.get_traced_memory()[1] + (pool.max_memory() or 0)
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(usual)

    peak(100)  # what is imported at first use
    assert peak(15_000) < 1.3 * peak(3_000)


CALL = ApiCall("Calculator", "1", "1").as_row()


def candidate(doc_id: str, tool: str, position: int, gain: float | None, **more: Any) -> dict[str, Any]:
    row = {"doc_id": doc_id, "tool": tool, "position": position, "sample": 0, "call": CALL}
    row |= {"status": "scored"}
    if gain is not None:
        row |= {"loss_result": 1.0, "loss_no_result": 1.0 + gain, "loss_none": 1.0 + gain}
    return dict.fromkeys(CANDIDATES.names) | row | more


ROWS = [
    candidate("math", "calculator", 10, None, call=None, status="malformed call"),
    candidate("date", "calculator", 3, None, call=None, status="malformed call"),
    candidate("date", "calculator", 3, None, call=CALL | {"result": None}, status="invalid expression"),
    candidate("date", "qa", 3, 1.0),
    candidate("nile", "calculator", 4, -0.5),
    candidate("nile", "calculator", 5, None, status="result not ahead"),
    candidate("evil", "calculator", 4, -0.5),
    candidate("evil", "calculator", 5, 0.25),
    candidate("evil", "calculator", 5, 0.75, sample=1),
    candidate("evil", "calculator", 9, 0.5),
    candidate("kept", "calculator", 5, 1.0),
]
THRESHOLDS = {"calculator": 1.0, "qa": 2.0}


def test_every_text_is_lost_once_and_near_misses_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates, texts = tmp_path / "candidates.parquet", tmp_path / "dataset_plain.parquet"
    table = pa.Table.from_pylist(ROWS, schema=CANDIDATES)
    pq.write_table(with_decisions(table, decide(ROWS, THRESHOLDS)), candidates)
    pq.write_table(pa.table({"doc_id": list(TEXTS), "text": list(TEXTS.values())}), texts)
    for rows in (1, 2, 100):
        monkeypatch.setattr(candidate_stats, "ROWS", rows)
        found = candidate_stats.lost(candidates, {"calculator": 9, "qa": 1, "calendar": 3})
        assert found["calculator"] == dict(zip(FATES, (4, 1, 1, 1, 1, 1), strict=True))
        assert found["qa"] == dict.fromkeys(FATES, 0) | {"not kept": 1}
        assert found["calendar"]["no position"] == 3 == sum(found["calendar"].values())
    files = {path.name: path for path in (candidates, texts)}
    annotation = Annotation(NOTE, {}, {}, (), thresholds=THRESHOLDS, files=files)
    misses = candidate_stats.misses(annotation, count=3)
    assert [(one.tool, one.gain, one.kept) for one in misses] == [
        ("calculator", 0.75, False), ("calculator", 0.5, False), ("calculator", -0.5, False), ("qa", 1.0, False),
    ]  # fmt: skip
    assert misses[-1].before == "The" and "[Calculator(1) -> 1]" in nearest(misses).rows[-1][2].text


def test_table_2_counts_what_the_filter_kept(tmp_path: Path) -> None:
    """Not what a threshold would keep: one call leaks and is dropped, and chance keeps those of another tool."""
    rows = [
        candidate("a", "calculator", 5, 2.0),
        candidate("b", "calculator", 5, 3.0),
        candidate("c", "qa", 5, -1.0),
        candidate("d", "qa", 1, 5.0),
    ]
    chance = Chance(
        {"qa": 0.5},
        seed=next(
            seed
            for seed in range(99)
            if Chance({"qa": 0.5}, seed).draws(rows[2]) and not Chance({"qa": 0.5}, seed).draws(rows[3])
        ),
    )
    decisions = decide(rows, THRESHOLDS, leaking=[0], chance=chance)
    path = tmp_path / "candidates.parquet"
    pq.write_table(with_decisions(pa.Table.from_pylist(rows, schema=CANDIDATES), decisions), path)
    needed, by_chance = candidate_stats.needed(path, THRESHOLDS)
    assert needed == {"calculator": 1.0} and by_chance == {"qa"}
    counts = candidate_stats.counts(path, "paper", ["calculator"], needed)
    assert counts == {("calculator", threshold): (1, 1) for threshold in (0.5, 1.0, 2.0)}
    assert candidate_stats.lost(path, {})["qa"] == dict.fromkeys(FATES, 0) | {"kept": 1, "not kept": 1}


def test_a_column_and_a_bar_for_each_benchmark() -> None:
    one = {f"class/{name}": 10.0 for name in CLASSES} | {f"rung/{name}": 25.0 for name in RUNGS}
    ladders = {"svamp": one | {"n": 90.0, "rung_n/gold_input": 45.0}, "mine": one | {"n": 90.0}}
    table = ladder(ladders)
    assert [column.label for column in table.columns] == ["", "SVAMP", "mine"]
    assert [row[0].text for row in table.rows[: len(CLASSES)]] == list(CLASSES.values())
    assert sum(int(row[1].text) for row in table.rows[: len(CLASSES)]) == 90
    assert table.rows[-3][1].detail == "(of 45)" and table.rows[-3][2].detail == ""
    figure = picture(ladders)
    assert figure and all(name in plots.files(figure)["ladder.svg"].decode() for name in CLASSES.values())
    assert picture({}) is None and not ladder({}).rows


def test_kept_calls_that_leak_are_listed_with_what_they_hold(tmp_path: Path) -> None:
    rows = [("nile", "qa", 4, n, question, "he", "scored", gain) for n, (question, gain) in enumerate(
        [("Who named the White Nile?", 3.0), ("Who?", 2.0)]
    )]  # fmt: skip
    files = write_annotation(
        tmp_path, [*rows, ("math", "calculator", 77, 0, "400 / 1400", "0.29", "scored", 2.5)]
    )
    listed = candidate_stats.leaking(Annotation(NOTE, {}, {}, (), thresholds=THRESHOLDS, files=files))
    assert [(leak, call.tool, call.gain, call.kept) for leak, call in listed] == [
        ("White; Nile", "qa", 3.0, True)
    ]
    assert leaking(listed).rows[0][2].text == "White; Nile"


@pytest.mark.parametrize(
    ("cut", "words"), [(6, " Calls longer than tool.NAME.max_call_tokens: QA 6 %."), (5, "")]
)
def test_a_table_says_when_many_calls_were_too_long(cut: int, words: str) -> None:
    counts = {"sampled": 100, "executed": 50, "results_cut": 2, "drop_reasons": {CALL_TOO_LONG: cut}}
    caption = funnel_table(Annotation(NOTE, {}, {"my_qa": counts}, ())).caption
    assert ("max_call_tokens" in caption, "max_result_tokens" in caption) == (bool(words), False)
    assert words.partition(":")[0] in caption
