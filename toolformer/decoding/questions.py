"""A generation request of lm-eval as models with tools take it, and their answers as they are recorded."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lm_eval.api.instance import Instance

from toolformer.data import Document
from toolformer.errors import UserError


@dataclass(frozen=True)
class Question:
    """All of a generation request that can change its answer."""

    prompt: str
    max_new_tokens: int
    stop: tuple[str, ...]
    switched_off: tuple[str, ...]
    date: str | None
    source_id: str | None

    def document(self) -> Document:
        """What the tools may know: the date, and the article that the example is made of."""
        date = datetime.date.fromisoformat(self.date) if self.date else None
        return Document(doc_id="", text=self.prompt, date=date, source_id=self.source_id)


def question_of(
    request: Instance, switched_off: Mapping[str, Collection[str]], clocks: frozenset[str], day: str
) -> Question:
    """A request as a question.

    Args:
        switched_off: by task, the tools that it may not use, by key.
        clocks: the tools that answer with a day where a document has no date of its own.
        day: that day.

    Raises:
        UserError: it asks for sampling or beams.
    """
    prompt, settings = request.args
    if settings.get("do_sample") or settings.get("temperature") or settings.get("num_beams", 1) != 1:
        raise UserError(
            f"{request.task_name}: generation_kwargs ask for sampling or beams; decoding is greedy"
        )
    off = frozenset(switched_off.get(request.task_name or "", ()))
    until: str | Sequence[str] = settings.get("until") or ()
    document = request.doc if isinstance(request.doc, Mapping) else {}
    return Question(
        prompt=prompt,
        max_new_tokens=int(settings.get("max_gen_toks") or settings.get("max_new_tokens") or 256),
        stop=(until,) if isinstance(until, str) else tuple(until),
        switched_off=tuple(sorted(off)),
        date=document.get("current_date") or (day if clocks - off else None),
        source_id=document.get("source_id"),
    )
