"""What MLflow's pages show beside a run's parameters and metrics: its data sets, its model, traces of calls.

No stage reads any of it. Of a server, only data sets are copied there.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toolformer.credentials import without_credentials
from toolformer.tracking.store import Store

DIGEST = 36
"""Characters that MLflow takes of a digest."""


@dataclass(frozen=True)
class Dataset:
    """Data that a run reads."""

    name: str
    digest: str
    """The same for the same content."""
    context: str
    """What it is read for: annotation, training, heldout or evaluation."""
    source: str
    """The file, folder or data set, as the configuration names it."""
    rows: int


def log_datasets(store: Store, run_id: str, datasets: Sequence[Dataset]) -> None:
    """Makes the data sets inputs of a run; again is the same as once."""
    from mlflow.entities import Dataset as Entity
    from mlflow.entities import DatasetInput, InputTag

    inputs = [
        DatasetInput(
            Entity(
                data.name[:500], data.digest[:DIGEST], "local",
                json.dumps({"uri": without_credentials(data.source)}),
                profile=json.dumps({"num_rows": data.rows}),
            ),
            [InputTag("mlflow.data.context", data.context)],
        )
        for data in datasets
    ]  # fmt: skip
    copy_datasets(store, run_id, inputs)


def copy_datasets(store: Store, run_id: str, inputs: Sequence[Any]) -> None:
    """Writes data sets as MLflow has them."""
    with store.faults() as client:
        client.log_inputs(run_id, inputs)


def log_model(store: Store, run_id: str, name: str, tags: dict[str, str]) -> str:
    """Makes what a run trained a logged model, once; returns its id. Its files stay where they are."""
    from mlflow.entities import LoggedModelOutput

    with store.faults() as client:
        run = client.get_run(run_id)
        if run.outputs and run.outputs.model_outputs:
            return str(run.outputs.model_outputs[0].model_id)
        model = client.create_logged_model(
            run.info.experiment_id, name, run_id, tags, model_type="toolformer"
        )
        client.finalize_logged_model(model.model_id, "READY")
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
        return str(model.model_id)


def use_model(store: Store, run_id: str, model_id: str) -> None:
    """Makes a logged model an input of a run."""
    from mlflow.entities import LoggedModelInput

    with store.faults() as client:
        client.log_inputs(run_id, models=[LoggedModelInput(model_id)])


@dataclass(frozen=True)
class Span:
    """A step of a trace: a completion, or a call of a tool in one."""

    name: str
    kind: str
    """MLflow's type: CHAIN or TOOL."""
    given: Any
    answer: Any
    began: int
    """In nanoseconds, as `time.time_ns` gives them."""
    ended: int
    failed: str = ""
    """Why there is no answer."""


def log_trace(store: Store, experiment: str, spans: Sequence[Span], run_id: str = "") -> None:
    """Writes a trace of a completion (the first span) and the calls in it."""
    from mlflow.entities import Span as Entity
    from mlflow.entities import TraceInfo, TraceLocation, TraceState
    from mlflow.tracing.client import TracingClient

    experiment_id = store.prepare(experiment)
    number, ids = secrets.token_hex(16), [secrets.token_hex(8) for _ in spans]
    rows = [
        Entity.from_dict(
            {
                "trace_id": f"tr-{number}", "span_id": own, "parent_span_id": "" if span is spans[0] else ids[0],
                "name": span.name, "start_time_unix_nano": span.began, "end_time_unix_nano": span.ended,
                "status": {"code": "ERROR" if span.failed else "OK", "message": span.failed}, "events": [],
                "attributes": {
                    "mlflow.traceRequestId": json.dumps(f"tr-{number}"),
                    "mlflow.spanType": json.dumps(span.kind),
                    "mlflow.spanInputs": json.dumps(span.given), "mlflow.spanOutputs": json.dumps(span.answer),
                },
            }
        )
        for span, own in zip(spans, ids, strict=True)
    ]  # fmt: skip
    root = spans[0]
    info = TraceInfo(
        f"tr-{number}", TraceLocation.from_experiment_id(experiment_id), root.began // 10**6, TraceState.OK,
        request_preview=str(root.given)[:1000], response_preview=str(root.answer)[:1000],
        execution_duration=(root.ended - root.began) // 10**6,
        trace_metadata={"mlflow.sourceRun": run_id} if run_id else {}, tags={"mlflow.traceName": root.name},
    )  # fmt: skip
    with store.faults():
        client = TracingClient(store.uri)
        client.log_spans(experiment_id, rows)
        client.start_trace(info)
