"""Text from data, models and runs, escaped so that Markdown and LaTeX show it as it is."""

import re
import unicodedata

# Control characters, and those that change the direction of everything after them.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\uffff]"
)


def clean(text: str) -> str:
    """The text on one line, without control characters, direction marks and halves of surrogate pairs."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return " ".join(_INVISIBLE.sub(" ", text).split())


def markdown(text: str) -> str:
    """For GitHub Markdown, inside a table or out of it."""
    text = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_\[\]|~$#!{}])", r"\\\1", text)
    # No address or user name becomes a link.
    return re.sub(r"(?i)(?<=www)(?=\.)|(?<=:)(?=//)|(?<=@)(?=\w)", "<!-- -->", text)


def markdown_code(text: str) -> str:
    """A code span of GitHub Markdown inside a table, whose text can be copied."""
    text = clean(text).replace("|", r"\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    blank = " " if "`" in text else ""
    return f"{fence}{blank}{text}{blank}{fence}" if text else ""


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"{\char34}", "`": r"\textasciigrave{}", "-": "-{}", "[": "{[}", "]": "{]}",
    "–": "--{}", "—": "---{}", "‘": "`{}", "’": "'{}", "“": "``{}", "”": "''{}", "…": r"\ldots{}", "•": r"\textbullet{}",
    "−": r"\ensuremath{-}", "→": r"\ensuremath{\rightarrow}", "≤": r"\ensuremath{\leq}", "≥": r"\ensuremath{\geq}",
    "τ": r"\ensuremath{\tau}", "ε": r"\ensuremath{\varepsilon}", "⁻": r"\textsuperscript{\ensuremath{-}}",
    "⁺": r"\textsuperscript{+}", "€": r"\texteuro{}", "†": r"\textdagger{}", "‡": r"\textdaggerdbl{}",
}  # fmt: skip


def latex(text: str) -> str:
    """For LaTeX. Scripts that pdfLaTeX has no letters for need XeLaTeX or LuaLaTeX."""
    text = "".join(
        _LATEX.get(character, character) for character in unicodedata.normalize("NFC", clean(text))
    )
    return text.replace(r"\ensuremath{\tau}\_f", r"$\tau_f$")
