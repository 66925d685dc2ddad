"""Settings as runs log them, written as Hydra reads overrides. Knows neither Hydra nor which keys there are."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import TypeAlias

from toolformer.credentials import MASK

Value: TypeAlias = "str | list[Value] | dict[str, Value]"
"""A logged text, or what was logged by parts."""
_ABSENT = "?"
"""What begins a word whose value cannot be written: its key, and the run that has it."""
_CUT = re.compile(r"… \(sha256 [0-9a-f]{12}\)\Z")
_ENDS_A_LINE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_NUMBERED = re.compile(r"(.+?)\.\d+(?:\.|\Z)")
_LIKE_NO_TEXT = re.compile(r"[+-]?[\d_.]+(?:e[+-]?\d+)?|true|false|null|nan|[+-]?inf", re.IGNORECASE)
_OVERRIDE = re.compile(r"(?:[A-Za-z_$][\w$-]*|\d+)(?:\.(?:[A-Za-z_$][\w$-]*|\d+))*", re.ASCII)
"""A key that Hydra reads."""
_KEY = re.compile(r"(?!(?:null|true|false|nan|inf)\Z)[A-Za-z_][\w./ -]*", re.ASCII | re.IGNORECASE)


def key_of(word: str) -> str:
    """The key that an override sets, or that of a word without a value."""
    return word.lstrip(f"+~{_ABSENT}").partition("=")[0]


def word_of(key: str, value: Value, run_id: str, plus: str = "") -> str:
    """The override that sets a key; where the value cannot be written, a word that `absent` takes apart."""
    sayable = _OVERRIDE.fullmatch(key) and is_whole(value)
    return f"{plus}{key}={written(value)}" if sayable else f"{_ABSENT}{key}={run_id}"


def absent(word: str) -> tuple[str, str] | None:
    """The key and the run's id of a word without a value; None of any other."""
    return (key_of(word), word.partition("=")[2]) if word.startswith(_ABSENT) else None


def gathered(params: Mapping[str, str], whole: Collection[str] = ()) -> dict[str, Value]:
    """Parameters with those put together again that were logged by parts: numbered ones, and those below `whole` keys."""
    found: dict[str, Value] = {}
    for key, value in params.items():
        numbered = _NUMBERED.match(key)
        root = next((one for one in whole if key.startswith(f"{one}.")), numbered[1] if numbered else key)
        if root == key:
            found[key] = value
            continue
        *above, last = key.removeprefix(f"{root}.").split(".")
        below = found.setdefault(root, {})
        for part in above:
            below = below.setdefault(part, {}) if isinstance(below, dict) else {}
        if isinstance(below, dict):
            below[last] = value
    return {key: _with_lists(value) for key, value in found.items()}


def _with_lists(value: Value) -> Value:
    """The same with lists where keys are the numbers from 0."""
    if not isinstance(value, dict):
        return value
    parts = {key: _with_lists(one) for key, one in value.items()}
    numbers = [str(number) for number in range(len(parts))]
    return [parts[number] for number in numbers] if set(numbers) == set(parts) else parts


def is_whole(value: Value) -> bool:
    """Whether a value can be written: it is neither cut nor masked, and has no key or line end that no word can hold."""
    if isinstance(value, dict):
        return all(_KEY.fullmatch(key) and is_whole(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(is_whole, value))
    return not (_CUT.search(value) or MASK in value or _ENDS_A_LINE.search(value))


def listed(value: str) -> list[str]:
    """A logged list's words; none of what is no list."""
    try:
        found = json.loads(value)
    except ValueError:
        return []
    values = found if isinstance(found, list) else []
    return [one if isinstance(one, str) else json.dumps(one) for one in values]


def written(value: Value) -> str:
    """A value as a command line has it."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{written(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    if value.startswith("[") and (found := _elements(value)):
        return f"[{','.join(found)}]"
    return value if value in ("''", "[]", "{}") else quoted(value)


def _elements(value: str) -> list[str]:
    """A logged list's elements, each as a command line has it: a list, unlike a single value, tells texts from numbers."""
    texts = listed(value)
    found = json.loads(value) if texts else []
    return [
        f'"{text}"' if isinstance(one, str) and _LIKE_NO_TEXT.fullmatch(one) else quoted(text)
        for text, one in zip(texts, found, strict=True)
    ]


def quoted(value: str) -> str:
    """A value of an override as Hydra's grammar reads it back."""
    # An id such as 5123e678 would be read as a number.
    if re.fullmatch(r"[\w./+-][\w./:+-]*", value, re.ASCII) and not re.fullmatch(r"\d+[eE]\d+", value):
        return value
    # Backslashes stand for themselves, but before a quote.
    return '"' + re.sub(r'(\\*)("|\Z)', lambda one: one[1] * 2 + ('\\"' if one[2] else ""), value) + '"'
