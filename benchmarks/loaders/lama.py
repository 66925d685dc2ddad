"""LAMA (paper, section 4.2.1): `id, family, text, answers`, `family` the relation and `text` a statement up to its mask.

Statements are kept if only closing punctuation follows their mask. Google-RE and T-REx facts are put into LAMA's templates,
as LAMA itself evaluates them; a fact counts once, however many sentences of evidence it has.
"""

import re
from typing import Any

from toolformer.benchmarks.loaders.published import published
from toolformer.benchmarks.loaders.sources import (
    Row,
    Splits,
    collect,
    list_of,
    text_of,
)
from toolformer.errors import UserError

MASK = "[MASK]"
NOT_LAST = "mask not last"

TEMPLATES = {
    "place_of_birth": "[X] was born in [Y] .",
    "date_of_birth": "[X] (born [Y]).",
    "place_of_death": "[X] died in [Y] .",
}
"""LAMA's templates of Google-RE (its scripts/run_experiments.py); T-REx brings its own in the data."""

_CLOSING = r"[\s.,;:!?\u2026)\]}\"'\u2019\u201d\u00bb]*"


def squad(**metadata: Any) -> Splits:
    """LAMA SQuAD: 305 statements written from questions of SQuAD."""

    def make(row: Row, location: str) -> Row | str:
        sentences = list_of(row, "masked_sentences", location, str)
        return _statement(row, location, " ".join(sentences), row.get("id"), "squad")

    return collect("lama_squad", published("lama_squad", metadata), make, metadata)


def google_re(**metadata: Any) -> Splits:
    """LAMA Google-RE: 5,528 facts of three relations, as their templates."""

    def make(row: Row, location: str) -> Row | str:
        predicate = text_of(row, "pred", location)
        relation = next((name for name in TEMPLATES if name in predicate), None)
        if relation is None:
            raise UserError(
                f"{location}: field `pred` is {predicate!r}, none of {', '.join(TEMPLATES)}; fix the row"
            )
        statement = _filled(TEMPLATES[relation], text_of(row, "sub_label", location))
        return _statement(row, location, statement, _identity(row, relation, location), relation)

    return collect("lama_google_re", published("lama_google_re", metadata), make, metadata, by="family")


def trex(**metadata: Any) -> Splits:
    """LAMA T-REx: 34,039 facts of 41 relations, as their templates."""

    def make(row: Row, location: str) -> Row | str:
        relation = text_of(row, "relation", location)
        statement = _filled(text_of(row, "template", location), text_of(row, "sub_label", location))
        return _statement(row, location, statement, _identity(row, relation, location), relation)

    return collect("lama_trex", published("lama_trex", metadata), make, metadata, by="family")


def until_mask(statement: str, mask: str = MASK) -> str | None:
    """The text before a mask that only closing punctuation follows, without trailing blanks; None if anything else does.

    >>> until_mask("Ada was born in [MASK] ."), until_mask("Ada (born [MASK])."), until_mask("Ada is [MASK] citizen .")
    ('Ada was born in', 'Ada (born', None)

    Of several masks the last one counts, the others stay (three statements of LAMA SQuAD have two).
    """
    before, found, after = statement.rpartition(mask)
    return before.rstrip() if found and re.fullmatch(_CLOSING, after) else None


def _filled(template: str, subject: str) -> str:
    # The subject last: nothing in it may count as a slot.
    return template.replace("[Y]", MASK).replace("[X]", subject)


def _identity(row: Row, relation: str, location: str) -> str:
    """A fact's uuid, or a name for those without one."""
    return str(row.get("uuid") or f"{relation} {text_of(row, 'sub_label', location)}")


def _statement(row: Row, location: str, statement: str, identity: Any, family: str) -> Row | str:
    answer = text_of(row, "obj_label", location)
    if not answer.strip():
        return "empty answer"
    text = until_mask(statement)
    # A statement that begins with its mask leaves nothing to complete.
    return {"id": identity, "family": family, "text": text, "answers": [answer]} if text else NOT_LAST
