"""Values in a user's YAML files that YAML takes for something else: `no` for false, `0123` for 83, `12:30` for 750.

The schema makes texts of such values again, which are others than those that were written; where a number belongs, it takes 83.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from omegaconf import OmegaConf

from toolformer.errors import UserError
from toolformer.jobs.config.keys import is_text
from toolformer.jobs.config.overrides import Override

_PACKAGE = re.compile(r"#\s*@package\s+(\S+)")
_OTHER_NUMBER = re.compile(r"[-+]?0[\d_]+|[-+]?[\d_]+(:[\d_.]+)+")
"""Whole numbers that YAML reads to the base 8 or 60."""
SEARCH_PATH = "hydra.searchpath"


def check_texts(overrides: Sequence[Override]) -> None:
    """UserError for a text in a file below `hydra.searchpath` that must be in quotes, and for a number that is read as another;
    other faults are left to Hydra."""
    folders = [
        Path(str(folder).removeprefix("file://"))
        for override in overrides
        if override.key == SEARCH_PATH
        for folder in override.listed
    ]
    if not folders:
        return
    waiting = [
        (f"{each.key}@{each.package}" if each.package else each.key, str(option))
        for each in overrides
        for option in each.listed
    ]
    seen: set[tuple[str, str]] = set()
    while waiting:
        group, option = waiting.pop()
        if (group, option) in seen:
            continue
        seen.add((group, option))
        name, _, package = group.partition("@")
        for path in (folder / name / f"{option}.yaml" for folder in folders):
            try:
                content = path.read_text(encoding="utf-8")
                node = yaml.compose(content, Loader=yaml.SafeLoader)
            except (OSError, ValueError, yaml.YAMLError):
                continue
            if isinstance(node, yaml.MappingNode):
                header = _PACKAGE.search(content.partition("\n\n")[0])
                above = package or (header[1] if header else name.replace("/", "."))
                _check(node, "" if above == "_global_" else above, path)
                waiting += _defaults(node, name)


def _defaults(node: yaml.MappingNode, group: str) -> Iterator[tuple[str, str]]:
    """The files that a file's list of defaults names: (group, option)."""
    for key, value in node.value:
        if key.value != "defaults" or not isinstance(value, yaml.SequenceNode):
            continue
        for entry in value.value:
            if isinstance(entry, yaml.ScalarNode) and entry.value != "_self_":
                yield group, entry.value
            for name, option in entry.value if isinstance(entry, yaml.MappingNode) else ():
                if isinstance(option, yaml.ScalarNode):
                    path = name.value.removeprefix("override ").strip()
                    yield path.removeprefix("/") if path.startswith("/") else f"{group}/{path}", option.value


def _check(node: yaml.MappingNode, above: str, path: Path) -> None:
    for name, value in node.value:
        parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
        if name.tag == "tag:yaml.org,2002:merge":
            for part in parts:
                if isinstance(part, yaml.MappingNode):
                    _check(part, above, path)
            continue
        key = f"{above}.{name.value}" if above else str(name.value)
        if isinstance(value, yaml.MappingNode):
            _check(value, key, path)
        for part in parts:
            _check_value(part, key, f"{name.value}: " if part is value else "", path)


def _check_value(node: yaml.Node, key: str, before: str, path: Path) -> None:
    if not isinstance(node, yaml.ScalarNode) or node.style is not None or "${" in node.value:
        return
    read = OmegaConf.create(f"value: {node.value}").value if node.value.strip() else None
    if read is None or isinstance(read, str):
        return
    if not is_text(key):
        if _OTHER_NUMBER.fullmatch(node.value) and (
            ":" in node.value or int(node.value.replace("_", "")) != read
        ):
            raise UserError(f"{path}: {key}: {node.value} is read as {read}; write the number that you mean")
    elif str(read) != node.value:
        raise UserError(
            f"{path}: {key}: {node.value} is read as {read}; put it in quotes: {before}'{node.value}'"
        )
