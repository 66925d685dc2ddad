"""Results of runs in the formats of others: C* for trainers, a trained model with its card, and both on the Hub.

Reads finished runs and changes none of them.
"""

from toolformer.export.dataset import export_dataset
from toolformer.export.formats import FORMATS
from toolformer.export.model import export_model

__all__ = ["FORMATS", "export_dataset", "export_model"]
