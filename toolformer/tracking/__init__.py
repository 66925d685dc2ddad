"""Everything that knows MLflow: a tracked run for every stage, look-ups between stages.

A store is made ready under a lock between processes before anything is logged, and an interrupted stage goes on in its
own run. A fault of a local store ends in one `UserError`; what a server does not take is kept in journals, and sent
later. Importing this imports no MLflow.
"""

from __future__ import annotations

from toolformer.tracking.active import ActiveRun
from toolformer.tracking.run import Run
from toolformer.tracking.store import NotFound, StoreFault
from toolformer.tracking.tracker import EXPERIMENT, Tracker

__all__ = ["EXPERIMENT", "ActiveRun", "NotFound", "Run", "StoreFault", "Tracker"]
