"""The policy of when a call starts that `toolformer tune-policy` stores in a model's folder (decoding.policy=tuned)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from toolformer.decoding.settings import POLICIES, TUNED, Decoding, with_policy
from toolformer.errors import UserError
from toolformer.storage import atomic_write

STORED = "call_policy.json"


@dataclass(frozen=True)
class StoredPolicy:
    """A policy, and what it was chosen on."""

    policy: str
    value: float
    """An int for topk."""
    run: str
    """The id of the run that chose it."""
    development: Mapping[str, Sequence[str]]
    """By benchmark, the ids of the examples that it was chosen on."""
    by_tool: Mapping[str, float] = field(default_factory=dict)

    def store(self, model: str | Path) -> None:
        """Stores the policy in a model's folder, in place of one that it has."""
        atomic_write(Path(model) / STORED, f"{json.dumps(asdict(self))}\n".encode())

    @classmethod
    def load(cls, model: str | Path) -> "StoredPolicy":
        """The policy in a model's folder; UserError if there is none, or it cannot be read."""
        path = Path(model).expanduser() / STORED
        try:
            record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            policy = record["policy"]
            number = int if POLICIES[policy] == "k" else float
            by_tool = {str(tool): number(value) for tool, value in record.get("by_tool", {}).items()}
            development = dict(record.get("development", {}))
            return cls(policy, number(record["value"]), str(record.get("run", "")), development, by_tool)
        except OSError as error:
            raise UserError(
                f"decoding.policy=tuned: {model} has no {STORED}; `toolformer tune-policy` chooses a policy for a trained "
                "model, or name one: topk, bias or threshold"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise UserError(
                f"decoding.policy=tuned: {path} cannot be read ({error}); run `toolformer tune-policy` again"
            ) from error

    def chosen_on(self, task: str, ids: Iterable[str]) -> int:
        """How many of these examples of a benchmark it was chosen on."""
        return len(set(ids).intersection(self.development.get(task, ())))


def tuned(settings: Decoding, model: str | Path) -> Decoding:
    """The settings with the policy stored in a model's folder, where they ask for it; UserError if there is none."""
    if settings.policy != TUNED:
        return settings
    stored = StoredPolicy.load(model)
    return with_policy(settings, stored.policy, stored.value, stored.by_tool)
