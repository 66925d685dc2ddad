"""MLflow integration: a listener that logs runs live, the same for runs in folders, and the UI.

It decides nothing: results are folders (`toolformer.results`). Importing this imports no MLflow.
"""

from toolformer.tracking.logger import MlflowLogger
from toolformer.tracking.mlflow_run import log_run
from toolformer.tracking.store import Store

__all__ = ["MlflowLogger", "Store", "log_run"]
