"""Decodes the rungs of the ladder: as it is, a forced call, and the right call with its input, its result, a passage given.

All rungs of an example continue its call-free completion from one place, the best one for a call. Answers are recorded and
resumed as an evaluation's are, in the same file.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from lm_eval.api.instance import Instance

from toolformer.calls import ApiCall, linearise
from toolformer.data import Document
from toolformer.decoding.batch import Row
from toolformer.decoding.call_state import cut_result
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.lm_eval_model import ToolformerLM
from toolformer.evaluation.ladder.classes import RUNGS, Rungs, classify
from toolformer.evaluation.ladder.gold import SURE, TOOLS, Gold, cut, golds, holds
from toolformer.tools.base import Tool, run_safely

PASSAGES = 20
"""Passages of the index that are looked at for one that holds the answer."""
Sample = dict[str, Any]


@dataclass(eq=False)
class ForcedDecoder(Decoder):
    """Starts a call before the first token, and no other."""

    def _next(self, logits: torch.Tensor, rows: list[Row], tries: Mapping[str, list[int]]) -> list[int]:
        start = self.language_model.start_id
        # Once the call is executed or taken back, a row may not call again.
        return [
            start if row.may_call and row.call_start is None else token
            for row, token in zip(rows, super()._next(logits, rows, tries), strict=True)
        ]


@dataclass(eq=False)
class _Example:
    sample: Sample
    doc: Mapping[str, Any]
    gold: Gold
    document: Document
    score: Callable[[str], bool]
    call: ApiCall
    """The right call, without its result."""
    left: int
    """Tokens that may follow."""
    texts: dict[str, str]
    """By rung, without calls."""
    begun: str = ""
    """The call-free completion up to the place of the call."""
    forced: ApiCall | None = None
    """The call that the model makes where one is started for it, if it could be executed."""
    result: str | None = None
    """The tool's answer to the right call."""

    def behind(self, result: str) -> str:
        """What the model continues behind the right call with a result."""
        return self.sample["prompt"] + self.begun + linearise(self.call.with_result(result))


class Ladder:
    """Climbs with one model.

    Args:
        decoder: the model with its tools.
        make: lm-eval's view of a decoder, which records its answers, under an identity with these facts beside.
        day: for tools, where an example has no date of its own.
    """

    def __init__(
        self,
        decoder: Decoder,
        make: Callable[[Decoder, Mapping[str, str]], ToolformerLM],
        day: datetime.date | None = None,
    ) -> None:
        self.tools = decoder.tools
        self._model = decoder.language_model
        self._limit = decoder.max_result_tokens
        self._free = make(replace(decoder, k=0), {})
        # A k of its own would have a tool's call taken back where it is forced, over and over.
        forced = {**vars(decoder), "k": 1, "max_calls": 1, "by_tool": None}
        self._forced = make(ForcedDecoder(**forced), {"rung": "forced"})
        self._day = day

    def climb(self, name: str, task: Any, off: frozenset[str], samples: Sequence[Sample]) -> list[Sample]:
        """The rungs and the class of each sample of an evaluation, in their order.

        Args:
            name: a task for which some tool is `usable`.
            task: lm-eval's, with at least the documents of the samples.
            off: the tools, by key, that it may not use.

        UserError if the published data cannot be read.
        """
        keys = usable(name, self.tools, off)
        self._free.switched_off = self._forced.switched_off = {name: off}
        examples = self._examples(task, name, keys[0], samples)
        settings = task.config.generation_kwargs

        def ask(lm: ToolformerLM, rung: str, prompts: Mapping[_Example, str]) -> None:
            """Completes prompts; the texts become those of the rung."""
            before = len(lm.records)
            lm.generate_until(
                [
                    Instance("generate_until", example.doc, (prompt, settings), 0, (name, n, 1))
                    for n, (example, prompt) in enumerate(prompts.items())
                ]
            )
            for example, record in zip(prompts, lm.records[before:], strict=True):
                if record.completion:
                    example.texts[rung] = self._whole(example, record.completion.plain)
                    if rung == "forced":
                        example.forced = record.completion.call

        ask(self._free, "free", {one: one.sample["prompt"] for one in examples if one.sample["tool"]})
        self._find_places(examples)
        ask(self._forced, "forced", {one: one.sample["prompt"] + one.begun for one in examples})
        self._execute(keys[0], [one for one in examples if one.gold.input is not None])
        given: dict[str, Mapping[_Example, str | None]] = {
            "gold_input": {one: one.result for one in examples},
            "gold_result": {one: one.gold.result or one.gold.answer for one in examples},
            "gold_passage": self._passages(keys, examples),
        }
        for rung, results in given.items():
            ask(
                self._free, rung, {one: one.behind(text) for one, text in results.items() if text is not None}
            )
        names = {self.tools[key].name for key in keys}
        return [_judged(example, names, keys[0] in SURE) for example in examples]

    def _examples(self, task: Any, name: str, key: str, samples: Sequence[Sample]) -> list[_Example]:
        by_id = {str(doc["id"]): doc for doc in task.dataset[task.config.test_split]}
        docs = [by_id[sample["id"]] for sample in samples]
        examples = []
        for sample, doc, gold in zip(samples, docs, golds(name, docs, task.config.metadata), strict=True):
            written = doc.get("current_date")
            day = datetime.date.fromisoformat(written) if written else self._day
            document = Document("", sample["prompt"], date=day, source_id=doc.get("source_id"))
            # Where the data has no input, the answer itself: a call whose result is right all the same.
            said = gold.answer if gold.input is None else gold.input
            call = ApiCall(self.tools[key].name, said, quoted=key in ("search", "qa"))

            def score(text: str, doc: Mapping[str, Any] = doc) -> bool:
                return float(task.process_results(doc, [text])["score"]) >= 100

            texts = dict.fromkeys(("own", "free"), str(sample["prediction"]))
            left = int(task.config.generation_kwargs["max_gen_toks"])
            examples.append(_Example(sample, doc, gold, document, score, call, left, texts))
        return examples

    def _find_places(self, examples: Sequence[_Example]) -> None:
        """Where a call is most probable in the call-free completion, of the places where the answer would still count."""
        model = self._model
        written = [model.encode_continuation(one.texts["free"]) for one in examples]
        heads = [model.bos_ids + model.encode(one.sample["prompt"]) or model.start_ids() for one in examples]
        read = [(head + ids)[-model.context_length :] for head, ids in zip(heads, written, strict=True)]
        for one, ids, log_probs in zip(examples, written, model.start_log_probs(read), strict=True):
            texts = [model.decode(ids[:place]) for place in range(min(len(ids), one.left - 1) + 1)]
            places = [
                place
                for place, text in enumerate(texts)
                if one.texts["free"].startswith(text) and one.score(f"{text} {one.gold.answer}")
            ]
            place = max(
                places or [0], key=log_probs[-len(ids) - 1 :].tolist().__getitem__
            )  # of equals the first
            one.begun, one.left = texts[place], one.left - place

    def _whole(self, example: _Example, plain: str) -> str:
        """An answer with what stands before its call, within the tokens that an answer may have."""
        ids = self._model.encode_continuation(plain)
        return example.begun + (self._model.decode(ids[: example.left]) if len(ids) > example.left else plain)

    def _execute(self, key: str, examples: Sequence[_Example]) -> None:
        """The right calls, answered by the tool."""
        documents = [example.document for example in examples]
        inputs = [example.call.input for example in examples]
        for example, result in zip(examples, run_safely(self.tools[key], inputs, documents), strict=True):
            example.texts["gold_input"] = example.texts["free"]  # without a result the call is taken back
            if result.text is not None:
                text = example.call.with_result(result.text).result or ""
                example.result = cut_result(self._model, text, self._limit)

    def _passages(self, keys: Sequence[str], examples: Sequence[_Example]) -> dict[_Example, str | None]:
        """A passage that holds the answer: the data's, or else one of the first that the index gives."""
        passages = {one: one.gold.passage for one in examples}
        tools = [getattr(self.tools[key], "tool", self.tools[key]) for key in keys]
        retriever = next((tool.retriever for tool in tools if hasattr(tool, "retriever")), None)
        asked = [one for one, passage in passages.items() if passage is None]
        if retriever is None or not asked:
            return passages
        queries, documents = [one.call.input for one in asked], [one.document for one in asked]
        for one, found in zip(asked, retriever.retrieve(queries, PASSAGES, documents), strict=True):
            parts = (cut(f"{passage.title} > {passage.text}", one.doc) for passage in found)
            passages[one] = next(filter(None, parts), None)
        return passages


def usable(task: str, tools: Mapping[str, Tool], off: frozenset[str]) -> list[str]:
    """The tools, by key, that can answer a task's questions and may be used, the one to ask first."""
    return [key for key in TOOLS.get(task, ()) if key in tools and key not in off]


def _judged(example: _Example, names: set[str], sure: bool) -> Sample:
    """An example's row: its class, and by rung the text and whether it is right."""
    sample, doc, forced = example.sample, example.doc, example.forced
    right = {rung: example.score(example.texts[rung]) if rung in example.texts else None for rung in RUNGS}
    own = (
        ApiCall(sample["tool"], sample["call_input"] or "", sample["call_result"]) if sample["tool"] else None
    )
    call = own or forced
    better = [example.call] * bool(right["gold_input"]) + [forced] * bool(right["forced"] and forced)
    asked = [(other.tool, other.input) for other in better if other]
    rungs = Rungs(
        own=bool(right["own"]),
        free=bool(right["free"]),
        called=own is not None,
        taken_back=own is None and bool(sample["failed"]),
        forced=bool(right["forced"]),
        gold_input=right["gold_input"],
        gold_result=bool(right["gold_result"]),
        gold_passage=right["gold_passage"],
        other_tool=call is not None and call.tool not in names,
        right_input=call is not None and call.tool in names and call.input == example.gold.input,
        used=call is not None and (holds(doc, call.result or "") or (call.tool, call.input) in asked),
        answered=example.result is not None and (sure or holds(doc, example.result)),
    )
    row = {"id": sample["id"], "class": classify(rungs), "position": len(example.begun)}
    row |= {"call": linearise(example.call).strip(), "result": example.result}
    row |= {"forced_call": linearise(forced).strip() if forced else None}
    return (
        row
        | {f"{rung}_right": right[rung] for rung in RUNGS}
        | {rung: example.texts.get(rung) for rung in RUNGS}
    )
