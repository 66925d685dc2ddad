"""The published rows of a benchmark, in the one layout that loaders read: that of a data folder.

Rows of the hub are converted to it here, whether a loader reads the hub or `toolformer data get` writes a data folder. Fields
that loaders need get the layout's names, other fields stay as they are. Nothing is filtered: loaders drop what they cannot use,
and say so.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from toolformer.benchmarks.declared import data_files, declared
from toolformer.benchmarks.loaders.sources import (
    Placed,
    Row,
    data_folder,
    find_file,
    from_hub,
    list_of,
    rows_of,
    text_of,
    value_of,
)

Conversion = Callable[[Iterable[Placed]], Iterator[Placed]]


def published(task: str, metadata: Mapping[str, Any]) -> Iterator[Placed]:
    """The rows of a benchmark's own file in the data folder that `metadata` names, or of its data set on the hub.

    The pin in `metadata` goes before that of the task's file.
    """
    if folder := data_folder(metadata):
        return rows_of(find_file(folder, task, data_files(task)[0]))
    benchmark = declared(task)
    return converted(task, from_hub(task, metadata.get("hub", benchmark.hub), benchmark.columns))


def of_another(task: str, metadata: Mapping[str, Any]) -> Iterator[Placed]:
    """The rows of another benchmark than the one that `metadata` belongs to."""
    return published(task, {**metadata, "hub": declared(task).hub})


def converted(task: str, rows: Iterable[Placed]) -> Iterator[Placed]:
    """Rows of a benchmark's data set on the hub as rows of a data folder."""
    return CONVERSIONS[declared(task).hub.get("convert", "unchanged")](rows)


def unchanged(rows: Iterable[Placed]) -> Iterator[Placed]:
    """The rows as they are."""
    return iter(rows)


def problems(rows: Iterable[Placed]) -> Iterator[Placed]:
    """SVAMP, ASDiv: field names in lower case, and an answer in digits alone as a number, as SVAMP's authors publish it."""
    for location, row in rows:
        lower = {name.lower(): value for name, value in row.items()}
        answer = str(value_of(lower, "answer", location))
        numeric = float(answer) if re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", answer) else answer
        yield location, {**lower, "answer": numeric}


def mawps(rows: Iterable[Placed]) -> Iterator[Placed]:
    """MAWPS: `Question`, `Numbers` and `Answer` of the hub's copy, whose questions have masks for numbers."""
    for location, row in rows:
        lower = {name.lower(): value for name, value in row.items()}
        yield location, {**lower, "solutions": [value_of(lower, "answer", location)]}


def questions(rows: Iterable[Placed]) -> Iterator[Placed]:
    """WebQuestions, NQ, TriviaQA: every alias is an answer, in the published order."""
    for location, row in rows:
        identity = row.get("id", row.get("question_id"))
        answers = list(dict.fromkeys(_answers(row, location)))
        question = {"question": text_of(row, "question", location), "answers": answers}
        yield location, question if identity is None else {"id": identity, **question}


def _answers(row: Row, location: str) -> list[str]:
    """`answers`; NQ's `answer`, and TriviaQA's value and aliases, as written and as normalised by its authors."""
    answer = row.get("answer")
    if not isinstance(answer, dict):
        return list_of(row, "answer" if "answer" in row else "answers", location, str)
    aliases = (list_of(answer, name, location, str) for name in ("aliases", "normalized_aliases"))
    return [text_of(answer, "value", location), *(alias for several in aliases for alias in several)]


def lama_squad(rows: Iterable[Placed]) -> Iterator[Placed]:
    """LAMA SQuAD: the list of sentences that the authors publish, from a row per sentence (no statement has more than one)."""
    for location, row in rows:
        sentence = text_of(row, "masked_sentence", location)
        yield location, {**_without(row, "masked_sentence"), "masked_sentences": [sentence]}


def google_re(rows: Iterable[Placed]) -> Iterator[Placed]:
    """LAMA Google-RE: one row per fact, from one per sentence."""
    return ((location, _without(row, "masked_sentence")) for location, row in _facts(rows, "pred"))


def trex(rows: Iterable[Placed]) -> Iterator[Placed]:
    """LAMA T-REx: one row per fact, from one per sentence of evidence."""
    for location, row in _facts(rows, "predicate_id"):
        fact = _without(row, "predicate_id", "sub_surface", "obj_surface", "masked_sentence")
        yield location, {"relation": row["predicate_id"], **fact, "relation_label": row.get("label")}


def _facts(rows: Iterable[Placed], relation: str) -> Iterator[Placed]:
    """The first row of every fact, identified by relation and uuid, or else by its subject and object.

    `relation` names the field with the relation.
    """
    seen: set[tuple[str, str, str]] = set()
    for location, row in rows:
        family, subject = text_of(row, relation, location), text_of(row, "sub_label", location)
        value = str(row.get("uuid") or text_of(row, "obj_label", location))
        key = (family, str(row.get("uuid") or subject), value)
        if key not in seen:
            seen.add(key)
            yield location, row


def wikitext(rows: Iterable[Placed]) -> Iterator[Placed]:
    """WikiText: an article per row, from a line per row.

    An article begins at a heading of the first level between blank lines: without them, broken formulas (" = 1 henry = ") would
    begin articles too.
    """
    lines = [text_of(row, "text", location) for location, row in rows]
    lines = [line if line.endswith("\n") else line + "\n" for line in lines]
    starts = [
        n
        for n, line in enumerate(lines)
        if re.fullmatch(r" = [^=].* = \n", line)
        and (n == 0 or not lines[n - 1].strip())
        and (n + 1 == len(lines) or not lines[n + 1].strip())
    ]
    for n, end in enumerate([*starts[1:], len(lines)] if lines else []):
        text = "".join(lines[0 if n == 0 else starts[n] : end])
        yield f"article {n + 1}", {"article": n, "text": text}


def passages(rows: Iterable[Placed]) -> Iterator[Placed]:
    """MLQA, XQuAD: answers as a list of objects, as published, from an object of lists."""
    for location, row in rows:
        answers = value_of(row, "answers", location)
        texts = list_of(answers, "text", location, str)
        starts = answers.get("answer_start") or [None] * len(texts)
        pairs = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
        fields = {name: text_of(row, name, location) for name in ("id", "context", "question")}
        yield location, {**fields, "answers": pairs}


def _without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


CONVERSIONS: Mapping[str, Conversion] = {
    convert.__name__: convert
    for convert in (unchanged, problems, mawps, questions, lama_squad, google_re, trex, wikitext, passages)
}
"""By the name that a task file gives in `hub.convert`."""
