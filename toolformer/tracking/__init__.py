"""Everything that knows MLflow: a tracked run for every stage, look-ups between stages, provenance, registry, UI.

Importing this imports no MLflow.
"""

from toolformer.tracking.run import EXPERIMENT, Run
from toolformer.tracking.run_logger import ActiveRun
from toolformer.tracking.store import StoreFault
from toolformer.tracking.tracker import Damaged, Tracker

__all__ = ["EXPERIMENT", "ActiveRun", "Damaged", "Run", "StoreFault", "Tracker"]
