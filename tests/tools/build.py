"""Builders of the tests of tools."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tests.build import OTHER_DOCUMENT
from toolformer.data import Document
from toolformer.tools.retrieval.passages import Retriever

ARTICLES = {
    "Lighthouse": "A lighthouse is a tower with a bright lamp at its top. It warns ships of rocks and shallow water, "
    "and its keeper once lit the lamp by hand every evening.",
    "Windmill": "A windmill turns the force of the wind into work. Millers ground grain between two heavy stones, and "
    "in low country windmills pumped water out of the fields.",
    "Beekeeping": "Beekeeping is the care of honey bee colonies. A beekeeper takes honey and wax from the hives and "
    "feeds the bees with sugar water through a long winter.",
    "Harbour": "A harbour is sheltered water where ships lie at anchor. Many harbours have a lighthouse at the end of "
    "their mole and cranes along the quay.",
    "Compass": "A compass shows where north is. Its magnetic needle swings freely on a pin, and sailors have steered "
    "by it for almost a thousand years.",
    "Sundial": "A sundial tells the hour by the shadow of a rod. It is the oldest clock, and it is of no use at night "
    "or under clouds.",
}


class Hostile:
    """What an attacker puts into a pickle."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.target),))


def titles(retriever: Retriever, query: str, k: int = 1, document: Document = OTHER_DOCUMENT) -> list[str]:
    (found,) = retriever.retrieve([query], k, [document])
    return [passage.title for passage in found]


def save_atlas(path: Path, weights: Mapping[str, torch.Tensor], prefix: str = "reader.") -> Path:
    """A file laid out as Atlas saves it: reader and retriever, the training's settings and the states it went on with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {f"{prefix}{name}": tensor for name, tensor in weights.items()}
    # Saved by a library that did not yet know that it is of no use.
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    state[f"{prefix}{unused}"] = torch.zeros(16, 4)
    state["retriever.contriever.embeddings.word_embeddings.weight"] = torch.zeros(5, 4)
    settings = argparse.Namespace(n_context=40, device=torch.device("cpu"), train_data=["a"])
    scheduler = {"base_lrs": [1e-4], "last_epoch": 3, "lr_lambdas": [{}]}
    torch.save({"step": 3, "model": state, "optimizer": None, "scheduler": scheduler, "opt": settings}, path)
    return path
