"""Held-out documents, which are neither annotated nor trained on: a share of a corpus, or some texts of another one, chosen by
what they say; and which of them choose a checkpoint, and which are reported.

A text is held out of every corpus that has it, whatever its order, id and other texts; only the bounds on the number look
at the corpus.
"""

import heapq
import itertools
import math
from collections.abc import Collection, Iterable, Iterator

from toolformer.data.document import Document
from toolformer.data.sampling import hash64

LEAST, MOST = 5, 500
"""Documents held out at least, where a corpus has five times as many, and at most by default."""
DEVELOPMENT = 1000
"""Held-out texts that choose a checkpoint, at most (paper, appendix B)."""


def split(documents: Iterable[Document], share: float, most: int = MOST) -> Iterator[tuple[Document, bool]]:
    """Each document, in order, and whether it is held out.

    Those are held out whose hash lies in the lowest `share`; where they would be fewer than `LEAST` at the start of the
    corpus, those with the lowest hashes there. After `most` texts the rest is not held out, but for repetitions of these; of a
    single document nothing is.
    """
    if not share:
        yield from ((document, False) for document in documents)
        return
    remaining = iter(documents)
    start = [*itertools.islice(remaining, math.ceil(LEAST / share))]
    ranks = sorted(map(_rank, start))
    least = min(LEAST, math.ceil((len(start) - 1) / 4))
    bound = max(share, ranks[least - 1]) if least > 0 else -1.0
    held_out: set[float] = set()
    for number, document in enumerate(itertools.chain(start, remaining)):
        rank = _rank(document)
        is_low = rank <= (bound if number < len(start) else share)
        is_held_out = rank in held_out or (is_low and len(held_out) < most)
        if is_held_out:
            held_out.add(rank)
        yield document, is_held_out


def held_out(documents: Iterable[Document], share: float, most: int = MOST) -> list[Document]:
    """The documents that `split` holds out."""
    return [document for document, is_held_out in split(documents, share, most) if is_held_out]


def draw(documents: Iterable[Document], count: int | None, seed: int) -> list[Document]:
    """`count` of these documents at random by the seed, in their order; all of them if None."""
    if count is None:
        return [*documents]
    ranked = ((_draw_rank(document, seed), number, document) for number, document in enumerate(documents))
    return [document for _, _, document in sorted(heapq.nsmallest(count, ranked), key=lambda row: row[1])]


def parts(documents: Collection[Document], seed: int) -> tuple[list[Document], list[Document]]:
    """Held-out texts that choose a checkpoint, and those that are reported: half each, but at most `DEVELOPMENT` of the first.

    Drawn by the seed; equal texts are in one part. A single text is in both.
    """
    ranks = {document.text: _draw_rank(document, seed + 1) for document in documents}
    if len(ranks) < 2:
        return [*documents], [*documents]
    bound = sorted(ranks.values())[min(DEVELOPMENT, len(ranks) // 2) - 1]
    chooses = [document for document in documents if ranks[document.text] <= bound]
    return chooses, [document for document in documents if ranks[document.text] > bound]


def _draw_rank(document: Document, seed: int) -> int:
    return hash64(f"drawn {seed}/{document.text}")


def _rank(document: Document) -> float:
    """A number in [0, 1) that depends on the text alone."""
    return hash64(f"held out/{document.text}") / 2**64
