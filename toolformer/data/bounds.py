"""Bounded types for settings; pydantic checks them when a configuration is validated."""

import datetime
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from toolformer.errors import near


def OneOf(*values: str) -> AfterValidator:
    """A text with one of these values."""

    def check(value: str) -> str:
        if value not in values:
            raise ValueError(f"it must be one of {', '.join(values)}{near(value, values)}")
        return value

    return AfterValidator(check)


def Matching(pattern: str, form: str) -> AfterValidator:
    """A text that matches a pattern, which `form` describes."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value, re.ASCII):
            raise ValueError(f"it must be {form}")
        return value

    return AfterValidator(check)


def _day(value: str) -> str:
    try:
        return datetime.date.fromisoformat(value).isoformat()
    except ValueError:
        raise ValueError("it must be a day, YYYY-MM-DD") from None


def _printable(value: str) -> str:
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("it must be UTF-8")
    if not value.isprintable():
        raise ValueError("it must not have line breaks or control characters")
    return value


def _count_or_auto(value: Any) -> Any:
    if value == "auto":
        return value
    if type(value) is not int or not 1 <= value <= LARGEST:
        raise ValueError("it must be auto or a whole number of at least 1")
    return value


LARGEST = 2**63 - 1
Count = Annotated[int, Field(ge=1, le=LARGEST)]
NonNegativeInt = Annotated[int, Field(ge=0, le=LARGEST)]
CountOrAuto = Annotated[Any, AfterValidator(_count_or_auto)]
"""A `Count`, or "auto". `Any` for mypy, since nobody reads it before "auto" is replaced by a number."""
Share = Annotated[float, Field(ge=0, lt=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Temperature = Annotated[float, Field(ge=0.01, le=100)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Place = Annotated[str, AfterValidator(_printable)]
"""A file or folder."""
Day = Annotated[str, AfterValidator(_day)]
"""YYYY-MM-DD."""
