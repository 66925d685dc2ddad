"""One way to use several workers: a job's shards, of texts or of questions, are claimed and done by one pool."""

from toolformer.jobs.engine.annotating import Progress, annotate
from toolformer.jobs.engine.plan import HELD_OUT, Plan
from toolformer.jobs.engine.pool import is_pooled
from toolformer.jobs.engine.ray import check_engine

__all__ = ["HELD_OUT", "Plan", "Progress", "annotate", "check_engine", "is_pooled"]
