"""The table of keys, made from the schema: docs/keys.md (`python scripts/keys.py > docs/keys.md`)."""

from toolformer.stages.config.composition import compose
from toolformer.stages.config.keys import EVERY, keys, sections

_HEAD = """\
# Keys

Every key of the configuration, with its default and its meaning; made from the schema by
`python scripts/keys.py`. Set one on the command line as `key=value`. Where the paper's setting
(`setting=paper`) has another default, it follows the first.
"""


def markdown() -> str:
    """The page of all keys."""
    tables: dict[str, list[str]] = {section: [] for section in (EVERY, *sections())}
    for key in keys(*(compose("generate", words) for words in ([], ["setting=paper"]))):
        values = dict.fromkeys(f"`{value}`" if value else "" for value in key.values)
        meaning = key.meaning.replace("|", "\\|")
        tables[key.section].append(f"| `{key.name}` | {'; paper: '.join(values)} | {meaning} |\n")
    head = "| key | default | meaning |\n|---|---|---|\n"
    pages = [f"## {section}\n\n{head}{''.join(rows)}" for section, rows in tables.items()]
    return "\n".join([_HEAD, *pages])


if __name__ == "__main__":
    print(markdown(), end="")
