"""Paraphrases of the paper's prompts, written for this project (`wording=a`, `b`, `c`, `d`); `tasks` has the paper's.

By kind of prompt: the function of `tasks` that makes the paper's, or `arithmetic`, whose prompt is another.
"""

from collections.abc import Callable, Mapping
from typing import Any

from toolformer.benchmarks import tasks
from toolformer.benchmarks.tasks import Doc, problem_of, question_of
from toolformer.errors import UserError

TEMPLATES: Mapping[str, Mapping[str, str]] = {
    "statement_prompt": {
        "a": "Continue this statement with the right words: {text}",
        "b": "Everything that stands here is true. {text}",
        "c": "The next line ends with a fact that you know.\n{text}",
        "d": "Fact: {text}",
    },
    "math_prompt": {
        "a": "{problem} So the number that we look for is",
        "b": "Solve this problem. {problem} Solution:",
        "c": "Here is a problem with numbers: {problem}\nIts result is",
        "d": "{problem} Work it out. Result:",
    },
    "question_prompt": {
        "a": "Please tell me: {question}",
        "b": "{question} In a few words:",
        "c": "Somebody wants to know something and asks: {question} The reply is:",
        "d": "Quiz: {question}\nSolution:",
    },
    "passage_prompt": {
        "a": "Read this paragraph. {context} With its help, reply in English: {asked}",
        "b": "{context}\nThis is asked about the text, and you reply in English: {asked}",
        "c": "You have just read this: {context} Somebody asks you: {asked} Your reply, in English:",
        "d": "The solution is in this text: {context} The question was: {asked} In English, the solution is",
    },
    "arithmetic": {
        "a": "{asked} It is",
        "b": "Work this out: {asked}\nResult:",
        "c": "Do the sum. {asked} The result is",
        "d": "A calculation: {asked} The number is",
    },
}
"""Each ends where the answer begins. `asked` is the question as published, `question` that with its question mark,
`problem` a context with its question, `text` a statement up to its mask."""


def reworded(name: str, prompt: Any, wording: str) -> Callable[[Doc], str]:
    """The prompt function of the task `name` in another wording; `prompt` is its present one (`doc_to_text`).

    UserError if the task has a custom prompt, of which there are no paraphrases.
    """
    kind = prompt.__name__ if getattr(prompt, "__module__", "") == tasks.__name__ else name
    if kind not in TEMPLATES:
        raise UserError(
            f"wording={wording}: {name} has a custom prompt without paraphrases; leave it out of benchmarks, or leave out wording"
        )
    template = TEMPLATES[kind][wording]

    def ask(doc: Doc) -> str:
        texts = {"text": doc.get("text"), "context": (doc.get("context") or "").strip()}
        if "question" in doc:
            texts |= {"question": question_of(doc), "problem": problem_of(doc)}
            texts["asked"] = doc["question"].strip()
        return template.format(**texts)

    return ask
