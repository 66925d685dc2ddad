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
        "a": "Continue this statement so that it is true: {text}",
        "b": "The following statement is true. {text}",
        "c": "Here is a well-known fact.\n{text}",
        "d": "Fact: {text}",
    },
    "math_prompt": {
        "a": "{problem} So the final number is",
        "b": "Solve this problem. {problem} Solution:",
        "c": "Here is a math problem: {problem}\nThe result is",
        "d": "{problem} Work it out. Result:",
    },
    "question_prompt": {
        "a": "Please tell me: {question}",
        "b": "{question} In a few words:",
        "c": "Someone asks you: {question} Your reply:",
        "d": "Quiz question: {question}\nCorrect response:",
    },
    "passage_prompt": {
        "a": "Read this paragraph. {context} Based on it, reply in English: {asked}",
        "b": "{context}\nHere is a question about the text above. Reply to it in English. {asked}",
        "c": "You have just read this passage: {context} Someone asks you: {asked} Your reply, in English:",
        "d": "Text: {context}\nQuestion: {asked}\nResponse in English:",
    },
    "arithmetic": {
        "a": "{asked} It is",
        "b": "Work this out: {asked}\nResult:",
        "c": "Do this calculation. {asked} The result is",
        "d": "Arithmetic exercise: {asked}\nSolution:",
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
