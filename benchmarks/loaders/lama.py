"""LAMA (paper, section 4.2.1): `id, family, text, answers`, `family` the relation and `text` a statement up to its mask.

Statements are kept if only closing punctuation follows their mask. Google-RE and T-REx facts are put into LAMA's templates,
as LAMA itself evaluates them; a fact counts once, however many sentences of evidence it has.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from toolformer.benchmarks.loaders.sources import (
    Placed,
    Row,
    Splits,
    collect,
    list_of,
    published,
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
    _, rows = published("lama_squad", metadata)

    def make(row: Row, place: str) -> Row | str:
        # The hub's copy has one row per sentence. No statement of the published set has more than one.
        sentences = [text_of(row, "masked_sentence", place)] if "masked_sentence" in row else None
        sentences = sentences or list_of(row, "masked_sentences", place, str)
        return _statement(row, place, " ".join(sentences), row.get("id"), "squad")

    return collect("lama_squad", rows, make, metadata)


def google_re(**metadata: Any) -> Splits:
    """LAMA Google-RE: 5,528 facts of three relations, as their templates."""
    from_file, rows = published("lama_google_re", metadata)
    rows = rows if from_file else facts(rows, "pred")

    def make(row: Row, place: str) -> Row | str:
        predicate = text_of(row, "pred", place)
        relation = next((name for name in TEMPLATES if name in predicate), None)
        if relation is None:
            raise UserError(
                f"{place}: field `pred` is {predicate!r}, none of {', '.join(TEMPLATES)}; fix the row"
            )
        statement = _filled(TEMPLATES[relation], text_of(row, "sub_label", place))
        return _statement(row, place, statement, _identity(row, relation, place), relation)

    return collect("lama_google_re", rows, make, metadata, by="family")


def trex(**metadata: Any) -> Splits:
    """LAMA T-REx: 34,039 facts of 41 relations, as their templates; the hub's copy has one row per evidence."""
    needed = ("predicate_id", "uuid", "sub_label", "obj_label", "template")
    from_file, rows = published("lama_trex", metadata, needed)
    name = "relation" if from_file else "predicate_id"
    rows = rows if from_file else facts(rows, name)

    def make(row: Row, place: str) -> Row | str:
        relation = text_of(row, name, place)
        statement = _filled(text_of(row, "template", place), text_of(row, "sub_label", place))
        return _statement(row, place, statement, _identity(row, relation, place), relation)

    return collect("lama_trex", rows, make, metadata, by="family")


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


def _identity(row: Row, relation: str, place: str) -> str:
    """A fact's uuid, or a name for those without one."""
    return str(row.get("uuid") or f"{relation} {text_of(row, 'sub_label', place)}")


def _statement(row: Row, place: str, statement: str, identity: Any, family: str) -> Row | str:
    answer = text_of(row, "obj_label", place)
    if not answer.strip():
        return "empty answer"
    text = until_mask(statement)
    # A statement that begins with its mask leaves nothing to complete.
    return {"id": identity, "family": family, "text": text, "answers": [answer]} if text else NOT_LAST


def facts(rows: Iterable[Placed], relation: str) -> Iterator[Placed]:
    """The first row of every fact, identified by relation and uuid, or else by its subject and object.

    `relation` names the field with the relation.
    """
    seen: set[tuple[str, str, str]] = set()
    for place, row in rows:
        family = text_of(row, relation, place)
        value = str(row.get("uuid") or text_of(row, "obj_label", place))
        key = (family, _identity(row, family, place), value)
        if key not in seen:
            seen.add(key)
            yield place, row
