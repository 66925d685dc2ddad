"""`evaluation.samples`: the ids of the examples that an evaluation asks."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from toolformer.errors import UserError

SampleIds = dict[str, list[str]] | list[str] | None
"""Ids of examples, by benchmark or for all; None for all examples."""


def sample_ids(samples: Any) -> SampleIds:
    """`evaluation.samples` as ids: a list, a mapping from benchmark to list, or a file that holds either.

    UserError if there are none.
    """
    if samples is None:
        return None
    content, key = samples, "evaluation.samples"
    try:
        if isinstance(samples, str):
            key = f"{key}: {samples}"
            text = Path(samples).expanduser().read_text(encoding="utf-8-sig").strip()
            content = json.loads(text) if text[:1] in ("[", "{") else [*map(str.strip, text.splitlines())]
        adapter: TypeAdapter[Any] = TypeAdapter(dict[str, list[str | int]] | list[str | int])
        ids = adapter.validate_python(content)
    except ValidationError as error:
        raise UserError(
            f"{key} must be a list of ids, a mapping from benchmark to ids, or a file with either"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{key} cannot be read as ids ({error}); name a file, or list the ids") from error
    if not ids:
        raise UserError(f"{key} holds no ids; leave it out (null) for all examples")
    if isinstance(ids, list):
        return _sorted(ids)
    return {task: _sorted(task_ids) for task, task_ids in ids.items()}


def _sorted(ids: Sequence[str | int]) -> list[str]:
    return sorted({str(name) for name in ids} - {""})
