"""What MLflow's pages show beside a run's parameters and metrics: its data sets, and traces of calls.

No stage reads any of it. Of a server, only data sets are copied there.
"""

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

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


def log_trace(
    store: Store,
    prompt: str,
    answer: str,
    calls: Sequence[tuple[str, str, str | None]],
    seconds: float,
    run_id: str = "",
) -> None:
    """Writes a trace of a completion that took `seconds` until now, and of the calls in it: (tool, input, result).

    How long a call took by itself is not known.
    """
    from mlflow.entities import Span, TraceInfo, TraceLocation, TraceState
    from mlflow.tracing.client import TracingClient

    experiment_id, ended = store.prepare(), time.time_ns()
    began = ended - int(1e9 * seconds)
    trace_id, root_id = f"tr-{secrets.token_hex(16)}", secrets.token_hex(8)

    def span(name: str, asked: str, answered: str | None, parent_id: str = root_id) -> Span:
        attributes = {
            "mlflow.traceRequestId": trace_id, "mlflow.spanType": "TOOL" if parent_id else "CHAIN",
            "mlflow.spanInputs": asked, "mlflow.spanOutputs": answered,
        }  # fmt: skip
        return Span.from_dict(
            {
                "trace_id": trace_id, "span_id": secrets.token_hex(8) if parent_id else root_id,
                "parent_span_id": parent_id, "name": name, "status": {"code": "OK", "message": ""}, "events": [],
                "start_time_unix_nano": ended if parent_id else began, "end_time_unix_nano": ended,
                "attributes": {key: json.dumps(value) for key, value in attributes.items()},
            }
        )  # fmt: skip

    spans = [span("complete", prompt, answer, parent_id=""), *(span(*call) for call in calls)]
    info = TraceInfo(
        trace_id, TraceLocation.from_experiment_id(experiment_id), began // 10**6, TraceState.OK,
        request_preview=prompt[:1000], response_preview=answer[:1000], execution_duration=int(1000 * seconds),
        trace_metadata={"mlflow.sourceRun": run_id} if run_id else {}, tags={"mlflow.traceName": "complete"},
    )  # fmt: skip
    with store.faults():
        client = TracingClient(store.uri)
        client.log_spans(experiment_id, spans)
        client.start_trace(info)
