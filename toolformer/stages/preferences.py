"""The preferences of finished annotations (objective=kto and objective=dpo)."""

from collections.abc import Sequence

from toolformer.errors import UserError
from toolformer.results import Results, Run
from toolformer.stages.generate import read_dataset
from toolformer.training.preferences import Preference, find_preferences

_TEXTS = ("dataset_plain.parquet", "documents_without_calls.parquet")
"""The plain texts with a kept call, and those without (of a large corpus a sample of these)."""


def read_preferences(results: Results, runs: Sequence[Run], margin: float) -> list[Preference]:
    """The preferences of annotations, with `margin` in nats as in `find_preferences`. UserError if there are none."""
    found: list[Preference] = []
    for run in runs:
        texts = {row["doc_id"]: row["text"] for name in _TEXTS for row in read_dataset(results, run, name)}
        found += find_preferences(texts, read_dataset(results, run, "candidates.parquet"), margin)
    if not found:
        shown = " and ".join(run.id[:8] for run in runs)
        raise UserError(f"dataset: run {shown} kept no call and none harms; annotate more texts")
    return found
