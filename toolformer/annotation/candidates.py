"""The data of the annotation: tool settings, candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from toolformer.annotation.positions import POSITIONS
from toolformer.annotation.select import SELECTORS
from toolformer.annotation.windows import Window
from toolformer.calls import ApiCall
from toolformer.data.bounds import Count, Finite, NonNegativeInt, OneOf, Share, Temperature
from toolformer.errors import UserError
from toolformer.step import Decides
from toolformer.tools.limits import CallLimits
from toolformer.tools.prompt_sets import UNPROMPTED, Prompt

if TYPE_CHECKING:
    from toolformer.lm.language_model import LanguageModel

SCORED = "scored"


@dataclass(kw_only=True)
class Sampling:
    """How many calls of a tool are tried, and which are kept (paper, section 2 and appendix A)."""

    start_threshold: Share = 0.05
    """τ_s: positions are tried where the call token's probability exceeds it."""
    max_positions: Count = 5
    """k: maximum positions tried per text."""
    places: Annotated[str, OneOf(*POSITIONS)] = "any"
    """Which positions may be tried: any, as in the paper; number, at most three tokens before a number; equals, after each
    equals sign that a number follows; or name, before each number and each sequence of capitalised words."""
    samples: Count = 5
    """m: calls sampled per position."""
    filter_threshold: Annotated[Finite | None, Decides("generate")] = None
    """τ_f of this tool in nats; null uses the common filter_threshold."""
    selector: Annotated[str, OneOf(*SELECTORS)] = "any"
    """Which texts are tried: any; calculator, calendar or translation, the rules of appendix A.1; or article, texts of an
    encyclopedia, which have a `source_id`."""
    drop_look_ahead: bool = False
    """Drop a call whose input the text has only after the call, since it would be unknown at inference. The paper does so for
    translation."""


@dataclass(kw_only=True)
class ToolSampling(Sampling):
    """The same, with what a tool may have in place of a value of all tools."""

    rank: Annotated[str, OneOf("probability", "lift")] | None = None
    """How its positions are ranked; null uses propose.rank."""
    temperature: Temperature | None = None
    """Sampling temperature of its calls; null uses propose.temperature."""
    result_ahead: Annotated[int, Field(ge=0)] | None = None
    """Pre-filter: score a call only if something of its result begins within this many tokens after it; 0 turns this off, null
    uses screen.result_ahead."""


@dataclass(kw_only=True)
class Proposing:
    """How calls of all tools are proposed."""

    rank: Annotated[str, OneOf("probability", "lift")] = "probability"
    """How positions are ranked: probability of the call token, as in the paper; or lift, the ratio of this probability to the
    one without the prompt, which takes one more pass over the text."""
    force_name: bool = False
    """Write the tool's name after the call token, for models too small to write it themselves; not in the paper."""
    close: bool = False
    """Add the closing parenthesis to a sampled call that lacks nothing else, such as [QA("Who?"]; not in the paper."""
    temperature: Temperature = 1.0
    """Sampling temperature of calls; a small model writes better calls below 1. The paper names none."""
    window_tokens: Annotated[int, Field(ge=16)] | None = None
    """Maximum tokens of a text to annotate at once; null: as many as fit into the model's context."""
    window_overlap: NonNegativeInt = 0
    """Tokens at the start of a later window that serve only as context; no call is tried there again."""


@dataclass
class PreFilters:
    """Which tests a call has to pass to be scored; none in the paper."""

    result_ahead: Annotated[int, Field(ge=1)] | None = None
    """Pre-filter: score a call only if a number of its result, or a word of four letters or more, begins within this many
    tokens after it; if the result has neither, the whole result must. null turns this off."""
    new_result: bool = False
    """Pre-filter: score a call only if its result has a number or a word that its input lacks; result_ahead then looks for
    these alone."""


@dataclass
class Filtering:
    """Which scored calls are kept; applied after scoring, so that a change needs no model."""

    baseline: Annotated[str, OneOf("paper", "plain"), Decides("generate")] = "paper"
    """The loss that a call must beat (L⁻): paper, min(L(ε), L(e(c, ε))); or plain, L(ε) alone."""
    leak: Annotated[str, OneOf("keep", "drop"), Decides("generate")] = "keep"
    """Calls with a number or a name that the text has only after the call: keep (and count them), as in the paper, or drop."""


@dataclass
class ToolSettings(Sampling, CallLimits, Proposing):
    """How calls of one tool are proposed and kept."""

    key: str
    """Its name in configuration and tables: `calculator`."""
    name: str
    """Its name in a call: `Calculator`."""
    prompt: Prompt
    filter_threshold: Finite = field(default=1.0, kw_only=True)
    result_ahead: int | None = field(default=None, kw_only=True)
    """In place of that of the pre-filters; 0 for no such test."""


def scoring_floor(thresholds: Mapping[str, float], floor: float | None) -> float:
    """The lowest τ_f in nats that scored losses must serve: `floor`, or the lowest of the tools' `thresholds`.

    UserError if a tool's threshold is below `floor`.
    """
    tool = min(thresholds, key=lambda tool: thresholds[tool])
    if floor is not None and floor > thresholds[tool]:
        raise UserError(
            f"score.floor is {floor:g}, above the filter_threshold {thresholds[tool]:g} of tool {tool}; set score.floor={thresholds[tool]:g} or lower"
        )
    return thresholds[tool] if floor is None else floor


@dataclass(frozen=True)
class Candidate:
    """A sampled call with its results so far."""

    window: Window
    tool: str
    """The tool's configuration key."""
    token_position: int
    """i, 0-based: the call would go before this token of the document."""
    start_probability: float
    sample: int = 0
    text: str = ""
    """The model's text after the start token, up to the end of the call or of the sample."""
    call: ApiCall | None = None
    """The call, with its result once executed; None if the text is not a call."""
    status: str = SCORED
    """`scored`, or the reason why the candidate was dropped."""
    loss_result: float | None = None
    loss_no_result: float | None = None
    loss_none: float | None = None

    @property
    def position(self) -> int:
        """Character offset of the call in the plain text."""
        position = self.window.encoding.positions[self.token_position]
        assert position is not None  # propose offers no position inside a character
        return position


def longest_window(language_model: LanguageModel, settings: ToolSettings) -> int:
    """Maximum tokens of a window. UserError if the tool's prompt leaves no room for a text, or the overlap none for a position."""
    prompt = len(language_model.bos_ids) + len(language_model.encode(settings.prompt.fill("")))
    room = language_model.context_length - settings.max_call_tokens - 16 - prompt
    fits = room // (1 + (settings.prompt != UNPROMPTED))  # the prompt contains the text too
    if fits < 16:
        context = f"the context of {language_model.context_length} tokens of model {language_model.name}"
        advice = "shorten it, or choose a model with a longer context"
        raise UserError(f"tool.{settings.key}: its prompt does not fit into {context}; {advice}")
    longest = min(fits, settings.window_tokens or fits)
    if settings.window_overlap > longest - 8:
        reason = f"a window of tool {settings.key} has {longest} tokens; it must be at most {longest - 8}"
        raise UserError(f"propose.window_overlap is {settings.window_overlap}, but {reason}")
    return longest
