"""Shared parts of cards: Markdown with a YAML head, tables, sources with their licences; texts of others are escaped.

A card names what is known by name and lists the settings that decided the result, if they are numbers or choices. It repeats
no command, path or address: these are this machine's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from huggingface_hub import CardData, RepoCard

from toolformer.reporting.escape import markdown, markdown_code
from toolformer.results import Run
from toolformer.results.provenance import model_name
from toolformer.step import Step

APACHE, GEMMA, SHARE_ALIKE = "Apache-2.0", "Gemma Terms of Use", "CC BY-SA (Wikipedia's contributors)"
UNKNOWN = "not known here: as its authors state"
_MODELS = {"smollm2": APACHE, "gemma3": GEMMA}
BUNDLED = {"smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct", "gemma3": "google/gemma-3-270m"}
"""The bundled models' names on the Hub; the bundled weights are quantised ones, widened."""
_CORPORA = {"demo": APACHE, "wikipedia": SHARE_ALIKE}
_CHOICES = frozenset({"baseline", "data", "dtype", "leak", "objective", "optimizer", "scheduler", "split"})
"""Settings whose texts are published, since they come from a fixed list."""

Source = tuple[str, str, str]
"""Kind, name and licence of a source."""


def card(head: CardData, *sections: str) -> str:
    """A README.md whose YAML head the Hub reads."""
    body = "\n".join(sections)
    return str(RepoCard(f"---\n{head.to_yaml()}\n---\n\n{body}\n"))


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


def last_part(text: str) -> str:
    """The last part of a path or an address; a name of the Hub (OWNER/NAME) stays.

    >>> last_part("/home/me/texts.jsonl"), last_part("https://me@host/corpus?key=1"), last_part("owner/name")
    ('texts.jsonl', 'corpus', 'owner/name')
    """
    path = text.split("://", 1)[-1]
    if path != text:
        path = path.partition("?")[0].partition("#")[0]
        return path.rstrip("/").rpartition("/")[2] if "/" in path.rstrip("/") else "an address"
    is_path = path.startswith(("/", "~", ".")) or path.count("/") > 1
    return path.rstrip("/").rpartition("/")[2] if is_path else path


def settings(step: Step) -> str:
    """A table of the settings that decided a step's result, of all steps before it too: numbers and choices alone."""
    rows = [
        (part.name, key, value)
        for part in step.all_steps()
        for key, value in _flat(part.settings)
        if not {"implementation", "inference"} & {*key.split(".")}
    ]
    return table(("step", "setting", "value"), dict.fromkeys(rows))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, bool | int | float) or (isinstance(value, str) and key in _CHOICES):
            yield f"{prefix}{key}", value


def sources(run: Run, tools: Iterable[str]) -> list[Source]:
    """The sources of an annotation, with licences as far as this project knows them."""
    corpus = str(run.facts.get("corpus") or run.setting("corpus.path") or "")
    named = [("corpus", last_part(corpus), _CORPORA.get(str(run.setting("corpus.source")), UNKNOWN))]
    named.append(_model("annotating model", str(run.setting("model", ""))))
    for tool in tools:
        named += _parts(f"tool {tool}", run.setting(f"tool.{tool}.implementation"))
    return list(dict.fromkeys(named))


def licence(named: Iterable[Source]) -> dict[str, Any]:
    """The head's licence: Apache-2.0 if all sources have it, else other."""
    if {terms for _, _, terms in named} <= {APACHE}:
        return {"license": "apache-2.0"}
    return {"license": "other", "license_name": "see-sources"}


def _parts(what: str, settings: Any) -> Iterator[Source]:
    """The index and the models in a tool's settings."""
    if not isinstance(settings, Mapping):
        return
    target = str(settings.get("_target_", ""))
    if target.endswith((".BM25", ".Lucene")):
        index = settings.get("index_path") or settings.get("articles_path") or settings.get("prebuilt")
        name = last_part(str(index)) if index else "Wikipedia summaries"
        yield what, name, UNKNOWN if index else SHARE_ALIKE
    if isinstance(settings.get("model"), str):
        yield _model(what, settings["model"])
    for part in settings.values():
        yield from _parts(what, part)


def _model(what: str, name: str) -> Source:
    return what, last_part(model_name(name)), _MODELS.get(name, UNKNOWN)
