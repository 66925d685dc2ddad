"""One traced decode: each prompt's completion under every policy of when a call starts.

With one call an input, a completion is decided by the place where its call starts: before it no policy has done
anything, behind it none can. So a prompt is continued without a call, with rank, margin and probability of the start
token at every place, and once more from each place that is the first at which some policy within reach starts a call.
For policies with a value for each tool the name of every such call is written too, and the places are each tool's first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from toolformer.data import Document
from toolformer.decoding.batch import Queue, Row
from toolformer.decoding.call_state import Completion
from toolformer.decoding.decoder import MEASURES, Decoder, fires
from toolformer.errors import UserError

NO_OTHERS: Mapping[str, float] = {}
"""No tool has a value of its own."""
REACH = {"topk": 10.0, "bias": 5.0, "threshold": 0.01}
"""By policy, the value up to which (of the threshold: down to which) its completions are traced, unless others are asked."""


@dataclass(frozen=True)
class Trace(Completion):
    """A prompt's completion without a call, and what a call makes of it."""

    measures: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By policy, what it goes by at each place: before each token, and before the end where the model chose it."""
    called: Mapping[int, Completion] = field(default_factory=dict)
    """By place, the completion with a call started there, or taken back there."""
    named: Mapping[int, str] = field(default_factory=dict)
    """By place, the key of the tool that a call started there names, where it was asked for."""

    @property
    def without(self) -> Completion:
        """The completion without a call."""
        return Completion(self.text, self.plain, tokens=self.tokens, prompt_cut=self.prompt_cut)

    @property
    def completions(self) -> list[Completion]:
        """The completion without a call, and those with one in the order of their places."""
        return [self.without, *(self.called[place] for place in sorted(self.called))]

    def number(self, policy: str, value: float, by_tool: Mapping[str, float] = NO_OTHERS) -> int:
        """Which of `completions` decoding with `decoding.policy`, its value and `decoding.by_tool` gives.

        ValueError if the value is out of the trace's reach.
        """
        measured = self.measures.get(policy, ())
        limits = (by_tool.get(self.named.get(place, ""), value) for place in range(len(measured)))
        fired = (fires(policy, *pair) for pair in zip(measured, limits, strict=True))
        place = next((place for place, starts in enumerate(fired) if starts), None)
        if place is None:
            return 0
        if place not in self.called:
            raise ValueError(f"{policy} {value} starts a call at place {place}, out of the trace's reach")
        return 1 + sorted(self.called).index(place)

    def under(self, policy: str, value: float, by_tool: Mapping[str, float] = NO_OTHERS) -> Completion:
        """The completion that decoding with these gives; ValueError as `number`."""
        return self.completions[self.number(policy, value, by_tool)]

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Trace:
        """A trace from its fields as JSON has them."""
        called = {int(place): Completion.read(one) for place, one in answer["called"].items()}
        named = {int(place): tool for place, tool in answer["named"].items()}
        return cls(**{**answer, "calls": (), "called": called, "named": named})


@dataclass(eq=False)
class TracingDecoder(Decoder):
    """A decoder that traces; the policy of its own settings plays no part."""

    reach: Mapping[str, float] = field(default_factory=lambda: dict(REACH))
    """The policies to trace, each with the value up to which (of the threshold: down to which) it is traced."""
    of_each_tool: bool = False
    """Whether policies with a value for each tool are traced too."""

    def __post_init__(self) -> None:
        if self.max_calls != 1:
            reason = "a traced decode tells policies apart by where their only call starts: leave it at 1"
            raise UserError(f"decoding.max_calls is {self.max_calls}; {reason}")
        names = sorted(tool.name for tool in self.tools.values())
        alike = any(other.startswith(name) for name, other in itertools.pairwise(names))
        if self.of_each_tool and (alike or not self.constrain_tool_name):
            raise UserError(
                "a value for each tool: the name that a call will have must be certain before its input; set "
                "decoding.constrain_tool_name=true, and leave out tools whose names begin others'"
            )
        self._measured: dict[int, list[list[float]]] = {}
        """Of the rows that are continued without a call, by index: what each policy goes by at each place."""
        self._named: dict[int, dict[int, str]] = {}
        """Of the same rows: by place, the key of the tool that a call would name."""

    def trace(
        self,
        prompts: Sequence[str],
        documents: Sequence[Document] | None = None,
        *,
        max_new_tokens: int,
        stop: Sequence[str] = (),
        allowed: Collection[str] | None = None,
        on_batch: Callable[[list[int], list[Trace]], None] | None = None,
    ) -> list[Trace]:
        """The trace of each prompt; the arguments are those of `complete`."""
        rows, writer, tries = self._begin(prompts, documents, max_new_tokens, stop, allowed)
        self._measured = {row.index: [] for row in rows}
        self._named = {row.index: {} for row in rows}
        queue = Queue(self.language_model, rows, self.batch_size)
        numbers = itertools.count(len(prompts))
        without: dict[int, Completion] = {}
        called: dict[int, dict[int, Completion | None]] = {}
        owners: dict[int, tuple[int, int]] = {}
        """Of a row with a call: its prompt, and the place where the call starts."""
        traces: dict[int, Trace] = {}
        for ended in self._run(queue, writer, tries):
            whole: list[int] = []
            for row in ended:
                completion = writer.completion(row)
                prompt, place = owners.pop(row.index, (row.index, None))
                if place is None:
                    without[prompt] = completion
                    places = list(self._first_places(prompt))
                    called[prompt] = dict.fromkeys(places)
                    branches = [_branch(row, place, next(numbers)) for place in places]
                    owners |= {branch.index: (prompt, branch.tokens) for branch in branches}
                    queue.add(branches)
                else:
                    if completion.failed:
                        fault = completion.fault
                        completion = replace(without[prompt], failed=completion.failed, fault=fault)
                    called[prompt][place] = completion
                if None not in called[prompt].values():
                    whole.append(prompt)
            batch = {n: self._trace(n, without.pop(n), called.pop(n)) for n in whole}
            traces |= batch
            if on_batch and batch:
                on_batch(list(batch), list(batch.values()))
        return [traces[n] for n in range(len(prompts))]

    def _starts(self, logits: torch.Tensor, rows: Sequence[Row]) -> list[bool]:
        """Rows with a call start it at once; of the others, what the policies go by is noted, and if asked a name begun."""
        starts = [row.index not in self._measured for row in rows]
        traced = [
            n
            for n, row in enumerate(rows)
            if row.may_call and not starts[n] and row.call_start is None and row.passed != row.tokens
        ]
        start = self.language_model.start_id
        measured = [MEASURES[policy](logits[traced], start).float() for policy in self.reach]
        for n, values in zip(traced, torch.stack(measured, -1).tolist(), strict=True):
            self._measured[rows[n].index].append(values)
            starts[n] = self.of_each_tool and any(self._fired(values))
        return starts

    def _fired(self, values: Sequence[float]) -> list[bool]:
        """By policy, whether it starts a call at a place under some value within reach."""
        limits = zip(self.reach.items(), values, strict=True)
        return [fires(policy, value, limit) for (policy, limit), value in limits]

    def _passes_over(self, row: Row, name: str | None) -> bool:
        """A row without a call writes no more of one than its name."""
        if row.index not in self._measured or not name:
            return False
        key = next((key for key, tool in self.tools.items() if tool.name == name), "")
        self._named[row.index][len(self._measured[row.index]) - 1] = key
        return True

    def _first_places(self, prompt: int) -> Iterator[int]:
        """The places where a policy starts its call under some value within reach: only a new best can be the first."""
        best: dict[tuple[str, str | None], float] = {}
        for place, values in enumerate(self._measured[prompt]):
            tool = self._named[prompt].get(place)
            improved = [
                ((policy, tool), value)
                for policy, value, fired in zip(self.reach, values, self._fired(values), strict=True)
                if fired and ((policy, tool) not in best or not fires(policy, best[policy, tool], value))
            ]
            best.update(improved)
            if improved:
                yield place

    def _trace(self, prompt: int, without: Completion, called: Mapping[int, Completion | None]) -> Trace:
        measures = dict(
            zip(self.reach, map(list, zip(*self._measured.pop(prompt), strict=True)), strict=False)
        )
        known = {place: completion for place, completion in called.items() if completion}
        fault = any(completion.fault for completion in known.values())
        more = {"measures": measures, "called": known, "named": self._named.pop(prompt)}
        return Trace(**{**vars(without), "fault": fault, **more})


def _branch(row: Row, place: int, index: int) -> Row:
    """A row that repeats one that is done up to a place, and starts a call there."""
    written = row.written[:place]
    return Row(
        index,
        row.document,
        row.context,
        row.context + written,
        written=written,
        tokens=place,
        prompt_cut=row.prompt_cut,
    )
