"""One traced decode: each prompt's completion under every policy of when a call starts.

With one call per input, a completion is decided by the position where its call starts: before it no policy has done
anything, after it none can. So a prompt is continued without a call, with rank, margin and probability of the start
token at every position, and again from each position that is the first at which some policy within reach starts a call.
For policies with a value for each tool the name of every such call is written too, and the positions are each tool's first.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from toolformer.decoding.batch import Row
from toolformer.decoding.completion import Completer, Completion, Task
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.policy import RULES, Policy
from toolformer.decoding.recording import Question
from toolformer.errors import UserError
from toolformer.lm.memory import BatchSize
from toolformer.tools.base import Tool

NO_OTHERS: Mapping[str, float] = {}
"""No tool has a value of its own."""
REACH = {"topk": 10.0, "bias": 5.0, "threshold": 0.01}
"""By policy, the default value up to which (of the threshold: down to which) its completions are traced."""


@dataclass(frozen=True)
class Trace(Completion):
    """A prompt's completion without a call, and what a call makes of it."""

    measures: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By policy, its measure at each position: before each token, and before the end where the model chose it."""
    called: Mapping[int, Completion] = field(default_factory=dict)
    """By position, the completion with a call started there, or taken back there."""
    named: Mapping[int, str] = field(default_factory=dict)
    """By position, the key of the tool that a call started there names, where that was traced."""

    @property
    def without(self) -> Completion:
        """The completion without a call."""
        return Completion(self.text, self.plain, tokens=self.tokens, prompt_cut=self.prompt_cut)

    @property
    def completions(self) -> list[Completion]:
        """The completion without a call, and those with one in the order of their positions."""
        return [self.without, *(self.called[position] for position in sorted(self.called))]

    def number(self, policy: str, value: float, by_tool: Mapping[str, float] = NO_OTHERS) -> int:
        """Which of `completions` decoding with `decoding.policy`, its value and `decoding.by_tool` gives.

        ValueError if the value is out of the trace's reach.
        """
        for position, measure in enumerate(self.measures.get(policy, ())):
            if RULES[policy].accepts(measure, by_tool.get(self.named.get(position, ""), value)):
                if position not in self.called:
                    raise ValueError(
                        f"{policy} {value} starts a call at position {position}, out of the trace's reach"
                    )
                return 1 + sorted(self.called).index(position)
        return 0

    def under(self, policy: str, value: float, by_tool: Mapping[str, float] = NO_OTHERS) -> Completion:
        """The completion that decoding with these gives; ValueError as `number`."""
        return self.completions[self.number(policy, value, by_tool)]

    @classmethod
    def from_dict(cls, answer: Mapping[str, Any]) -> Trace:
        """The inverse of `dataclasses.asdict`, through JSON too."""
        called = {
            int(position): Completion.from_dict(fields) for position, fields in answer["called"].items()
        }
        named = {int(position): tool for position, tool in answer["named"].items()}
        return cls(**{**answer, "calls": (), "called": called, "named": named})


class Measures(Policy):
    """Observes decoding: measures the start token wherever a call may start, and starts calls in branches only.

    Args:
        rows: the indices of the rows that are continued without a call; all others are branches.
        reach: the policies to trace, each with the value up to which (of the threshold: down to which) it is traced.
        tools: by key, those whose names are to be traced; without any, none is.
    """

    def __init__(self, rows: Collection[int], reach: Mapping[str, float], tools: Mapping[str, Tool]) -> None:
        self.measured: dict[int, list[list[float]]] = {index: [] for index in rows}
        """By row, what each policy measures at each position."""
        self.named: dict[int, dict[int, str]] = {index: {} for index in rows}
        """By row and position, the key of the tool that a call would name."""
        self._reach, self._keys = reach, {tool.name: key for key, tool in tools.items()}

    def starts_call(self, logits: torch.Tensor, start_id: int, rows: Sequence[Row]) -> torch.Tensor:
        """Branches start their call at once; other rows start one only to find out which tool it names."""
        measured = [RULES[policy].measure(logits, start_id).float() for policy in self._reach]
        starts = [row.index not in self.measured for row in rows]
        for n, (row, values) in enumerate(zip(rows, torch.stack(measured, -1).tolist(), strict=True)):
            if not starts[n]:
                self.measured[row.index].append(values)
                starts[n] = bool(self._keys) and any(self._accepted(values))
        return torch.tensor(starts, device=logits.device)

    def keeps_call(self, tool: str, start_id: int, row: Row) -> bool:
        if row.index not in self.measured:
            return True
        self.named[row.index][len(self.measured[row.index]) - 1] = self._keys[tool]
        return False

    def _accepted(self, values: Sequence[float]) -> list[bool]:
        """By policy, whether it starts a call with some value within reach."""
        limits = zip(self._reach.items(), values, strict=True)
        return [RULES[policy].accepts(value, limit) for (policy, limit), value in limits]

    def first_positions(self, row: int) -> Iterator[int]:
        """Where a policy starts its call under some value within reach: only a new best can be the first."""
        best: dict[tuple[str, str | None], float] = {}
        for position, values in enumerate(self.measured[row]):
            tool = self.named[row].get(position)
            improved = {
                (policy, tool): value
                for policy, value, accepted in zip(self._reach, values, self._accepted(values), strict=True)
                if accepted
                and not ((policy, tool) in best and RULES[policy].accepts(best[policy, tool], value))
            }
            best.update(improved)
            if improved:
                yield position

    def take(self, row: int) -> dict[str, Any]:
        """The fields of a row's trace that were observed."""
        by_policy = map(list, zip(*self.measured.pop(row), strict=True))
        return {"measures": dict(zip(self._reach, by_policy, strict=False)), "named": self.named.pop(row)}


@dataclass(eq=False)
class Tracer(Completer[Trace]):
    """Traces prompts with a decoder, whose own policy plays no part."""

    decoder: Decoder
    reach: Mapping[str, float] = field(default_factory=lambda: dict(REACH))
    """The policies to trace, each with the value up to which (of the threshold: down to which) it is traced."""
    of_each_tool: bool = False
    """Whether policies with a value for each tool are traced too."""

    def __post_init__(self) -> None:
        if self.decoder.max_calls != 1:
            reason = "traces distinguish policies by where their only call starts; leave it at 1"
            raise UserError(f"decoding.max_calls is {self.decoder.max_calls}: {reason}")
        names = sorted(tool.name for tool in self.decoder.tools.values())
        alike = any(other.startswith(name) for name, other in itertools.pairwise(names))
        if self.of_each_tool and (alike or not self.decoder.constrain_tool_name):
            raise UserError(
                "a value for each tool: the name that a call will have must be certain before its input; set "
                "decoding.constrain_tool_name=true, and leave out tools whose names begin others'"
            )

    def cache_key(self, question: Question) -> Any:
        """As `Decoder.cache_key`."""
        return [self.decoder.cache_key(question), dict(self.reach), self.of_each_tool]

    @functools.cached_property
    def size(self) -> BatchSize:
        """The decoder's."""
        return self.decoder.size

    def batches(self, task: Task) -> Generator[dict[int, Trace], None, None]:
        """See `Completer.complete`."""
        rows, writer = self.decoder.begin(task)
        tools = self.decoder.tools if self.of_each_tool else {}
        observed = Measures(range(len(rows)), self.reach, tools)
        queue = self.decoder.queue(rows, task)
        numbers = itertools.count(len(rows))
        without: dict[int, Completion] = {}
        called: dict[int, dict[int, Completion | None]] = {}
        owners: dict[int, tuple[int, int]] = {}  # of a branch: its prompt, and where its call starts
        for ended in self.decoder.run(queue, writer, observed):
            for row in ended:
                completion = writer.completion(row)
                prompt, position = owners.pop(row.index, (row.index, None))
                if position is None:
                    without[prompt] = completion
                    called[prompt] = dict.fromkeys(observed.first_positions(prompt))
                    branches = [_branch(row, start, next(numbers)) for start in called[prompt]]
                    owners |= {branch.index: (prompt, branch.tokens) for branch in branches}
                    queue.add(branches)
                    continue
                if completion.failed:  # taken back: the text is the one without a call
                    failure = ("failed", "fault", "results_begun", "calls_in_calls")
                    completion = replace(
                        without[prompt], **{name: getattr(completion, name) for name in failure}
                    )
                called[prompt][position] = completion
            done = [prompt for prompt, positions in called.items() if None not in positions.values()]
            yield {n: _trace(without.pop(n), called.pop(n), observed.take(n)) for n in done}


def _trace(
    without: Completion, called: Mapping[int, Completion | None], observed: Mapping[str, Any]
) -> Trace:
    known = {position: completion for position, completion in called.items() if completion}
    fault = any(completion.fault for completion in known.values())
    return Trace(**{**vars(without), "fault": fault, "called": known, **observed})


def _branch(row: Row, position: int, index: int) -> Row:
    """A row that repeats one that is done up to a position, and starts a call there."""
    written = row.written[:position]
    return Row(
        index, row.document, row.context, row.context + written, written=written, tokens=position,
        prompt_cut=row.prompt_cut,
    )  # fmt: skip
