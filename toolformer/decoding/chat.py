"""The baseline of today: an instruct model that is offered its tools as JSON schemas, and calls them by its chat template.

A prompt is a message of the user. The model's message is its answer or a call, which the same tools execute; with the result
it is asked again. A call that fails is taken back: the model is asked once more without tools.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolformer.calls import CallSyntaxError, linearise
from toolformer.data import Document
from toolformer.decoding.batch import Row
from toolformer.decoding.call_state import Completion, Writer, cut_result
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.offers import Offer, Request, written
from toolformer.errors import UserError, one_line
from toolformer.lm.text_generator import cut_at
from toolformer.tools.base import Result

log = logging.getLogger(__name__)

WRAPPING = 40
"""Tokens of JSON and of the template around a call's input or result, which their limits do not count."""
_INSTRUCTION = (
    "You may call a function before you answer. These are the functions:\n<tools>\n{tools}\n</tools>\n"
    "To call one, write nothing but its name and arguments as JSON:\n"
    '<tool_call>\n{{"name": "...", "arguments": {{...}}}}\n</tool_call>\n'
    "You then get its result. Otherwise answer at once, in a few words."
)
"""The message of the system with `chat.tools=system`."""

Message = dict[str, Any]


def check_template(tokenizer: Any, name: str, tools: str, offers: Sequence[Offer]) -> None:
    """Sees that a model's chat template can offer these tools; `tools` is `chat.tools`.

    Raises:
        UserError: it has no template, or one without tools or without messages of the system.
    """
    if not tokenizer.chat_template:
        raise UserError(f"model: {name} has no chat template; name an instruct model, or another system")
    schemas = [offer.schema() for offer in offers]
    asked = [{"role": "user", "content": "Hello"}]
    plain = rendered(tokenizer, name, asked, None)
    if offers and tools == "template" and rendered(tokenizer, name, asked, schemas) == plain:
        raise UserError(
            f"model: the chat template of {name} has no tools; with chat.tools=system they stand in a message of the system"
        )
    if offers and tools == "system":
        rendered(tokenizer, name, [{"role": "system", "content": "Hello"}, *asked], None)


def rendered(tokenizer: Any, name: str, messages: Sequence[Message], schemas: Any) -> list[int]:
    """The tokens of a conversation up to the model's next message; in its texts no token controls anything."""
    try:
        ids: list[int] = tokenizer.apply_chat_template(
            list(messages),
            tools=schemas,
            add_generation_prompt=True,
            return_dict=False,
            sanitize_control_tokens=True,
        )
        return ids
    except Exception as error:  # a template is a program
        raise UserError(f"model: the chat template of {name} fails: {one_line(error)}") from error


@dataclass(eq=False)
class _Talk(Row):
    """A conversation: a `Row` whose text is a message at a time."""

    messages: list[Message] = field(default_factory=list)
    """After the prompt: calls and their results."""
    prompt: str = ""
    request: Request | None = None
    """The pending call."""
    raw: str = ""
    """As it was written."""


@dataclass(eq=False)
class ChatDecoder(Decoder):
    """A `Decoder` for conversations; of the settings, `k` and `min_new_tokens` decide nothing."""

    offers: Mapping[str, Offer] = field(default_factory=dict)
    """The tools by key, as they are offered."""
    shown: str = "template"
    """`chat.tools`."""

    def complete(
        self,
        prompts: Sequence[str],
        documents: Sequence[Document] | None = None,
        *,
        max_new_tokens: int,
        stop: Sequence[str] = (),
        allowed: Collection[str] | None = None,
        on_batch: Callable[[list[int], list[Completion]], None] | None = None,
        strict: bool = False,
        head: str = "",
    ) -> list[Completion]:
        """See `Decoder.complete`; `plain` is the last message alone, the answer."""
        if documents is None:
            documents = [Document(doc_id=str(n), text=prompt) for n, prompt in enumerate(prompts)]
        keys = [key for key in self.tools if self.max_calls and (allowed is None or key in allowed)]
        offers = [self.offers[key] for key in keys]
        limits = (self.max_calls, self.max_call_tokens, self.max_result_tokens, max_new_tokens)
        tools = {self.tools[key].name: self.tools[key] for key in keys}
        writer = Writer(self.language_model, tools, *limits, stop)
        completions: list[Completion] = []
        for start in range(0, len(prompts), self.batch_size):
            talks = [
                _Talk(n, documents[n], [], [], prompt=prompts[n], may_call=bool(offers))
                for n in range(start, min(start + self.batch_size, len(prompts)))
            ]
            self._shorten(talks, offers, max_new_tokens, strict)
            self._talk(talks, writer, offers)
            batch = [_completion(talk, stop) for talk in talks]
            completions += batch
            if on_batch:
                on_batch([talk.index for talk in talks], batch)
        return completions

    def _shorten(
        self, talks: Sequence[_Talk], offers: Sequence[Offer], max_new_tokens: int, strict: bool
    ) -> None:
        """Cuts prompts on their left that leave no room for calls, results and an answer."""
        model = self.language_model
        call = self.max_call_tokens + WRAPPING
        room = model.context_length - max(max_new_tokens, call)
        room -= self.max_calls * (call + self.max_result_tokens + WRAPPING)
        for talk in talks:
            ids = model.encode(talk.prompt)
            while (over := len(self._rendered(talk, offers)) - room) > 0:
                talk.prompt_cut += over
                if strict or talk.prompt_cut >= len(ids):
                    raise UserError(
                        f"decoding: a prompt of {len(ids)} tokens, the tools' schemas and a call do not fit into the model's "
                        f"context of {model.context_length} tokens; name fewer tools, or lower decoding.max_result_tokens"
                    )
                talk.prompt = model.decode(ids[talk.prompt_cut :])
        if cut := sum(talk.prompt_cut > 0 for talk in talks):
            log.warning("decoding: %d of %d prompts are too long: cut on their left", cut, len(talks))

    def _rendered(self, talk: _Talk, offers: Sequence[Offer]) -> list[int]:
        schemas = [offer.schema() for offer in offers if talk.may_call or talk.calls]
        messages = [{"role": "user", "content": talk.prompt}, *talk.messages]
        if schemas and self.shown == "system":
            listed = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in schemas)
            messages.insert(0, {"role": "system", "content": _INSTRUCTION.format(tools=listed)})
            schemas = []
        return rendered(self.language_model.tokenizer, self.language_model.name, messages, schemas or None)

    def _talk(self, talks: Sequence[_Talk], writer: Writer, offers: Sequence[Offer]) -> None:
        """Goes on until every conversation has its answer."""
        while talks:
            asked = [self._rendered(talk, offers) for talk in talks]
            call = self.max_call_tokens + WRAPPING if any(talk.may_call for talk in talks) else 0
            messages = self.language_model.continued(asked, max(writer.max_new_tokens, call))
            for talk, ids in zip(talks, messages, strict=True):
                self._read(talk, ids, offers, writer.max_new_tokens)
            calling = [talk for talk in talks if talk.pending]
            for talk, result in zip(calling, writer.execute(calling), strict=True):
                self._resume(talk, result)
            talks = [talk for talk in talks if not talk.done]

    def _read(self, talk: _Talk, ids: list[int], offers: Sequence[Offer], max_new_tokens: int) -> None:
        """Takes a message as a call, as one that fails, or as the answer."""
        model = self.language_model
        if talk.may_call:
            raw = model.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
            try:
                found = written(raw, offers)
            except CallSyntaxError as error:
                talk.failed, talk.may_call = str(error), False
                return
            if found:
                talk.request, end = found
                talk.pending, talk.raw, talk.written = talk.request.call, raw[:end], ids
                return
        ids = ids[:max_new_tokens]
        talk.plain, talk.done = model.decode(ids), True
        talk.tokens += len(ids)

    def _resume(self, talk: _Talk, result: Result) -> None:
        """Adds a call and its result to the conversation, or asks once more without tools."""
        assert talk.request is not None
        talk.pending = None
        if result.text is None:
            talk.failed, talk.fault, talk.may_call = result.reason, result.fault, False
            return
        call = talk.request.call.with_result(result.text)
        call = call.with_result(cut_result(self.language_model, call.result or "", self.max_result_tokens))
        talk.calls.append(call)
        talk.tokens += len(talk.written)
        talk.may_call = len(talk.calls) < self.max_calls
        if self.shown == "system":
            closed = talk.raw + ("\n</tool_call>" if "<tool_call>" in talk.raw else "")
            answered = f"<tool_response>\n{call.result}\n</tool_response>"
            talk.messages += [{"role": "assistant", "content": closed}, {"role": "user", "content": answered}]
        else:
            talk.messages += exchange(talk.request, call.result or "", len(talk.calls))


def exchange(request: Request, result: str, number: int, as_text: bool = False) -> list[Message]:
    """A call and its result as messages; `as_text` has the arguments as OpenAI's protocol, in a text."""
    arguments = json.dumps(request.arguments) if as_text else dict(request.arguments)
    name, own = (
        request.call.tool,
        f"call{number:05}",
    )  # nine letters and digits, as Mistral's templates ask for
    function = {"name": name, "arguments": arguments}
    return [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": own, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": own, "name": name, "content": result},
    ]


def _completion(talk: _Talk, stop: Sequence[str]) -> Completion:
    plain = cut_at(talk.plain, stop)
    text = "".join(map(linearise, talk.calls)) + (" " if talk.calls else "") + plain
    return Completion(text, plain, tuple(talk.calls), talk.failed, talk.tokens, talk.fault, talk.prompt_cut)
