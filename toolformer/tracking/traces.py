"""Samples of an evaluation as MLflow traces: the question and the answer, and inside it the call with its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolformer.results.run import Run
from toolformer.storage import safe_join
from toolformer.tracking.store import Store

PER_BENCHMARK = 40
"""Traces of a benchmark, spread evenly over its samples."""
_COLUMNS = (
    "prompt",
    "completion",
    "target",
    "score",
    "tool",
    "call_input",
    "call_result",
    "seconds",
    "failed",
)


def log_traces(store: Store, run: Run, run_id: str) -> int:
    """Logs traces of a finished evaluation, in place of those that are there; returns their number.

    Samples without their prompts, as in published runs, have none. Any error of MLflow's.
    """
    from mlflow.tracing.client import TracingClient

    client, count = TracingClient(store.uri), 0
    for task in run.tasks:
        path = safe_join(run.folder, "samples", f"{task}.parquet")
        if not path.is_file():
            continue
        for row in _samples(path):
            _ = store.client  # UserError after the deadline
            info, spans = _trace(store.experiment, run, run_id, task, row)
            client.start_trace(info)
            client.log_spans(store.experiment, spans)
            count += 1
    return count


def _samples(path: Path) -> Iterator[Mapping[str, Any]]:
    import pandas
    import pyarrow.parquet

    present = {*pyarrow.parquet.read_schema(path).names}
    if not {"id", "prompt", "completion"} <= present:
        return
    rows = pandas.read_parquet(path, columns=["id", *(name for name in _COLUMNS if name in present)])
    for index in range(min(PER_BENCHMARK, len(rows))):
        row = rows.iloc[index * len(rows) // min(PER_BENCHMARK, len(rows))]
        yield json.loads(row.to_json(force_ascii=False))


def _trace(
    experiment: str, run: Run, run_id: str, task: str, row: Mapping[str, Any]
) -> tuple[Any, list[Any]]:
    """A trace and its spans; its id is by run, benchmark and sample, so that it is logged once."""
    from mlflow.entities import TraceInfo, TraceLocation, TraceState

    text = json.dumps([run_id, task, row["id"]])
    trace_id = hashlib.sha256(text.encode()).hexdigest()[:32]
    end = int(1e9 * (run.ended or run.started).timestamp())
    start = end - int(1e9 * (row.get("seconds") or 0))
    question = {"prompt": row["prompt"]}
    answer = {"answer": row["completion"], **{key: row.get(key) for key in ("score", "target")}}
    spans = [_span(trace_id, 1, task, "CHAIN", (start, end), question, answer)]
    if row.get("tool"):
        # The time of a call alone is not recorded.
        asked, result = {"input": row.get("call_input")}, {"result": row.get("call_result")}
        spans.append(_span(trace_id, 2, str(row["tool"]), "TOOL", (start, end), asked, result))
    info = TraceInfo(
        trace_id=f"tr-{trace_id}",
        trace_location=TraceLocation.from_experiment_id(experiment),
        request_time=start // 1_000_000,
        state=TraceState.ERROR if row.get("failed") else TraceState.OK,
        request_preview=str(row["prompt"])[-250:],
        response_preview=str(row["completion"])[:250],
        execution_duration=(end - start) // 1_000_000,
        trace_metadata={"mlflow.sourceRun": run_id},
        tags={"mlflow.traceName": task, "task": task, "sample": str(row["id"])[:250], "key": run.id},
    )
    return info, spans


def _span(
    trace_id: str, number: int, name: str, kind: str, time: tuple[int, int], inputs: Any, outputs: Any
) -> Any:
    from mlflow.entities import Span

    attributes = {
        "mlflow.traceRequestId": f"tr-{trace_id}",
        "mlflow.spanType": kind,
        "mlflow.spanInputs": inputs,
        "mlflow.spanOutputs": outputs,
    }
    return Span.from_dict(
        {
            "trace_id": f"tr-{trace_id}",
            "span_id": f"{number:016x}",
            "parent_span_id": "" if number == 1 else f"{1:016x}",
            "name": name,
            "start_time_unix_nano": time[0],
            "end_time_unix_nano": time[1],
            "status": {"code": "STATUS_CODE_OK", "message": ""},
            "attributes": {key: json.dumps(value, ensure_ascii=False) for key, value in attributes.items()},
        }
    )
