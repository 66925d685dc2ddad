"""Builders of the tests of tools."""

import os
from pathlib import Path
from typing import Any

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
