"""What cards share: Markdown with a YAML head, tables, sources with their licences; texts of others are escaped."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from toolformer.reporting.escape import markdown, markdown_code
from toolformer.results import Run
from toolformer.results.provenance import model_name

APACHE, GEMMA, SHARE_ALIKE = "Apache-2.0", "Gemma Terms of Use", "CC BY-SA (Wikipedia's contributors)"
UNKNOWN = "not known here: as its authors state"
_MODELS = {"smollm2": APACHE, "gemma3": GEMMA}
BUNDLED = {"smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct", "gemma3": "google/gemma-3-270m"}
"""The bundled models' names on the Hub; the bundled weights are quantised ones, widened."""
_CORPORA = {"demo": APACHE, "wikipedia": SHARE_ALIKE}
_PATH = re.compile(r"(?<![\w./:~])(?:file://|~[\w.-]*/|\.{0,2}/)")
"""The beginning of a path."""

Source = tuple[str, str, str]
"""What it is, its name, its licence."""


def card(head: Mapping[str, Any], *sections: str) -> str:
    """A README.md whose YAML head the Hub reads."""
    return (
        "\n".join(["---", yaml.safe_dump(dict(head), sort_keys=False).rstrip(), "---", "", *sections]) + "\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table of texts as they are."""
    lines = [[markdown(name) for name in head], ["---"] * len(head)]
    lines += [[cell if isinstance(cell, Code) else markdown(str(cell)) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


class Code(str):
    """A cell that is Markdown already."""


def code(text: str) -> Code:
    """A code span, in a table or out of it."""
    return Code(markdown_code(text))


def public(command: str) -> str:
    """A command without the folders of this machine: of every path its last part.

    >>> public("toolformer generate corpus.path=/home/me/texts.jsonl model=owner/name")
    'toolformer generate corpus.path=texts.jsonl model=owner/name'
    """
    try:
        words = shlex.split(command)
    except ValueError:  # an unmatched quote
        words = command.split()
    return shlex.join(map(last_part, words))


def last_part(text: str) -> str:
    """A path, alone or as the value of a key, without its folders; addresses and names of the Hub stay."""
    begin = None if "://" in text.replace("file://", "") else _PATH.search(text)
    return text[: begin.start()] + text.rstrip("/").rpartition("/")[2] if begin else text


def sources(run: Run, tools: Iterable[str]) -> list[Source]:
    """What an annotation was made of, with licences as far as this project knows them."""
    corpus = str(run.facts.get("corpus") or run.setting("corpus.path") or "")
    found = [("corpus", last_part(corpus), _CORPORA.get(str(run.setting("corpus.source")), UNKNOWN))]
    found.append(_model("annotating model", str(run.setting("model", ""))))
    for tool in tools:
        found += _parts(f"tool {tool}", run.setting(f"tool.{tool}.implementation"))
    return list(dict.fromkeys(found))


def licence(found: Iterable[Source]) -> dict[str, str]:
    """The head's licence: Apache-2.0 if all sources have it, else other."""
    if {terms for _, _, terms in found} <= {APACHE}:
        return {"license": "apache-2.0"}
    return {"license": "other", "license_name": "see-sources"}


def _parts(what: str, settings: Any) -> Iterator[Source]:
    """The index and the models in a tool's settings."""
    if not isinstance(settings, Mapping):
        return
    target = str(settings.get("_target_", ""))
    if target.endswith((".BM25", ".Lucene")):
        place = settings.get("index_path") or settings.get("articles_path") or settings.get("prebuilt")
        name = last_part(str(place)) if place else "Wikipedia summaries"
        yield what, name, UNKNOWN if place else SHARE_ALIKE
    if isinstance(settings.get("model"), str):
        yield _model(what, settings["model"])
    for part in settings.values():
        yield from _parts(what, part)


def _model(what: str, name: str) -> Source:
    return what, model_name(name), _MODELS.get(name, UNKNOWN)
