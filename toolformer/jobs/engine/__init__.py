"""Several workers share the questions of an evaluation."""

from toolformer.jobs.engine.pool import check_engine, is_pooled

__all__ = ["check_engine", "is_pooled"]
