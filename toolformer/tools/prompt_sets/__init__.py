"""Sets of few-shot prompts: the paper's, its Vietnamese appendix, any folder.

A folder has a file for each tool, `<key>.txt`, with the layout of the paper's appendix A.2:

    an instruction in one line
                                                an empty line between any two parts
    Input: a text
    Output: the text with [Calls(in it)]
                                                more such pairs
    Input: {text}
    Output:

`{text}` is the place for the text to annotate. The words before the colons may be others, the same in all pairs.
"""

from __future__ import annotations

import re
from pathlib import Path

from toolformer.calls import NAME, CallSyntaxError, call_end, parse
from toolformer.errors import UserError
from toolformer.tools.prompts import PROMPTS, Prompt

PAPER = "paper"
FOLDERS = {"paper-vi": Path(__file__).parent / "paper-vi"}
"""Sets that come with the package, besides the paper's."""
PLACE = "{text}"

_OPENING = re.compile(rf"\[[ \t]*({NAME})[ \t]*\(")


def find(prompts: str, key: str) -> Prompt | None:
    """The prompt of a set for a tool, or None where the set has none.

    Raises:
        UserError: there is no such set, or the file is no prompt.
    """
    check_set(prompts)
    if prompts == PAPER:
        return PROMPTS.get(key)
    path = Path(place(prompts, key))
    return read(path) if path.is_file() else None


def place(prompts: str, key: str) -> str:
    """What a tool's prompt is known by: the file, or its name in the paper's set."""
    if prompts == PAPER:
        return f"prompt {key!r} in the set {PAPER}"
    return str(FOLDERS.get(prompts, Path(prompts).expanduser()) / f"{key}.txt")


def check_set(prompts: str) -> None:
    """Refuses a name that is neither a set nor a folder."""
    if prompts != PAPER and prompts not in FOLDERS and not Path(prompts).expanduser().is_dir():
        raise UserError(
            f"prompts: there is no set and no folder {prompts!r}; use {', '.join([PAPER, *FOLDERS])}, or a folder with a "
            "file for each tool, such as calculator.txt"
        )


def read(path: Path) -> Prompt:
    """The prompt in a file.

    Raises:
        UserError: its layout is another.
    """
    try:
        text = path.read_text(encoding="utf-8").replace("\r\n", "\n").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: it cannot be read ({error}); write it as UTF-8 text") from error
    parts = [part.split("\n") for part in re.split(r"\n(?:[ \t]*\n)+", text)]
    last = parts[-1]
    if len(last) != 2 or not last[0].endswith(f" {PLACE}") or text.count(PLACE) != 1:
        raise UserError(
            f"{path}: it has no place for the text; end it with the lines `Input: {PLACE}` and `Output:`, with {PLACE} "
            "nowhere else"
        )
    labels = (last[0].removesuffix(PLACE).strip(), last[1].strip())
    if len(parts[0]) != 1 or parts[0][0].startswith(labels[0]):
        raise UserError(f"{path}: its first part is no instruction in one line with an empty line behind it")
    examples = []
    for number, part in enumerate(parts[1:-1], start=1):
        if len(part) != 2 or not all(
            line.startswith(f"{label} ") for line, label in zip(part, labels, strict=True)
        ):
            raise UserError(
                f"{path}: example {number} is not a line `{labels[0]} ...` and a line `{labels[1]} ...`, parted from the "
                "others by empty lines"
            )
        examples.append((part[0][len(labels[0]) :].strip(), part[1][len(labels[1]) :].strip()))
    return Prompt(parts[0][0].strip(), tuple(examples), *labels)


def write(prompt: Prompt) -> str:
    """A prompt as the text of a file."""
    return f"{prompt.fill(PLACE)}\n"


def check(prompt: Prompt, name: str) -> str | None:
    """Why a prompt cannot teach calls of a tool of this name; None if it can."""
    if not prompt.instruction.strip():
        return "it has no instruction"
    if not prompt.examples:
        return f"it has no example; show a text with a call, such as [{name}(...)]"
    for number, (text, annotated) in enumerate(prompt.examples, start=1):
        if not text or any("\n" in one for one in (text, annotated)):
            return f"example {number} is not one line of text and one with calls"
        calls = 0
        for opening in _OPENING.finditer(annotated):
            end = call_end(annotated[opening.start() + 1 :])
            written = annotated[opening.start() :][: 1 + end if end else None]
            try:
                call = parse(written)
            except CallSyntaxError as error:
                return f"example {number} has {written[:60]!r}, which is no call ({error})"
            if call.tool != name:
                return f"example {number} calls {call.tool!r}, but the tool is called {name}"
            if call.result is not None:
                return f"example {number} has a call with its result; leave the result out"
            calls += 1
        if not calls:
            return f"example {number} has no call of {name} in its second line; write [{name}(...)] where it helps"
    return None
