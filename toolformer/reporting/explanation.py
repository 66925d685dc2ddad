"""Output of `toolformer explain`: why answers are right or wrong, or where an annotation's yield is lost."""

from toolformer.reporting import annotation_tables, reader
from toolformer.reporting.candidate_stats import leaking, misses
from toolformer.reporting.ladder import ladder
from toolformer.reporting.table import Content
from toolformer.results import Results, Run


def explanation(results: Results, run: Run) -> Content:
    """The tables of an evaluation with oracle conditions, or of an annotation. UserError if its files cannot be read."""
    if run.stage == "generate":
        annotation = reader.annotation_of(results, run)
        tables = [annotation_tables.lost(annotation), annotation_tables.nearest(misses(annotation))]
        tables += [annotation_tables.leaking(leaks)] if (leaks := leaking(annotation)) else []
    else:
        tables = [ladder(reader.explained_tasks(run))]
    details = ", ".join(filter(None, (run.id[:8], str(run.facts.get("dtype", "")))))
    return Content(f"{run.name} ({details})", tables)
