"""The table of keys, made from the schema: docs/keys.md (`python scripts/keys.py > docs/keys.md`)."""

from collections.abc import Sequence

from omegaconf import DictConfig

from toolformer.jobs.config.composition import compose
from toolformer.jobs.config.keys import EVERY, Key, all_keys, sections

_HEAD = """\
# Keys

Every key of the configuration, with its default and its meaning; made from the schema by
`python scripts/keys.py`. Set one on the command line as `key=value`. Where the paper's setting
(`setting=paper`) has another default, it follows the first.
"""
LIKE = {
    "heldout": ("corpus", "The held-out texts, by the same keys as `corpus`."),
    "tool_default": (
        "tool.NAME",
        "What a tool of `tool_sources` has if no file mentions it, by the same keys as `tool.NAME`; a tool that has a file in "
        "`conf/tool` does not read these.",
    ),
}
"""Groups whose keys are those of another group, with what they are for: one row each."""


def markdown() -> str:
    """The page of all keys."""
    tables: dict[str, list[str]] = {section: [] for section in (EVERY, *sections())}
    configs = [compose("generate", overrides) for overrides in ([], ["setting=paper"])]
    values = {key.name: _values(key, configs) for key in all_keys()}
    differing: dict[str, list[str]] = {group: [] for group in LIKE}
    stages: dict[str, str] = {}
    for key in all_keys():
        group, _, name = key.name.partition(".")
        like = f"{LIKE[group][0]}.{name}" if group in LIKE else ""
        if like not in values:
            tables[key.section].append(_row(key.name, values[key.name], key.meaning))
            continue
        stages[group] = key.section
        if values[key.name] != values[like]:
            differing[group].append(f"`{name}`: {values[key.name]}")
    for group, section in stages.items():
        others = ", ".join(differing[group]) or "none"
        tables[section].append(_row(f"{group}.*", "", f"{LIKE[group][1]} Other defaults: {others}."))
    head = "| key | default | meaning |\n|---|---|---|\n"
    pages = [f"## {section}\n\n{head}{''.join(rows)}" for section, rows in tables.items()]
    return "\n".join([_HEAD, *pages])


def _values(key: Key, configs: Sequence[DictConfig]) -> str:
    return "; paper: ".join(dict.fromkeys(f"`{value}`" if value else "" for value in map(key.value, configs)))


def _row(name: str, default: str, meaning: str) -> str:
    escaped = meaning.replace("|", "\\|")
    return f"| `{name}` | {default} | {escaped} |\n"


if __name__ == "__main__":
    print(markdown(), end="")
