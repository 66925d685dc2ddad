"""Trained models in MLflow's model registry, the server's where `tracking.uri` names one: a version for each train run.

The models themselves stay in their folders.
"""

import re

from toolformer.errors import UserError
from toolformer.tracking import Run, Tracker

NAMES = {"augmented": "toolformer", "plain": "toolformer-cc"}
"""The registered model of each kind of training data: Toolformer, and the baseline M + CC."""
SCHEME = "models:/"


def resolve(tracker: Tracker, reference: str) -> Run:
    """The train run behind `models:/NAME/VERSION`, `models:/NAME/latest` or `models:/NAME@ALIAS`; UserError if none."""
    if not re.fullmatch(rf"{SCHEME}[^/@]+(/\d+|/latest|@[^/@]+)", reference):
        raise UserError(f"model is {reference}; write {SCHEME}NAME/VERSION, NAME/latest or NAME@ALIAS")
    with (tracker.server or tracker.store).faults() as client:
        from mlflow.store.artifact.utils.models import get_model_name_and_version

        run_id = client.get_model_version(*get_model_name_and_version(client, reference)).run_id
    return tracker.get(run_id)
