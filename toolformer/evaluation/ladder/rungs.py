"""Decodes examples under oracle conditions: a forced call, and the right call with the right input, result or passage.

All conditions continue the example's call-free completion from the best position for a call. Answers are recorded and
resumed as in an evaluation, in the same file.
"""

import datetime
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval.api.instance import Instance

from toolformer.benchmarks import GROUPS
from toolformer.calls import ApiCall, find_calls, linearise
from toolformer.data import Document
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.lm_eval_model import ToolformerLM
from toolformer.evaluation.ladder.classes import RUNGS, Rungs, classify
from toolformer.evaluation.ladder.gold import Gold, cut, golds, holds
from toolformer.lm.results import with_result
from toolformer.tools.base import Tool
from toolformer.tools.examples import with_name

PASSAGES = 20
"""Passages of the index that are searched for one that contains the answer."""
Sample = dict[str, Any]


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
    """Tokens that may follow `begun`."""
    texts: dict[str, str]
    """Answers by condition, without calls."""
    begun: str = ""
    """The call-free completion up to the position of the call."""
    forced: ApiCall | None = None
    """The call that the model writes when one is forced, if it was executed."""
    result: str | None = None
    """The tool's answer to the right call."""

    def prompt_after(self, result: str) -> str:
        """The prompt that ends with the right call and a result."""
        return self.sample["prompt"] + self.begun + linearise(self.call.with_result(result))


class Ladder:
    """Decodes and classifies with one model.

    Args:
        decoder: the model with its tools.
        make: wraps a decoder for lm-eval, recording its answers under an identity that includes the given facts.
        day: the date for tools, if an example has none.
    """

    def __init__(
        self,
        decoder: Decoder,
        make: Callable[[Decoder, Mapping[str, str]], ToolformerLM],
        day: datetime.date | None = None,
    ) -> None:
        self.tools = decoder.tools
        self._model = decoder.language_model
        self._limits = {key: decoder.how(key).max_result_tokens for key in decoder.tools}
        self._free = make(decoder.without_calls(), {})
        self._forced = make(decoder.forced(), {"rung": "forced"})
        self._day = day

    def climb(self, name: str, task: Any, off: frozenset[str], samples: Sequence[Sample]) -> list[Sample]:
        """The answers under all conditions and the class of each sample of an evaluation, in their order.

        Args:
            name: a task with a `usable` tool.
            task: lm-eval's, with at least the documents of the samples.
            off: the keys of the tools that it may not use.

        UserError if the published data cannot be read.
        """
        keys = usable(name, self.tools, off)
        self._free.switched_off = self._forced.switched_off = {name: off}
        examples = self._examples(task, name, keys[0], samples)
        ask = functools.partial(self._ask, name, task.config.generation_kwargs)
        prompts = {example: example.sample["prompt"] for example in examples}
        ask("free", {example: prompt for example, prompt in prompts.items() if example.sample["tool"]})
        self._find_positions(examples)
        ask("forced", {example: prompt + example.begun for example, prompt in prompts.items()})
        self._execute(keys[0], [example for example in examples if example.gold.input is not None])
        oracles: dict[str, Mapping[_Example, str | None]] = {
            "gold_input": {example: example.result for example in examples},
            "gold_result": {example: example.gold.result or example.gold.answer for example in examples},
            "gold_passage": self._passages(keys, examples),
        }
        for rung, results in oracles.items():
            known = {example: result for example, result in results.items() if result is not None}
            ask(rung, {example: example.prompt_after(result) for example, result in known.items()})
        names = {self.tools[key].name for key in keys}
        return [_judged(example, names, self.tools[keys[0]].is_exact) for example in examples]

    def _ask(self, task: str, settings: Any, rung: str, prompts: Mapping[_Example, str]) -> None:
        """Completes prompts and stores the texts under the condition."""
        lm = self._forced if rung == "forced" else self._free
        before = len(lm.records)
        lm.generate_until(
            [
                Instance("generate_until", example.doc, (prompt, settings), 0, (task, n, 1))
                for n, (example, prompt) in enumerate(prompts.items())
            ]
        )
        for example, record in zip(prompts, lm.records[before:], strict=True):
            if record.completion:
                example.texts[rung] = self._joined(example, record.completion.plain)
                if rung == "forced":
                    example.forced = record.completion.call

    def _examples(self, task: Any, name: str, key: str, samples: Sequence[Sample]) -> list[_Example]:
        by_id = {str(doc["id"]): doc for doc in task.dataset[task.config.test_split]}
        docs = [by_id[sample["id"]] for sample in samples]
        examples = []
        for sample, doc, gold in zip(samples, docs, golds(name, docs, task.config.metadata), strict=True):
            current = doc.get("current_date")
            day = datetime.date.fromisoformat(current) if current else self._day
            document = Document("", sample["prompt"], date=day, source_id=doc.get("source_id"))
            # Without an input in the data, the answer itself: the call's result is right all the same.
            text = gold.answer if gold.input is None else gold.input
            call = ApiCall(self.tools[key].name, text, quoted=_is_quoted(self.tools[key]))

            def score(text: str, doc: Mapping[str, Any] = doc) -> bool:
                return float(task.process_results(doc, [text])["score"]) >= 100

            texts = dict.fromkeys(("own", "free"), str(sample["prediction"]))
            left = int(task.config.generation_kwargs["max_gen_toks"])
            examples.append(_Example(sample, doc, gold, document, score, call, left, texts))
        return examples

    def _find_positions(self, examples: Sequence[_Example]) -> None:
        """Finds where a call is most probable in the call-free completion, of the positions where the answer still counts."""
        model = self._model
        written = [model.encode_continuation(example.texts["free"]) for example in examples]
        heads = [
            model.bos_ids + model.encode(example.sample["prompt"]) or model.start_ids()
            for example in examples
        ]
        read = [
            model.cut_left(head + ids, model.context_length) for head, ids in zip(heads, written, strict=True)
        ]
        for example, ids, log_probs in zip(examples, written, model.start_log_probs(read), strict=True):
            texts = [model.decode(ids[:n]) for n in range(min(len(ids), example.left - 1) + 1)]
            positions = [
                n
                for n, text in enumerate(texts)
                if example.texts["free"].startswith(text) and example.score(f"{text} {example.gold.answer}")
            ]
            # `max` keeps the first of equal ones.
            position = max(positions or [0], key=log_probs[-len(ids) - 1 :].tolist().__getitem__)
            example.begun, example.left = texts[position], example.left - position

    def _joined(self, example: _Example, plain: str) -> str:
        """The text before the call and an answer, within the tokens that an answer may have."""
        ids = self._model.encode_continuation(plain)
        return example.begun + (self._model.decode(ids[: example.left]) if len(ids) > example.left else plain)

    def _execute(self, key: str, examples: Sequence[_Example]) -> None:
        """Has the tool answer the right calls."""
        documents = [example.document for example in examples]
        inputs = [example.call.input for example in examples]
        for example, result in zip(examples, self.tools[key].run(inputs, documents), strict=True):
            example.texts["gold_input"] = example.texts["free"]  # without a result the call is rolled back
            if result.text is not None:
                example.result = with_result(self._model, example.call, result.text, self._limits[key]).result

    def _passages(self, keys: Sequence[str], examples: Sequence[_Example]) -> dict[_Example, str | None]:
        """A passage that contains the answer: the data's, or else one of the first of the index."""
        passages = {example: example.gold.passage for example in examples}
        tools = [getattr(self.tools[key], "tool", self.tools[key]) for key in keys]
        retriever = next((tool.retriever for tool in tools if hasattr(tool, "retriever")), None)
        lacking = [example for example, passage in passages.items() if passage is None]
        if retriever is None or not lacking:
            return passages
        queries, documents = zip(
            *((example.call.input, example.document) for example in lacking), strict=True
        )
        for example, retrieved in zip(lacking, retriever.retrieve(queries, PASSAGES, documents), strict=True):
            parts = (cut(f"{passage.title} > {passage.text}", example.doc) for passage in retrieved)
            passages[example] = next(filter(None, parts), None)
        return passages


def _is_quoted(tool: Tool) -> bool:
    """Whether the calls in its examples have their input in quotes."""
    texts = with_name(tool.examples, tool.name)
    return any(call.quoted for text in texts for _, _, call in find_calls(text, [tool.name]))


def usable(task: str, tools: Mapping[str, Tool], off: frozenset[str]) -> list[str]:
    """The keys of the tools that can answer a task's questions and may be used."""

    def answers(tool: Tool) -> bool:
        return any(task in GROUPS.get(name, (name,)) for name in tool.benchmarks)

    return [key for key, tool in tools.items() if key not in off and answers(tool)]


def _judged(example: _Example, names: set[str], sure: bool) -> Sample:
    """An example's row: its class, and per condition the text and whether it is right."""
    sample, doc, forced = example.sample, example.doc, example.forced
    right = {rung: example.score(example.texts[rung]) if rung in example.texts else None for rung in RUNGS}
    made = None
    if sample["tool"]:
        made = ApiCall(sample["tool"], sample["call_input"] or "", sample["call_result"])
    call = made or forced
    better = [example.call] * bool(right["gold_input"]) + [forced] * bool(right["forced"] and forced)
    inputs = [(other.tool, other.input) for other in better if other]
    rungs = Rungs(
        own=bool(right["own"]),
        free=bool(right["free"]),
        called=made is not None,
        rolled_back=made is None and bool(sample["failed"]),
        forced=bool(right["forced"]),
        gold_input=right["gold_input"],
        gold_result=bool(right["gold_result"]),
        gold_passage=right["gold_passage"],
        other_tool=call is not None and call.tool not in names,
        right_input=call is not None and call.tool in names and call.input == example.gold.input,
        used=call is not None and (holds(doc, call.result or "") or (call.tool, call.input) in inputs),
        answered=example.result is not None and (sure or holds(doc, example.result)),
    )
    row = {"id": sample["id"], "class": classify(rungs), "position": len(example.begun)}
    row |= {"call": linearise(example.call).strip(), "result": example.result}
    row |= {"forced_call": linearise(forced).strip() if forced else None}
    row |= {f"{rung}_right": right[rung] for rung in RUNGS}
    return row | {rung: example.texts.get(rung) for rung in RUNGS}
