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
    """Tokens of a call at most, from its name on, without its result: a longer one is dropped in annotation, and rolled back at
    inference."""
    max_result_tokens: Annotated[Count, Decides("annotate", "answer")] = 64
    """Tokens of a result at most: a longer one is cut, in annotation and at inference."""


@dataclass(kw_only=True)
class Calling(CallLimits):
    """When a tool is called at inference (paper, section 4.2), and how long its calls may be."""

    k: Annotated[NonNegativeInt | None, Decides("answer")] = None
    """A separate k: its calls start when <API> is among the k most likely next tokens; null is decoding.k."""
    fallback: Annotated[str | None, Decides("answer")] = None
    """Beyond the paper: the key of the tool that is called where a benchmark switches this one off; with tool.search.fallback=qa a model
    that would search asks question answering instead, by which LAMA may be answered."""
