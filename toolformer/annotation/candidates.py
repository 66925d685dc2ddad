"""What travels through the annotation: tool settings, windows of documents, candidates. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from toolformer.calls import ApiCall
from toolformer.documents import Document
from toolformer.errors import UserError
from toolformer.language_model import Encoding, LanguageModel
from toolformer.tools.prompts import Prompt

SCORED = "scored"


@dataclass(frozen=True)
class ToolSettings:
    """How calls of one tool are proposed and kept (paper, section 2 and appendix A)."""

    key: str
    """Its name in configuration and tables: `calculator`."""
    name: str
    """Its name in a call: `Calculator`."""
    prompt: Prompt
    start_threshold: float = 0.05
    """τ_s: a position is tried when p(<API>) exceeds it."""
    max_positions: int = 5
    """k: positions tried a text."""
    samples: int = 5
    """m: calls sampled a position."""
    filter_threshold: float = 1.0
    """τ_f in nats: a call is kept when its gain reaches it."""
    selector: str = "any"
    """Which texts are tried (appendix A.1): any, calculator, calendar or translation."""
    max_call_tokens: int = 40
    """A sampled call that has not ended by then is discarded."""
    force_name: bool = False
    """Whether the tool's name is written after the call token, for models too small to write it; not the paper's."""
    window_tokens: int | None = None
    """Tokens of a text that are annotated as one; None is as many as the model's context holds."""
    window_overlap: int = 0
    """Tokens at the beginning of every window but a text's first that are context only."""


@dataclass(frozen=True)
class Window:
    """Tokens [start, end) of a document: the whole text, or as much as fits the model's context."""

    document: Document
    encoding: Encoding
    """The document's tokens. Where a call must not stand in this window there is no character position: inside of a
    character, and in the tokens that an earlier window has tried."""
    start: int
    end: int
    offset: int | None = None
    """Character at which the window's text begins, where its first token has no position."""

    @property
    def ids(self) -> list[int]:
        return self.encoding.ids[self.start : self.end]

    @property
    def text(self) -> str:
        positions = self.encoding.positions
        begin = positions[self.start] if self.start < len(positions) else len(self.document.text)
        if self.offset is not None:
            begin = self.offset
        stop = positions[self.end] if self.end < len(positions) else None
        return self.document.text[begin:stop]


@dataclass(frozen=True)
class Candidate:
    """A sampled call and everything that is known about it."""

    window: Window
    tool: str
    """The tool's configuration key."""
    token_position: int
    """i, 0-based: the call would stand before this token of the document."""
    start_probability: float
    sample: int
    text: str
    """What the model wrote after the start token, up to where the call ends or the sample was given up."""
    call: ApiCall | None
    """The call with its result once executed; None if the text is no call."""
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

    @property
    def gain(self) -> float | None:
        """L⁻ − L⁺ in nats: what the result is worth to the model (paper, section 2)."""
        if self.loss_result is None or self.loss_no_result is None or self.loss_none is None:
            return None
        return min(self.loss_none, self.loss_no_result) - self.loss_result


def windows(
    language_model: LanguageModel,
    document: Document,
    encoding: Encoding,
    settings: ToolSettings,
    spans: list[tuple[int, int]],
) -> list[Window]:
    """The parts of a document that are annotated as one text each: its selected spans, cut to what fits.

    The prompt holds the text once and is followed by it again, so that a text takes its length twice. Every position
    of a span is tried in exactly one window; with an overlap it has at least so many tokens of context there, or all.

    Raises:
        UserError: the tool's prompt leaves no room for a text, or the overlap none for a position.
    """
    longest = _longest(language_model, settings)
    found: list[Window] = []
    for begin, stop in spans:
        inside = [
            n
            for n, position in enumerate(encoding.positions)
            if position is not None and begin <= position < stop
        ]
        if not inside:
            continue
        first, end = inside[0], _last_token(encoding, stop)
        start = first
        while first < end:
            cut = min(start + longest, end)
            while cut < end and encoding.positions[cut] is None and cut > first + 1:
                cut -= 1
            found.append(_window(document, encoding, start, first, cut))
            start, first = max(cut - settings.window_overlap, inside[0]), cut
            while start < end and encoding.positions[start] is None:
                start -= 1
    return found


def _longest(language_model: LanguageModel, settings: ToolSettings) -> int:
    """Tokens of a window."""
    room = language_model.context_length - settings.max_call_tokens - 16
    fits = (room - len(language_model.own_prefix) - len(language_model.encode(settings.prompt.fill("")))) // 2
    if fits < 16:
        raise UserError(
            f"tool.{settings.key}: its prompt does not fit into the context of {language_model.context_length} tokens "
            f"of model {language_model.name}; shorten the prompt or choose a model with a longer context"
        )
    longest = min(fits, settings.window_tokens or fits)
    if settings.window_overlap > longest - 8:
        raise UserError(
            f"propose.window_overlap is {settings.window_overlap}, but a window of tool {settings.key} has {longest} "
            f"tokens; it must be at most {longest - 8}"
        )
    return longest


def _window(document: Document, encoding: Encoding, start: int, first: int, end: int) -> Window:
    """Tokens [start, end) with the positions from `first` on; those before it are context."""
    if start == first:
        return Window(document, encoding, start, end)
    positions = list(encoding.positions)
    positions[start:first] = [None] * (first - start)
    return Window(document, replace(encoding, positions=positions), start, end, encoding.positions[start])


def _last_token(encoding: Encoding, stop: int) -> int:
    """The first token at or after character `stop`."""
    for n, position in enumerate(encoding.positions):
        if position is not None and position >= stop:
            return n
    return len(encoding.ids)
