"""Results of steps in folders, one per run: `<root>/<stage>/<key>/` with `step.json`, `result.json` and its files."""

from toolformer.results.folder import Dataset, Folder, Listener, RunInfo
from toolformer.results.run import Run
from toolformer.results.store import Damaged, Results

__all__ = ["Damaged", "Dataset", "Folder", "Listener", "Results", "Run", "RunInfo"]
