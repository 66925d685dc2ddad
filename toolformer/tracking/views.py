"""Prepared views of MLflow's page of runs: scores as columns, and charts of scores by k.

A view is a tag of the experiment, in the form in which MLflow's own pages save one; their menu *Views* lists it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolformer.tracking.store import ORDER, Store

SCORES, BY_K = "toolformer-scores", "toolformer-by-k"
"""The ids of the views, which an address opens as `viewStateShareKey`."""
_TAG = "mlflow.sharedViewState."
_MAIN = ("Score/", "Perplexity/")
_SECTION = "scores"
_EVALUATIONS = {
    "searchFilter": "tags.stage = 'evaluate'",
    # Ordered by date, as MLflow does by itself, the runs of a sweep are folded away; by name, k=10 comes before k=3.
    "orderByKey": f"tags.`{ORDER}`",
    "orderByAsc": True,
}


def write_views(store: Store) -> None:
    """Writes the views of the benchmarks that the newest evaluations have. Any error of MLflow's."""
    runs = store.client.search_runs([store.experiment], "tags.stage = 'evaluate'", max_results=200)
    names = sorted({name for run in runs for name in run.data.metrics if name.startswith(_MAIN)})
    names.sort(key=lambda name: not name.startswith(_MAIN[0]))
    columns = [f"params.`{key}`" for key in ("decoding.k", "seed")] + [f"metrics.`{name}`" for name in names]
    section = {"uuid": _SECTION, "name": "Scores by k", "display": True, "isReordered": True}
    values = {
        name: {run.data.params.get("decoding.k") for run in runs if name in run.data.metrics}
        for name in names
    }
    # First the benchmarks that were asked with several k.
    charts = [_chart(name) for name in sorted(names, key=lambda name: -len(values[name]))]
    _write(store, SCORES, "Scores", {"selectedColumns": columns})
    _write(
        store,
        BY_K,
        "Scores by k",
        {
            "selectedColumns": columns,
            "compareRunCharts": charts,
            "compareRunSections": [{**section, "deleted": False, "isGenerated": False}],
            "runsHiddenMode": "SHOW_ALL",
            "isAccordionReordered": True,
        },
    )


def _chart(name: str) -> Mapping[str, Any]:
    return {
        "type": "SCATTER",
        "uuid": f"k {name}",
        "displayName": name,
        "metricSectionId": _SECTION,
        "xaxis": {"key": "decoding.k", "type": "PARAM"},
        "yaxis": {"key": name, "type": "METRIC"},
        "runsCountToCompare": 100,
        "deleted": False,
        "isGenerated": False,
    }


def _write(store: Store, key: str, name: str, state: Mapping[str, Any]) -> None:
    text = json.dumps({**_EVALUATIONS, **state})
    view = {"name": name, "createdAt": 0, "updatedAt": 0, "state": text}
    store.client.set_experiment_tag(store.experiment, f"{_TAG}{key}", json.dumps(view))
