"""The few-shot prompt that makes a model write calls of a tool (paper, appendix A.2)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """P_a: an instruction and demonstrations."""

    instruction: str
    examples: tuple[tuple[str, str], ...]
    """(plain text, the same text with calls)."""
    input_label: str = "Input:"
    output_label: str = "Output:"

    def prefix(self) -> str:
        """What the prompts of all texts begin with, up to the text itself."""
        pairs = [
            f"{self.input_label} {text}\n{self.output_label} {annotated}" for text, annotated in self.examples
        ]
        return "\n\n".join([self.instruction, *pairs, f"{self.input_label} "])

    def fill(self, text: str) -> str:
        """P_a(x)."""
        return f"{self.prefix()}{text}\n{self.output_label}"
