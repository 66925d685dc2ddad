"""How long a call of a tool and its result may be: the same in annotation and at inference."""

from dataclasses import dataclass
from typing import Annotated

from toolformer.data.bounds import Count
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
