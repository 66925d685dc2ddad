"""A small encyclopedia of our own and a cache of its own; no downloads."""

import json
from pathlib import Path

import pytest

from toolformer.tools.retrieval.bm25 import BM25

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


@pytest.fixture
def articles_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLFORMER_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "articles.json"
    rows = [{"title": title, "extract": text} for title, text in ARTICLES.items()]
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


@pytest.fixture
def retriever(articles_file: Path) -> BM25:
    return BM25(str(articles_file))
