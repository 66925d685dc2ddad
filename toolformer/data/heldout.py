"""Held-out documents: a share of a corpus that is neither annotated nor trained on, chosen by what its texts say.

A text is held out of every corpus that has it, whatever its order, id and other texts; only the bounds on the number look
at the corpus.
"""

import itertools
import math
from collections.abc import Iterable, Iterator

from toolformer.data.document import Document
from toolformer.data.sampling import hash64

LEAST, MOST = 5, 500
"""Documents held out at least, where a corpus has five times as many, and at most."""


def split(documents: Iterable[Document], share: float) -> Iterator[tuple[Document, bool]]:
    """Each document, in order, and whether it is held out.

    Those are held out whose hash lies in the lowest `share`; where they would be fewer than `LEAST` at the start of the
    corpus, those with the lowest hashes there. After `MOST` the rest is not held out; of a single document nothing is.
    """
    if not share:
        yield from ((document, False) for document in documents)
        return
    remaining = iter(documents)
    start = [*itertools.islice(remaining, math.ceil(LEAST / share))]
    ranks = sorted(map(_rank, start))
    least = min(LEAST, math.ceil((len(start) - 1) / 4))
    bound = max(share, ranks[least - 1]) if least > 0 else -1.0
    held_out = 0
    for number, document in enumerate(itertools.chain(start, remaining)):
        is_held_out = held_out < MOST and _rank(document) <= (bound if number < len(start) else share)
        held_out += is_held_out
        yield document, is_held_out


def _rank(document: Document) -> float:
    """A number in [0, 1) that depends on the text alone."""
    return hash64(f"held out/{document.text}") / 2**64
