"""An instruct model that is offered its tools as JSON schemas and calls them by its chat template: today's usual way.

A prompt is a user message. The model's message is its answer or a call, which the same tools execute; with the result it is
asked again. A call that fails is taken back: the model is asked again without tools.
"""

import functools
import json
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolformer.calls import ApiCall, CallSyntaxError, linearise
from toolformer.data import Document
from toolformer.decoding.call_state import PendingCall, cut_result, execute
from toolformer.decoding.completion import Completion, Task
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.offers import Offer, Request, written
from toolformer.errors import UserError, one_line
from toolformer.lm.stop import cut_at
from toolformer.tools.base import Result

log = logging.getLogger(__name__)

WRAPPING = 40
"""Tokens of JSON and of the template around a call's input or result, beyond their limits."""
_INSTRUCTION = (
    "You may call a function before you answer. These are the functions:\n<tools>\n{tools}\n</tools>\n"
    "To call one, write nothing but its name and arguments as JSON:\n"
    '<tool_call>\n{{"name": "...", "arguments": {{...}}}}\n</tool_call>\n'
    "You then get its result. Otherwise answer at once, in a few words."
)
"""The system message with `chat.tools=system`."""

Message = dict[str, Any]


def check_template(tokenizer: Any, name: str, tools: str, offers: Sequence[Offer]) -> None:
    """Refuses a model without a chat template that can offer these tools; `tools` is `chat.tools`."""
    if not tokenizer.chat_template:
        raise UserError(f"model: {name} has no chat template; name an instruct model, or another system")
    schemas = [offer.schema() for offer in offers]
    hello = [{"role": "user", "content": "Hello"}]
    plain = rendered(tokenizer, name, hello, None)
    if offers and tools == "template" and rendered(tokenizer, name, hello, schemas) == plain:
        raise UserError(
            f"model: the chat template of {name} has no tools; with chat.tools=system they go into the system message"
        )
    if offers and tools == "system":
        rendered(tokenizer, name, [{"role": "system", "content": "Hello"}, *hello], None)


def rendered(tokenizer: Any, name: str, messages: Sequence[Message], schemas: Any) -> list[int]:
    """The tokens of a conversation up to the model's next message; control tokens in its texts are read as text."""
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
class Talk:
    """A conversation up to its answer."""

    prompt: str
    document: Document
    offers: Sequence[Offer]
    """Empty where no tool may be called."""
    max_calls: int
    messages: list[Message] = field(default_factory=list)
    """After the prompt: calls and their results."""
    calls: list[ApiCall] = field(default_factory=list)
    failed: str | None = None
    """Why a call was taken back; no other follows."""
    fault: bool = False
    answer: str | None = None
    tokens: int = 0
    prompt_cut: int = 0

    @property
    def may_call(self) -> bool:
        return bool(self.offers) and self.failed is None and len(self.calls) < self.max_calls

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools as the model's next message sees them."""
        return [offer.schema() for offer in self.offers] if self.may_call or self.calls else []

    def exchange(self, request: Request, result: str, arguments: Any) -> None:
        """Adds a call, with `arguments` as the protocol has them, and its result to the messages."""
        name = request.call.tool
        call_id = f"call{len(self.calls):05}"  # nine letters and digits, as Mistral's templates require
        function = {"name": name, "arguments": arguments}
        calls = [{"id": call_id, "type": "function", "function": function}]
        self.messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        self.messages.append({"role": "tool", "tool_call_id": call_id, "name": name, "content": result})

    def completion(self, stop: Sequence[str]) -> Completion:
        """The calls and the answer; `plain` is the answer up to the first stop text."""
        plain = cut_at(self.answer or "", stop)
        text = "".join(map(linearise, self.calls)) + (" " if self.calls else "") + plain
        calls = tuple(self.calls)
        counted = (self.failed, self.tokens, self.fault, self.prompt_cut)
        # A message is one call, which ends it: there is no place for a result or for another call.
        return Completion(text, plain, calls, *counted, results_begun=None, calls_in_calls=None)


def converse(
    talks: Sequence[Talk],
    ask: Callable[[Sequence[Talk]], Sequence[Request | None]],
    run: Callable[[Sequence[PendingCall]], Sequence[Result]],
    cut: Callable[[str], str],
    exchange: Callable[[Talk, Request, str], None],
) -> None:
    """Continues until every conversation has its answer.

    Args:
        ask: gives the next message of each conversation: a call, or None once it has set `answer` or `failed`.
        run: executes calls.
        cut: shortens a result.
        exchange: adds a call and its result to the messages of a conversation.
    """
    while talks:
        calling = [(talk, request) for talk, request in zip(talks, ask(talks), strict=True) if request]
        results = run([PendingCall(request.call, talk.document, talk.calls) for talk, request in calling])
        for (talk, request), result in zip(calling, results, strict=True):
            if result.text is None:
                talk.failed, talk.fault = result.reason, result.fault
                continue
            text = cut(request.call.with_result(result.text).result or "")
            talk.calls.append(request.call.with_result(text))
            talk.tokens += request.tokens
            exchange(talk, request, talk.calls[-1].result or "")
        talks = [talk for talk in talks if talk.answer is None]


@dataclass(eq=False)
class ChatDecoder(Decoder):
    """A `Decoder` for conversations; of the settings, `k` and `min_new_tokens` decide nothing."""

    offers: Mapping[str, Offer] = field(default_factory=dict)
    """The tools by key, as they are offered."""
    offered_by: str = "template"
    """`chat.tools`."""

    @property
    def taught(self) -> bool:
        """False: the model is used as it is."""
        return False

    def batches(self, task: Task) -> Generator[dict[int, Completion], None, None]:
        """See `Completer.complete`; `plain` is the last message alone, the answer."""
        offers = [self.offers[key] for key in task.keys(self.tools) if self.max_calls]
        size = self.choose_size(self.language_model.context_length)
        for start in range(0, len(task.prompts), size):
            numbers = range(start, min(start + size, len(task.prompts)))
            talks = [Talk(task.prompts[n], task.documents[n], offers, self.max_calls) for n in numbers]
            self._shorten(talks, task.max_new_tokens, task.strict)
            converse(
                talks,
                lambda talks: self._ask(talks, task.max_new_tokens),
                functools.partial(execute, {tool.name: tool for tool in self.tools.values()}),
                lambda text: cut_result(self.language_model, text, self.max_result_tokens),
                self._exchange,
            )
            yield {n: talk.completion(task.stop) for n, talk in zip(numbers, talks, strict=True)}

    def _shorten(self, talks: Sequence[Talk], max_new_tokens: int, strict: bool) -> None:
        """Cuts prompts on their left that leave no room for calls, results and an answer."""
        model = self.language_model
        call = self.max_call_tokens + WRAPPING
        room = model.context_length - max(max_new_tokens, call)
        room -= self.max_calls * (call + self.max_result_tokens + WRAPPING)
        for talk in talks:
            ids = model.encode(talk.prompt)
            while (over := len(self._rendered(talk)) - room) > 0:
                talk.prompt_cut += over
                if strict or talk.prompt_cut >= len(ids):
                    raise UserError(
                        f"decoding: a prompt of {len(ids)} tokens, the tools' schemas and a call do not fit into the model's "
                        f"context of {model.context_length} tokens; name fewer tools, or lower decoding.max_result_tokens"
                    )
                talk.prompt = model.decode(ids[talk.prompt_cut :])
        if cut := sum(talk.prompt_cut > 0 for talk in talks):
            log.warning("decoding: %d of %d prompts are too long: cut on their left", cut, len(talks))

    def _rendered(self, talk: Talk) -> list[int]:
        schemas = talk.schemas
        messages = [{"role": "user", "content": talk.prompt}, *talk.messages]
        if schemas and self.offered_by == "system":
            listed = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in schemas)
            messages.insert(0, {"role": "system", "content": _INSTRUCTION.format(tools=listed)})
            schemas = []
        return rendered(self.language_model.tokenizer, self.language_model.name, messages, schemas or None)

    def _ask(self, talks: Sequence[Talk], max_new_tokens: int) -> list[Request | None]:
        """The next message of each conversation, as `converse` takes it."""
        call = self.max_call_tokens + WRAPPING if any(talk.may_call for talk in talks) else 0
        conversations = [self._rendered(talk) for talk in talks]
        messages = self.language_model.continued(conversations, max(max_new_tokens, call))
        return [self._read(*pair, max_new_tokens) for pair in zip(talks, messages, strict=True)]

    def _read(self, talk: Talk, ids: list[int], max_new_tokens: int) -> Request | None:
        """A message as a call; else it is one that fails, or the answer."""
        model = self.language_model
        if talk.may_call:
            raw = model.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
            try:
                if request := written(raw, talk.offers):
                    return replace(request, tokens=len(ids))
            except CallSyntaxError as error:
                talk.failed = str(error)
                return None
        ids = ids[:max_new_tokens]
        talk.answer = model.decode(ids)
        talk.tokens += len(ids)
        return None

    def _exchange(self, talk: Talk, request: Request, result: str) -> None:
        """Adds a call and its result to a conversation."""
        if self.offered_by == "system":
            closed = request.raw + ("\n</tool_call>" if "<tool_call>" in request.raw else "")
            answered = f"<tool_response>\n{result}\n</tool_response>"
            talk.messages += [{"role": "assistant", "content": closed}, {"role": "user", "content": answered}]
        else:
            talk.exchange(request, result, dict(request.arguments))
