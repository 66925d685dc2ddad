"""The call notation: how a call is written in a text (paper, section 2). Imports nothing of this project.

    e(c)    = " [Calculator(400 / 1400)]"
    e(c, r) = " [Calculator(400 / 1400) -> 0.29]"

`" ["` plays the part of the paper's `<API>`, `"]"` of `</API>` and `"->"` of the arrow, so that no vocabulary is
added. An input is written as it is, or in double quotes with the escapes `\\" \\\\ \\n \\r \\t`. Quotes are used where
the caller asks for them (the paper's prompts do, for questions and search terms), and always for an input that
would not survive unquoted: one with square brackets, an arrow, unbalanced parentheses, a line break, a quote at
its start, its only quote at its end, or blanks at its ends. Inside quotes every character is allowed; a ")" that comes first is written `\\)`,
so that the opening quote of a call never closes the quotes of an unfinished call before it.

A result is one line without brackets, arrows or control characters: `clean_result` turns "[" and "]" into parentheses
and "->" into "→". So the first "]" after the arrow ends the call, whatever a tool answered, and a text with calls can always be
read back: `parse(linearise(call)) == call`, and `strip(insert(text, calls), names) == text`, `names` being those of the
tools, for every text that has no call of these with a result, unfinished calls included, unless a call is put right
after a backslash. `[Note (x) -> y]` in somebody's text is text: no tool has that name. Reading takes time linear in the
text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import regex

START = " ["
END = "]"
ARROW = "->"

NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*"
_NAME = re.compile(NAME)
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_QUOTED_OPENING = re.compile(rf'[ \t]*{NAME}[ \t]*\([ \t]*"')
_QUOTED_REST = re.compile(r'(?:[^"\\]|\\.)*"', re.DOTALL)
_QUOTED_FIRST = re.compile(r'"(?:[^"\\]|\\.)*"[ \t]*,', re.DOTALL)
_SPACES = re.compile(" *")
_CALL_BEGUN = re.compile(rf"\[[ \t]*({NAME})[ \t]*\(")
_TO_BRACKET = re.compile(r"[^\[\]]*")
_BLANKS = " \t"
# ECMA-48: colours and cursor movements; titles and links, up to the end of their line; other escapes. Each may be cut off.
# Strings that begin with an 8-bit control are not read: UTF-8's quotation marks, taken for Latin-1, look like them.
_CONTROL_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
# Characters without a glyph, but those that join letters or emoji, or select a glyph.
_INVISIBLE = regex.compile(
    r"[[\p{Cc}\p{Default_Ignorable_Code_Point}\ufff9-\ufffb]--[\s\p{Join_Control}\p{Variation_Selector}]]",
    regex.V1,
)
_JOINERS = "\u200c\u200d"
# What str.splitlines calls a line end; none may occur in a result or in an unquoted input.
_LINE_BREAK = re.compile(r"[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")


class CallSyntaxError(ValueError):
    """A text that is not a call."""


@dataclass(frozen=True)
class ApiCall:
    """A call c = (a, i) and, once executed, its result r (paper, section 2)."""

    tool: str
    """Its name a, as it is written in a text: `Calculator`."""
    input: str
    """Its input i, without quotes and escapes."""
    result: str | None = None
    """`None` for e(c); a text, maybe empty, for e(c, r). Always clean (see `clean_result`)."""
    quoted: bool = False
    """Whether the input is written in double quotes."""

    def with_result(self, result: str) -> ApiCall:
        """The same call with a result, cleaned."""
        return replace(self, result=clean_result(result))

    def as_row(self) -> dict[str, str | bool | None]:
        """The call as the fields of a stored row: `name`, `input`, `quoted`, `result`."""
        return {"name": self.tool, "input": self.input, "quoted": self.quoted, "result": self.result}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> ApiCall:
        """The inverse of `as_row`; other fields are ignored, and a result that is not clean is cleaned."""
        result = row["result"]
        return cls(row["name"], row["input"], None if result is None else clean_result(result), row["quoted"])


def clean_result(text: str) -> str:
    """A result that fits into a text: one line, single blanks, no square brackets, no arrow, nothing invisible.

    Examples:
        >>> clean_result("Dune [novel] ->\\n 1965"), clean_result("\\x1b[32m42 passed\\x1b[0m")
        ('Dune (novel) → 1965', '42 passed')
    """
    if not (text.isascii() and text.isprintable()):
        text = _CONTROL_SEQUENCE.sub("", text)
        if "\b" in text:
            text = "\n".join(map(_overwritten, text.split("\n")))
        text = _INVISIBLE.sub("", text)
    text = text.replace("[", "(").replace("]", ")").replace(ARROW, "→")
    # str.split() without arguments splits at every Unicode blank and line end.
    return " ".join(text.split()).strip(f"{_JOINERS} ")


def _overwritten(line: str) -> str:
    """A line as a terminal shows it: after a backspace the next character takes the place of the one before it."""
    shown: list[str] = []
    at = 0
    for character in line:
        if character == "\b":
            at = max(at - 1, 0)
        else:
            shown[at : at + 1] = [character]
            at += 1
    return "".join(shown)


def linearise(call: ApiCall) -> str:
    """The call as written in a text, with its leading blank.

    CallSyntaxError if the tool's name is not a name, or the result is not clean.
    """
    if not _NAME.fullmatch(call.tool):
        raise CallSyntaxError(f"{call.tool!r} is not a tool's name")
    body = _quote(call.input) if call.quoted or not _is_plain(call.input) else call.input
    if call.result is None:
        return f"{START}{call.tool}({body}){END}"
    if clean_result(call.result) != call.result:
        raise CallSyntaxError(f"the result {call.result[:40]!r} is not clean: use ApiCall.with_result")
    result = f"{call.result}{END}" if call.result else END
    return f"{START}{call.tool}({body}) {ARROW} {result}"


def parse(text: str) -> ApiCall:
    """Parses `text` as one call; a blank before the bracket and blanks around its parts are allowed.

    CallSyntaxError if it is not exactly one call.
    """
    start = len(text) - len(text.lstrip(_BLANKS))
    call, end = _parse_at(text, start)
    if end != len(text):
        raise CallSyntaxError(f"text after the call: {text[end : end + 20]!r}")
    return call


def find_calls(text: str, names: Collection[str]) -> list[tuple[int, int, ApiCall]]:
    """Every call with a result of the tools with these names, as (start, end, call); the blank before "[" belongs to it."""
    calls: list[tuple[int, int, ApiCall]] = []
    position = 0
    while (bracket := text.find("[", position)) >= 0:
        # Look on inside what is not such a call: its quotes may reach into one.
        position = bracket + 1
        with suppress(CallSyntaxError):
            call, end = _parse_at(text, bracket)
            if call.result is not None and call.tool in names:
                position = end
                calls.append((bracket - (text[bracket - 1 : bracket] == " "), end, call))
    return calls


def insert(text: str, calls: Sequence[tuple[int, ApiCall]]) -> str:
    """x* = x_1..x_{i-1}, e(c_i, r_i), x_i..x_n: the calls put in at their character positions.

    Positions refer to the plain text (ValueError if one is outside it). Calls at one position keep their order.
    """
    pieces: list[str] = []
    last = 0
    for position, call in sorted(calls, key=lambda item: item[0]):
        if not 0 <= position <= len(text):
            raise ValueError(f"position {position} is outside the text of {len(text)} characters")
        pieces += [text[last:position], linearise(call)]
        last = position
    pieces.append(text[last:])
    return "".join(pieces)


def strip(text: str, names: Collection[str]) -> str:
    """`text` without the calls that `find` finds."""
    pieces: list[str] = []
    last = 0
    for start, end, _ in find_calls(text, names):
        pieces.append(text[last:start])
        last = end
    pieces.append(text[last:])
    return "".join(pieces)


def call_end(text: str) -> int | None:
    """Where the call that opens `text` ends, or None while it is still open.

    `text` begins after `" ["`. The "]" that ends a call is the first one outside its quotes, so that a
    question may hold brackets; this is what sampling watches for `</API>`.

    Examples:
        >>> call_end('QA("Who wrote [sic]?")] Next')
        23
    """
    start = _quotes_end(text)
    end = -1 if start is None else text.find(END, start)
    return end + len(END) if end >= 0 else None


def begins_result(text: str) -> bool:
    """Whether a result is begun in the call that opens `text`, which begins after `" ["`: text between its arrow and "]".

    An arrow inside of quotes belongs to the input.

    >>> begins_result("Calculator(2 + 3) -> 5"), begins_result("Calculator(2 + 3) ->"), begins_result('QA("a -> b')
    (True, False, False)
    """
    start = _quotes_end(text)
    arrow = -1 if start is None else text.find(ARROW, start)
    return arrow >= 0 and bool(text[arrow + len(ARROW) :].partition(END)[0].strip())


def begins_call(text: str, names: Collection[str]) -> bool:
    """Whether a call of a tool with one of these names is begun in a text; not within the quoted input of a call that opens it.

    >>> begins_call("Calculator(2 + [QA(", ["QA"]), begins_call("Calculator(2 + (", ["QA", "Calculator"])
    (True, False)
    """
    start = _quotes_end(text)
    return start is not None and any(begun[1] in names for begun in _CALL_BEGUN.finditer(text, start))


def _quotes_end(text: str) -> int | None:
    """Where the quoted input of the call that opens `text` ends, 0 if it is not quoted; None while the quotes are open."""
    opening = _QUOTED_OPENING.match(text)
    if not opening:
        return 0
    closing = _QUOTED_REST.match(text, opening.end())
    return closing.end() if closing else None


def _parse_at(text: str, start: int) -> tuple[ApiCall, int]:
    """The call whose "[" is at `start`, and the position after its "]"."""
    if not text.startswith("[", start):
        raise CallSyntaxError('a call begins with "["')
    position = _skip_blanks(text, start + 1)
    name = _NAME.match(text, position)
    if not name:
        raise CallSyntaxError('no tool name after "["')
    position = _skip_blanks(text, name.end())
    if not text.startswith("(", position):
        raise CallSyntaxError(f'no "(" after {name.group()!r}')
    body = _skip_blanks(text, position + 1)
    quoted = text.startswith('"', body) and not _several(text, body)
    value, position = _read_quoted(text, body) if quoted else _read_plain(text, body)
    position = _skip_blanks(text, position)
    result: str | None = None
    if text.startswith(ARROW, position):
        # Not further: reading stays linear in the text.
        end = _TO_BRACKET.match(text, position).end()  # type: ignore[union-attr]
        if not text.startswith(END, end):
            raise CallSyntaxError("the call is not closed")
        result = text[position + len(ARROW) : end].strip(_BLANKS)
        if clean_result(result) != result:
            raise CallSyntaxError("the result is not one clean line")
        position = end
    if not text.startswith(END, position):
        raise CallSyntaxError('no "]" after the call')
    return ApiCall(name.group(), value, result, quoted), position + len(END)


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in _BLANKS:
        position += 1
    return position


def _read_quoted(text: str, start: int) -> tuple[str, int]:
    """The quoted input whose opening quote is at `start`, and the position after its closing parenthesis."""
    pieces: list[str] = []
    position = start + 1
    first = _SPACES.match(text, position).end()  # type: ignore[union-attr]  # it may be empty
    while position < len(text):
        character = text[position]
        if character == '"':
            position = _skip_blanks(text, position + 1)
            if not text.startswith(")", position):
                raise CallSyntaxError('no ")" after the quoted input')
            return "".join(pieces), position + 1
        if character == "\\" and position + 1 < len(text):
            following = text[position + 1]
            # A model that writes C:\dir means the backslash: only our own escapes are escapes.
            escaped = ")" if following == ")" and position == first else "\\" + following
            pieces.append(_ESCAPES.get(following, escaped))
            position += 2
            continue
        pieces.append(character)
        position += 1
    raise CallSyntaxError("the quoted input is not closed")


def _read_plain(text: str, start: int) -> tuple[str, int]:
    """The unquoted input that begins at `start`, and the position after its closing parenthesis."""
    depth = 0
    for position in range(start, len(text)):
        character = text[position]
        if character == "(":
            depth += 1
        elif character == ")":
            if depth == 0:
                value = text[start:position].strip(_BLANKS)
                if ARROW in value or value.startswith('"') and not _several(value):
                    raise CallSyntaxError("the unquoted input contains an arrow or a quote")
                return value, position + 1
            depth -= 1
        elif character in "[]" or _LINE_BREAK.match(character):
            break
    raise CallSyntaxError("the input is not closed")


def _is_plain(value: str) -> bool:
    """Whether an input reads back the same without quotes, and does not end with its only quote."""
    with suppress(CallSyntaxError):
        quote = _QUOTED_REST.match(value)  # up to the first one
        is_last = quote is not None and quote.end() == len(value)
        return not is_last and _read_plain(f"{value})", 0) == (value, len(value) + 1)
    return False


def _several(text: str, start: int = 0) -> bool:
    """Whether a quoted argument that others follow begins at `start`."""
    return bool(_QUOTED_FIRST.match(text, start))


def _quote(value: str) -> str:
    body = "".join(_ESCAPED.get(character, character) for character in value)
    if body.lstrip(" ").startswith(")"):
        body = body.replace(")", "\\)", 1)
    return f'"{body}"'
