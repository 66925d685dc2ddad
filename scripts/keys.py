"""The table of keys, made from the schema: docs/keys.md (`python scripts/keys.py > docs/keys.md`)."""

from collections.abc import Sequence

from omegaconf import DictConfig

from toolformer.jobs.config.composition import compose
from toolformer.jobs.config.keys import EVERY, Key, all_keys, sections

_HEAD = """\
# Keys

Every key of the configuration, with its default and its meaning; made from the schema by
`python scripts/keys.py`. Set one on the command line as `key=value`. If `setting=paper` has another default,
it comes second. For `tool.NAME`, the first default is common to all tools, and bundled tools that differ from it
in the default setting come after it.
"""
LIKE = {
    "heldout": ("corpus", "The held-out texts, with the same keys as `corpus`."),
    "tool_default": (
        "tool.NAME",
        "Defaults of the tools of `tool_sources` without a file in `conf/tool`, with the same keys as `tool.NAME`.",
    ),
}
"""Groups with the keys of another group, and their meaning: one row each."""
OF_EACH = {"name", "implementation", "inference", "prompt"}
"""Keys in which tools always differ."""


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
            default = values[key.name] + _of_tools(key, configs[0])
            tables[key.section].append(_row(key.name, default, key.meaning))
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


def _of_tools(key: Key, config: DictConfig) -> str:
    """The values of the bundled tools that differ from a tool's default, with the names of these tools."""
    above, _, name = key.name.rpartition(".")
    if above != "tool.NAME" or name in OF_EACH:
        return ""
    tools: dict[str, list[str]] = {}
    for tool in map(str, config.tool):
        tools.setdefault(key.of_tool(tool).value(config), []).append(tool)
    tools.pop(key.value(config), None)
    return "".join(f"; {', '.join(names)}: `{value}`" for value, names in tools.items())


def _row(name: str, default: str, meaning: str) -> str:
    escaped = meaning.replace("|", "\\|")
    return f"| `{name}` | {default} | {escaped} |\n"


if __name__ == "__main__":
    print(markdown(), end="")
