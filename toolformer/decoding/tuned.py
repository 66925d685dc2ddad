"""The policy of when a call starts that is stored with a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from toolformer.decoding.settings import STORED, TUNED, Decoding, under
from toolformer.errors import UserError
from toolformer.storage import write_whole


def store(
    folder: Path, policy: str, value: float, run: str, development: Mapping[str, Sequence[str]]
) -> None:
    """Stores a policy with a model, in place of one that it has.

    Args:
        run: the id of the run that chose it.
        development: by benchmark, the ids of the examples that it was chosen on.
    """
    record = {"policy": policy, "value": value, "run": run, "development": development}
    write_whole(folder / STORED, f"{json.dumps(record)}\n".encode())


def chosen_on(model: str | Path, task: str, ids: Iterable[str]) -> int:
    """Of how many of these examples the answers chose the policy that is stored with a model."""
    record = json.loads((Path(model).expanduser() / STORED).read_text(encoding="utf-8"))
    return len(set(ids).intersection(record.get("development", {}).get(task, ())))


def tuned(settings: Decoding, model: str | Path) -> Decoding:
    """The settings with the policy that is stored in a model's folder, where they ask for it.

    Raises:
        UserError: none is stored, or it cannot be read.
    """
    if settings.policy != TUNED:
        return settings
    path = Path(model).expanduser() / STORED
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        policy, value = record["policy"], float(record["value"])
        return under(settings, policy, value)
    except OSError as error:
        raise UserError(
            f"decoding.policy=tuned: {model} has no {STORED}; `toolformer tune-policy` chooses a policy for a trained "
            "model, or name one: topk, bias or threshold"
        ) from error
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise UserError(
            f"decoding.policy=tuned: {path} cannot be read ({error}); give `toolformer tune-policy` again"
        ) from error
