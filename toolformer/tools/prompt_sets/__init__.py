"""Sets of prompts that make a model write calls (paper, appendix A.2): the paper's, its Vietnamese appendix, any folder.

The set `none` has no prompt: a model that was trained on calls writes them into the text.

A folder has a file per tool, `<key>.txt`, in the layout of the paper's appendix A.2:

    an instruction in one line
                                                an empty line between any two parts
    Input: a text
    Output: the text with [Calls(in it)]
                                                more such pairs
    Input: {text}
    Output:

`{text}` is replaced by the text to annotate. Other labels than `Input:` and `Output:` are allowed, if all pairs use them.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from toolformer.calls import NAME, CallSyntaxError, call_end, parse
from toolformer.errors import UserError

OURS = Path(__file__).parent
SETS = ("paper", "paper-vi")
"""Sets of the package: the paper's (appendix A.2 verbatim, with ASCII quotes), and one in Vietnamese."""
PLACE = "{text}"

_OPENING = re.compile(rf"\[[ \t]*({NAME})[ \t]*\(")


@dataclass(frozen=True)
class Prompt:
    """P_a: an instruction and demonstrations."""

    instruction: str
    examples: tuple[tuple[str, str], ...]
    """(plain text, the same text with calls)."""
    input_label: str = "Input:"
    output_label: str = "Output:"

    def prefix(self) -> str:
        """The beginning of the prompt, up to the text."""
        if self == UNPROMPTED:
            return ""
        pairs = [
            f"{self.input_label} {text}\n{self.output_label} {annotated}" for text, annotated in self.examples
        ]
        return "\n\n".join([self.instruction, *pairs, f"{self.input_label} "])

    def inputs(self, name: str) -> set[str]:
        """The inputs of the calls of a tool with this name in the examples."""
        inputs = set()
        for _, annotated in self.examples:
            for opening in _OPENING.finditer(annotated):
                end = call_end(annotated[opening.start() + 1 :])
                with suppress(CallSyntaxError):
                    call = parse(annotated[opening.start() :][: 1 + end if end else None])
                    inputs |= {call.input} if call.tool == name else set()
        return inputs

    def fill(self, text: str) -> str:
        """P_a(x)."""
        if self == UNPROMPTED:
            return ""
        return f"{self.prefix()}{text}\n{self.output_label}"


NO_SET = "none"
UNPROMPTED = Prompt("", ())
"""No prompt at all."""


def find_prompt(prompts: str, key: str) -> Prompt | None:
    """A set's prompt for a tool, None if the set has none; `UserError` for an unknown set."""
    check_set(prompts)
    if prompts == NO_SET:
        return UNPROMPTED
    path = prompt_path(prompts, key)
    return read_prompt(path) if path.is_file() else None


def prompt_path(prompts: str, key: str) -> Path:
    """The file with a tool's prompt."""
    folder = OURS / prompts if prompts in SETS else Path(prompts).expanduser()
    return folder / f"{key}.txt"


def check_set(prompts: str) -> None:
    """`UserError` for a name that is neither a set nor a folder."""
    if prompts not in (*SETS, NO_SET) and not Path(prompts).expanduser().is_dir():
        known = f"{', '.join(SETS)}, none, or a folder with a file for each tool, such as calculator.txt"
        raise UserError(f"prompts: there is no set and no folder {prompts!r}; use {known}")


def read_prompt(path: Path) -> Prompt:
    """The prompt in a file; `UserError` for another layout."""
    try:
        text = path.read_text(encoding="utf-8-sig").replace("\r\n", "\n").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: it cannot be read ({error}); write it as UTF-8 text") from error
    parts = [part.split("\n") for part in re.split(r"\n(?:[ \t]*\n)+", text)]
    last = parts[-1]
    if len(last) != 2 or not last[0].endswith(f" {PLACE}") or text.count(PLACE) != 1:
        ending = f"end it with the lines `Input: {PLACE}` and `Output:`, with {PLACE} nowhere else"
        raise UserError(f"{path}: it has no {PLACE} for the text; {ending}")
    labels = (last[0].removesuffix(PLACE).strip(), last[1].strip())
    first, *pairs = parts[:-1] or [[]]
    shapes = [len(pair) == 2 and all(map(str.startswith, pair, labels)) for pair in pairs]
    if len(first) != 1 or first[0].startswith(labels[0]) or not all(shapes):
        layout = f"an instruction in one line and pairs of lines `{labels[0]} ...`, `{labels[1]} ...`"
        raise UserError(f"{path}: it is not {layout}, separated by empty lines")
    examples = tuple(
        (text.removeprefix(labels[0]).strip(), annotated.removeprefix(labels[1]).strip())
        for text, annotated in pairs
    )
    return Prompt(first[0].strip(), examples, *labels)


def check_prompt(prompt: Prompt, name: str) -> str | None:
    """Why a prompt does not demonstrate calls of this tool; None if it does."""
    if not prompt.instruction.strip():
        return "it has no instruction"
    if not prompt.examples:
        return f"it has no example; show a text with a call, such as [{name}(...)]"
    for number, (text, annotated) in enumerate(prompt.examples, start=1):
        if not text or "\n" in text + annotated:
            return f"example {number} is not one line of text and one with calls"
        openings = list(_OPENING.finditer(annotated))
        if not openings:
            return f"example {number} has no call of {name} in its second line; write [{name}(...)] where it helps"
        for opening in openings:
            end = call_end(annotated[opening.start() + 1 :])
            written = annotated[opening.start() :][: 1 + end if end else None]
            with suppress(CallSyntaxError):
                call = parse(written)
                if call.tool == name and call.result is None:
                    continue
            return f"example {number} has {written[:60]!r}, which is not a call of {name} without its result"
    return None
