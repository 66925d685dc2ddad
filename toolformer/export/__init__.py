"""Results of runs for others: C* as a data set, for TRL and as preferences; a trained model with its card.

Reads finished runs and changes none of them.
"""

from toolformer.export.dataset import export_dataset
from toolformer.export.formats import FORMATS
from toolformer.export.model import export_model

__all__ = ["FORMATS", "export_dataset", "export_model"]
