"""The few-shot prompts that make a model write calls: constants of the method.

Source: Schick et al., 2023, appendix A.2, word for word, with plain ASCII quotes. Form: the instruction, a blank line,
then `Input:` and `Output:` pairs, a blank line between two, and last the text to annotate with an open `Output:`.
"""

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


QA = Prompt(
    "Your task is to add calls to a Question Answering API to a piece of text. The questions should help you get "
    'information required to complete the text. You can call the API by writing "[QA(question)]" where "question" is '
    "the question you want to ask. Here are some examples of API calls:",
    (
        (
            "Joe Biden was born in Scranton, Pennsylvania.",
            'Joe Biden was born in [QA("Where was Joe Biden born?")] Scranton, [QA("In which state is Scranton?")] '
            "Pennsylvania.",
        ),
        (
            "Coca-Cola, or Coke, is a carbonated soft drink manufactured by the Coca-Cola Company.",
            'Coca-Cola, or [QA("What other name is Coca-Cola known by?")] Coke, is a carbonated soft drink manufactured '
            'by [QA("Who manufactures Coca-Cola?")] the Coca-Cola Company.',
        ),
    ),
)

CALCULATOR = Prompt(
    "Your task is to add calls to a Calculator API to a piece of text. The calls should help you get information "
    'required to complete the text. You can call the API by writing "[Calculator(expression)]" where "expression" is '
    "the expression to be computed. Here are some examples of API calls:",
    (
        (
            "The number in the next term is 18 + 12 x 3 = 54.",
            "The number in the next term is 18 + 12 x 3 = [Calculator(18 + 12 * 3)] 54.",
        ),
        (
            "The population is 658,893 people. This is 11.4% of the national average of 5,763,868 people.",
            "The population is 658,893 people. This is 11.4% of the national average of [Calculator(658,893 / 11.4%)] "
            "5,763,868 people.",
        ),
        (
            "A total of 252 qualifying matches were played, and 723 goals were scored (an average of 2.87 per match). "
            "This is three times less than the 2169 goals last year.",
            "A total of 252 qualifying matches were played, and 723 goals were scored (an average of "
            "[Calculator(723 / 252)] 2.87 per match). This is twenty goals more than the [Calculator(723 - 20)] 703 "
            "goals last year.",
        ),
        (
            "I went to Paris in 1994 and stayed there until 2011, so in total, it was 17 years.",
            "I went to Paris in 1994 and stayed there until 2011, so in total, it was [Calculator(2011 - 1994)] 17 years.",
        ),
        (
            "From this, we have 4 * 30 minutes = 120 minutes.",
            "From this, we have 4 * 30 minutes = [Calculator(4 * 30)] 120 minutes.",
        ),
    ),
)

SEARCH = Prompt(
    "Your task is to complete a given piece of text. You can use a Wikipedia Search API to look up information. You can "
    'do so by writing "[WikiSearch(term)]" where "term" is the search term you want to look up. Here are some '
    "examples of API calls:",
    (
        (
            "The colors on the flag of Ghana have the following meanings: red is for the blood of martyrs, green for "
            "forests, and gold for mineral wealth.",
            'The colors on the flag of Ghana have the following meanings: red is for [WikiSearch("Ghana flag red '
            'meaning")] the blood of martyrs, green for forests, and gold for mineral wealth.',
        ),
        (
            "But what are the risks during production of nanomaterials? Some nanomaterials may give rise to various "
            "kinds of lung damage.",
            'But what are the risks during production of nanomaterials? [WikiSearch("nanomaterial production risks")] '
            "Some nanomaterials may give rise to various kinds of lung damage.",
        ),
        (
            "Metformin is the first-line drug for patients with type 2 diabetes and obesity.",
            'Metformin is the first-line drug for [WikiSearch("Metformin first-line drug")] patients with type 2 '
            "diabetes and obesity.",
        ),
    ),
)

TRANSLATION = Prompt(
    "Your task is to complete a given piece of text by using a Machine Translation API. You can do so by writing "
    '"[MT(text)]" where text is the text to be translated into English. Here are some examples:',
    (
        (
            'He has published one book: O homem suprimido ("The Supressed Man")',
            'He has published one book: O homem suprimido [MT(O homem suprimido)] ("The Supressed Man")',
        ),
        (
            "In Morris de Jonge's Jeschuah, der klassische jüdische Mann, there is a description of a Jewish writer",
            "In Morris de Jonge's Jeschuah, der klassische jüdische Mann [MT(der klassische jüdische Mann)], there is a "
            "description of a Jewish writer",
        ),
        (
            "南京高淳县住房和城乡建设局 城市新区设计 a plane of reference Gaochun is one of seven districts of the "
            "provincial capital Nanjing",
            "[MT(南京高淳县住房和城乡建设局 城市新区设计)] a plane of reference Gaochun is one of seven districts of "
            "the provincial capital Nanjing",
        ),
    ),
)

CALENDAR = Prompt(
    "Your task is to add calls to a Calendar API to a piece of text. The API calls should help you get information "
    'required to complete the text. You can call the API by writing "[Calendar()]" Here are some examples of API '
    "calls:",
    (
        ("Today is the first Friday of the year.", "Today is the first [Calendar()] Friday of the year."),
        (
            "The president of the United States is Joe Biden.",
            "The president of the United States is [Calendar()] Joe Biden.",
        ),
        (
            "The current day of the week is Wednesday.",
            "The current day of the week is [Calendar()] Wednesday.",
        ),
        (
            "The number of days from now until Christmas is 30.",
            "The number of days from now until Christmas is [Calendar()] 30.",
        ),
        (
            "The store is never open on the weekend, so today it is closed.",
            "The store is never open on the weekend, so today [Calendar()] it is closed.",
        ),
    ),
)

PROMPTS = {
    "calculator": CALCULATOR,
    "calendar": CALENDAR,
    "search": SEARCH,
    "qa": QA,
    "translation": TRANSLATION,
}
"""By the tool's key in configuration."""
