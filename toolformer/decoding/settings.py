"""What answers, and how: the systems that are compared, and the settings of decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from toolformer.data.bounds import Count, CountOrNone, OneOf

SYSTEMS = {
    "model": "M",
    "model_cc": "M + CC",
    "toolformer_disabled": "Toolformer (disabled)",
    "toolformer": "Toolformer",
    "prompted": "Prompted",
    "chat": "Chat",
    "baseline": "Baseline",
    "endpoint": "Endpoint",
}
PAPER_SYSTEMS = tuple(SYSTEMS)[:4]
"""The four that the paper compares, in its order."""
PLAIN = ("model", "model_cc", "baseline")
"""Systems that were never taught to call: decoded as they are, no token forbidden."""
CALLING = ("toolformer", "prompted", "chat")
"""Systems that call tools."""
TRAINED_ON = {"model_cc": "plain", "toolformer_disabled": "augmented", "toolformer": "augmented"}
"""The data of the systems that are trained; two of them are one model."""


@dataclass(kw_only=True)
class Decoding:
    """Top-k API decoding (paper, section 4.2)."""

    k: CountOrNone = 10
    """A call starts when <API> is among the k most likely next tokens; 1 is plain greedy, 0 disables calls."""
    max_calls: CountOrNone = 1
    """Calls per input at most."""
    max_call_tokens: Count = 40
    """Tokens of a call at most."""
    max_result_tokens: Count = 64
    """Tokens of a result at most."""
    min_new_tokens: CountOrNone = 0
    """No end of text before so many tokens: chat models end at once where a plain language model writes on."""
    constrain_tool_name: bool = True
    """A call can begin only with the name of an allowed tool; false: the name is decoded greedily, as in the paper."""
    batch_size: Count = 32
    """Prompts decoded together."""


@dataclass
class Chat:
    """An instruct model with tools (system=chat)."""

    tools: Annotated[str, OneOf("template", "system")] = "template"
    """How it is offered its tools: by its own chat template, or in a message of the system, where the template has no
    tools."""


@dataclass
class Endpoint:
    """An endpoint that speaks OpenAI's protocol (system=endpoint)."""

    url: str | None = None
    """The whole address, such as http://127.0.0.1:8000/v1/completions."""
    api: Annotated[str, OneOf("completions", "chat")] = "completions"
    """completions: prompts are continued as they are; chat: they are messages (…/v1/chat/completions), and the model is
    offered the tools."""
    model: str | None = None
    """The model's name there."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; a server that wants none needs none."""
    tokenizer: str | None = None
    """The served model's tokenizer, a folder or hub name; perplexity needs it, and cutting prompts to max_length."""
    concurrency: Count = 4
    """Requests under way at once."""
    timeout: Count = 300
    """Seconds a request may take."""
    tries: Count = 3
    """How often a request is made before the evaluation ends."""
    max_length: Annotated[int, Field(ge=8)] = 2048
    """Tokens the served model can read at once."""
