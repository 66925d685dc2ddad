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
    match = re.fullmatch(rf"{SCHEME}([^/@]+)(?:/(\d+|latest)|@([^/@]+))", reference)
    if not match:
        raise UserError(
            f"model is {reference}; write {SCHEME}NAME/VERSION, {SCHEME}NAME/latest or {SCHEME}NAME@ALIAS"
        )
    name, number, alias = match.groups()
    with (tracker.server or tracker.store).faults() as client:
        versions = list(client.search_model_versions(f"name = '{name}'"))
        if alias:
            models = client.search_registered_models(filter_string=f"name = '{name}'")
            number = next((str(model.aliases.get(alias)) for model in models), None)
    known = {str(version.version): str(version.run_id) for version in versions}
    if number == "latest" and known:
        number = max(known, key=int)
    if number not in known:
        there = f"versions {', '.join(sorted(known, key=int))}" if known else "no version"
        raise UserError(f"model: {reference} is not in the registry, which has {there} of {name}")
    return tracker.get(known[str(number)])
