"""One line for whatever is wrong with a configuration: the key, the reason, what to do."""

from __future__ import annotations

import re
from typing import Any

from hydra.errors import OverrideParseException
from pydantic import ValidationError

from toolformer.credentials import MASK, SECRETS

_QUOTING = (
    "; quote a value with a comma, parenthesis, brace, colon or equals sign once more inside the shell's quotes: "
    """"model='/a folder, (old)'\""""
)
_MERGING = "Error merging override "
_WRONG_TYPES = (
    (r"Value '.*' of type '\w+' could not be converted to Integer", "it must be a whole number"),
    (r"Value '.*' of type '\w+' could not be converted to Float", "it must be a number"),
    (r"Value '.*' is not a valid bool \(type \w+\)", "it must be true or false"),
    (
        r"Invalid value assigned: \w+ is not a ListConfig, list or tuple\.?",
        "it must be a list, such as [a,b]",
    ),
    (r"field '.*' is not Optional", "it must have a value"),
    (r"Cannot convert '\w+' to string: '.*'", "it must be a text"),
)
"""What OmegaConf says of a value that a key cannot have, and what the key can have."""
_BOUNDS = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "finite_number": "a finite number",
    "string_too_short": "not empty",
}
"""What pydantic's kinds of errors ask for."""
_NOISE = ("object_type", "reference_type", "Set the environment", "Config search path", "provider=")


def one_line(error: BaseException) -> str:
    """The key and the reason of Hydra's and OmegaConf's errors, whose messages run over several lines."""
    if isinstance(error, OverrideParseException):
        reason = " ".join(str(error).split()).partition(" See https")[0]
        key, equals, _ = (error.override or "").partition("=")
        if not equals:
            return f"{key!r} is no key=value; name the key and its value"
        return f"{key}: {reason.rstrip('.')}{_QUOTING}"
    causes = [error, *([error.__cause__] if error.__cause__ else [])]
    lines = [line.strip() for cause in causes for line in str(cause).splitlines() if line.strip()]
    lines = [line for line in dict.fromkeys(lines) if not line.startswith(_NOISE)]
    key = next((line.removeprefix("full_key:").strip() for line in lines if line.startswith("full_key:")), "")
    text = " ".join(line for line in lines if not line.startswith("full_key:"))
    if text.startswith(_MERGING):
        for reason, wanted in _WRONG_TYPES:
            text = re.sub(rf" {reason}$", f": {wanted}", text)
        text = text.removeprefix(_MERGING)
    text = re.sub(r"\w+ raised while composing config: ", "", text)
    return f"{key}: {text}" if key and key not in text else text


def first(error: ValidationError) -> str:
    """The first thing that pydantic finds wrong, in one line."""
    details = error.errors()[0]
    context: dict[str, Any] = details.get("ctx", {})
    key = ".".join(map(str, details["loc"]))
    value = repr(details["input"]) if SECRETS.isdisjoint(details["loc"]) else MASK
    if details["type"] == "unexpected_keyword_argument":
        return f"there is no key {key!r}"
    if details["type"] in _BOUNDS:
        return f"{key} is {value}; it must be {_BOUNDS[details['type']].format(**context)}"
    reason = str(context["error"]) if "error" in context else details["msg"]
    return f"{key} is {value}; {reason}"
