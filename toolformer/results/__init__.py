"""Results of steps in folders, one per run: `<root>/<stage>/<key>/` with `step.json`, `result.json` and its files."""

from toolformer.results.folder import Beginning, Dataset, Folder, Listener
from toolformer.results.run import Run
from toolformer.results.store import Damaged, Results

__all__ = ["Beginning", "Damaged", "Dataset", "Folder", "Listener", "Results", "Run"]
