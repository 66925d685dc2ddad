"""One traced decode: each prompt's completion under every policy of when a call starts.

With one call an input, a completion is decided by the place where its call starts: before it no policy has done
anything, behind it none can. So a prompt is continued without a call, with rank, margin and probability of the start
token at every place, and once more from each place that is the first at which some policy within reach starts a call.
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

REACH = {"topk": 10.0, "bias": 5.0, "threshold": 0.01}
"""By policy, the value up to which (of the threshold: down to which) its completions are traced, unless others are asked."""


@dataclass(frozen=True)
class Trace(Completion):
    """A prompt's completion without a call, and what a call makes of it."""

    measures: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By policy, what it goes by at each place: before each token, and before the end where the model chose it."""
    called: Mapping[int, Completion] = field(default_factory=dict)
    """By place, the completion with a call started there, or taken back there."""

    @property
    def without(self) -> Completion:
        """The completion without a call."""
        return Completion(self.text, self.plain, tokens=self.tokens, prompt_cut=self.prompt_cut)

    @property
    def completions(self) -> list[Completion]:
        """The completion without a call, and those with one in the order of their places."""
        return [self.without, *(self.called[place] for place in sorted(self.called))]

    def number(self, policy: str, value: float) -> int:
        """Which of `completions` decoding with `decoding.policy` and its value gives.

        Raises:
            ValueError: the value is out of the trace's reach.
        """
        measured = self.measures.get(policy, ())
        place = next((place for place, one in enumerate(measured) if fires(policy, one, value)), None)
        if place is None:
            return 0
        if place not in self.called:
            raise ValueError(f"{policy} {value} starts a call at place {place}, out of the trace's reach")
        return 1 + sorted(self.called).index(place)

    def under(self, policy: str, value: float) -> Completion:
        """The completion that decoding with `decoding.policy` and its value gives; ValueError as `number`."""
        return self.completions[self.number(policy, value)]

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Trace:
        """A trace from its fields as JSON has them."""
        called = {int(place): Completion.read(one) for place, one in answer["called"].items()}
        return cls(**{**answer, "calls": (), "called": called})


@dataclass(eq=False)
class TracingDecoder(Decoder):
    """A decoder that traces; the policy of its own settings plays no part."""

    reach: Mapping[str, float] = field(default_factory=lambda: dict(REACH))
    """The policies to trace, each with the value up to which (of the threshold: down to which) it is traced."""

    def __post_init__(self) -> None:
        if self.max_calls != 1:
            raise UserError(
                f"decoding.max_calls is {self.max_calls}; a traced decode tells policies apart by where their only call "
                "starts: leave it at 1"
            )
        self._measured: dict[int, list[list[float]]] = {}
        """Of the rows that are continued without a call, by index: what each policy goes by at each place."""

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
        """Rows with a call start it at once; of the others, what the policies go by is noted."""
        traced = [n for n, row in enumerate(rows) if row.may_call and row.index in self._measured]
        start = self.language_model.start_id
        measured = [MEASURES[policy](logits[traced], start).float() for policy in self.reach]
        for n, values in zip(traced, torch.stack(measured, -1).tolist(), strict=True):
            self._measured[rows[n].index].append(values)
        return [row.index not in self._measured for row in rows]

    def _first_places(self, prompt: int) -> Iterator[int]:
        """The places where a policy starts its call under some value within reach: only a new best can be the first."""
        best: dict[str, float] = {}
        for place, values in enumerate(self._measured[prompt]):
            improved = [
                (policy, value)
                for (policy, limit), value in zip(self.reach.items(), values, strict=True)
                if fires(policy, value, limit)
                and (policy not in best or not fires(policy, best[policy], value))
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
        return Trace(**{**vars(without), "fault": fault, "measures": measures, "called": known})


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
