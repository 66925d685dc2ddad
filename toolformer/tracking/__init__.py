"""MLflow integration: a listener that logs runs live, copies of folders to and from a server, the UI.

It decides nothing: results are folders (`toolformer.results`). Importing this imports no MLflow.
"""

from toolformer.tracking.logger import MlflowLogger, log_pages
from toolformer.tracking.store import Refused, Store, StoreFault

__all__ = ["MlflowLogger", "Refused", "Store", "StoreFault", "log_pages"]
