"""The settings of a tool's calls: how long a call and its result may be, the same in annotation and at inference, and when it is
called at inference.
"""

from dataclasses import dataclass
from typing import Annotated

from toolformer.data.bounds import Count, NonNegativeInt
from toolformer.step import Decides

CALL_TOO_LONG = "call longer than its limit"
"""Why a call was dropped or rolled back whose end is not within `max_call_tokens`."""


@dataclass(kw_only=True)
class CallLimits:
    """Tokens of a call and of its result; one tokenizer's, that of the model that writes the call."""

    max_call_tokens: Annotated[Count, Decides("annotate", "answer")] = 40
    """Maximum tokens of a call, from its name on, without its result. A longer call is dropped in annotation and rolled back
    at inference."""
    max_result_tokens: Annotated[Count, Decides("annotate", "answer")] = 64
    """Maximum tokens of a result; a longer one is cut, in annotation and at inference."""


@dataclass(kw_only=True)
class Calling(CallLimits):
    """When a tool is called at inference (paper, section 4.2), and how long its calls may be."""

    k: Annotated[NonNegativeInt | None, Decides("answer")] = None
    """k of this tool alone: its calls start when the call token is among the k most likely next tokens; null uses decoding.k."""
    fallback: Annotated[str | None, Decides("answer")] = None
    """Beyond the paper: key of the tool to call where a benchmark switches this one off. With tool.search.fallback=qa, a model
    that would search asks question answering instead, which LAMA allows."""
