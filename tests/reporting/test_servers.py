"""Reports of a tracking server that is dead, of runs sent from journals, and of samples that are not to be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reporting.conftest import accuracy, log_run
from tests.reporting.test_baselines import RIGHT, WRONG, evaluated
from tests.tracking.conftest import free_port
from toolformer.reporting import build, reader, tables
from toolformer.reporting.evidence import Curve, Evidence
from toolformer.reporting.figures import training
from toolformer.tracking import Run, StoreFault, Tracker


def curve(evidence: Evidence) -> tuple[tuple[int, float], ...]:
    (found,) = evidence.curves
    assert isinstance(found, Curve) and training(evidence).panels
    return found.points


def test_curves_are_read_from_journals_and_from_where_these_were_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    dead = Tracker(f"http://127.0.0.1:{free_port()}", tmp_path / "runs")
    with dead.run(
        stage="train", name="t", fingerprint="t", config={"model": "m"}, tags={"data": "augmented"}
    ) as run:
        for step in range(3):
            run.metrics({"loss": 3.0 - step}, step=step)
    tags = {"system": "toolformer", "decoding.k": "10", "lineage.train_run_id": run.run_id}
    with dead.run(stage="evaluate", name="e", fingerprint="e", config={"model": "m"}, tags=tags) as run:
        run.metrics(accuracy("svamp", 5.0, 10))
    points = ((0, 3.0), (1, 2.0), (2, 1.0))
    assert curve(reader.read(dead)) == points

    local = Tracker(None, tmp_path / "runs")
    local.resend()
    local.prune()
    (sent,) = local.runs("train")
    assert sent.stored_as not in ("", sent.run_id) and not (tmp_path / "runs/journal" / sent.run_id).exists()
    assert curve(reader.read(local)) == points

    # A server that holds the history and does not answer: what is not to be had is not called untrained.
    monkeypatch.setattr(Tracker, "history", lambda *_: None)
    (note,) = training(reader.read(local)).footnotes
    assert "not to be had" in note.text and not note.command


def test_what_a_silent_server_has_is_not_called_gone_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    dead = Tracker(f"http://127.0.0.1:{free_port()}", tmp_path / "runs")
    lineage = {"lineage.train_run_id": "1" * 32, "lineage.dataset_run_id": "2" * 32}
    log_run(dead, "evaluate", accuracy("svamp", 5.0), system="toolformer", dotted=lineage)
    evidence = reader.read(dead)
    silent = f"is not to be had ({dead.shown_uri} does not answer)"
    assert evidence.remarks == (
        f"Train run 11111111, which made Toolformer, {silent}: neither its cost nor its curves are shown.",
        f"Generate run 22222222, on whose data the models were trained, {silent}.",
    )
    content = tables.content(evidence)
    notes = [note for part in (*content.tables, *content.figures) for note in part.footnotes]
    assert content.passages_footnote is not None and not content.passages_footnote.command
    steps = {step for note in notes for step in note.command.split(" && ") if step}
    assert {step for step in steps if not step.startswith("toolformer evaluate ")} == {
        "toolformer train data=plain dataset=22222222",
        "toolformer run experiment=figure4 corpus.path=DIR heldout.path=DIR paths.data_dir=DIR",
    }
    assert "toolformer evaluate system=toolformer checkpoint=11111111 'benchmarks=[asdiv,mawps]'" in steps


def test_a_server_that_gives_no_samples_is_asked_once_and_remarked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    for system, scores in (("model", WRONG), ("toolformer", RIGHT)):
        evaluated(tracker, tmp_path, system, scores)
    runs, asked = tracker.runs, []

    def served(stage: str, **tags: str) -> list[Run]:
        return [Run(**vars(run) | {"artifact_uri": "mlflow-artifacts:/1"}) for run in runs(stage, **tags)]

    def silent(run: Run, name: str) -> Path:
        asked.append(run.run_id)
        raise StoreFault("the tracking server http://x does not answer")

    monkeypatch.setattr(tracker, "runs", served)
    monkeypatch.setattr(tracker, "artifact_path", silent)
    report = build(tracker, None, tmp_path / "report")
    (remark,) = report.content.remarks
    assert "could not be fetched (the tracking server http://x does not answer)" in remark and len(asked) == 1


@pytest.mark.parametrize("torn", [b"PAR1 torn", None])
def test_a_torn_file_of_samples_is_left_out_and_remarked(tmp_path: Path, torn: bytes | None) -> None:
    tracker = Tracker(None, tmp_path / "runs")
    ids = {
        system: evaluated(tracker, tmp_path, system, scores)
        for system, scores in (("model", WRONG), ("toolformer_disabled", WRONG), ("toolformer", RIGHT))
    }
    path = tracker.artifact_path(tracker.get(ids["model"]), "samples/svamp.parquet")
    whole = path.read_bytes()
    path.write_bytes(
        torn or whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :]
    )  # its end is whole
    report = build(tracker, None, tmp_path / "report")
    (remark,) = report.content.remarks
    assert f"evaluate run {ids['model'][:8]} on SVAMP cannot be read" in remark
    evidence = reader.read(tracker)
    assert set(evidence.paired) == {("svamp", "toolformer", "toolformer_disabled")}
    (table,) = [one for one in tables.content(evidence).tables if one.key == "table4"]
    assert table.rows[0][3].text == "0.0"  # the figure stands
    assert report.samples is not None and report.samples.exists()
