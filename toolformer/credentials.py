"""Addresses and keys of servers: a key comes from an environment variable, and no text that is shown holds one.

Knows no server and no library for HTTP.
"""

from __future__ import annotations

import os
import re

MASK = "***"
_USER_INFO = re.compile(r"(?<=://)[^/\s\"'<>]+@")
"""Up to the last @: a password may hold one that nobody has encoded."""
_QUERY = re.compile(r"((?::/|(?<![\w/:]))/[^\s?#\"'<>]*)\?([^\s#\"'<>]+)")
"""Of an address, or of the path alone, as libraries for HTTP say it in their errors (`url: /weather?appid=...`)."""
_FRAGMENT = re.compile(r"(://[^\s#\"'<>]*)#([^\s\"'<>]+)")
_KEY_PREFIX = re.compile(r"(?:sk|hf|gsk|ghp|github_pat)_")


def without_credentials(text: str) -> str:
    """A text whose addresses have no user names and passwords, no values in their queries, and no fragments."""
    return _without_queries(_USER_INFO.sub("", text))


def with_masks(text: str) -> str:
    """The same text, but with marks where user names and passwords were."""
    return _without_queries(_USER_INFO.sub(f"{MASK}@", text))


def said(error: BaseException, most: int = 200) -> str:
    """What an exception says, in one line that shows no key."""
    return " ".join(without_credentials(str(error)).split())[:most]


def shown_address(url: str) -> str:
    """An address as messages show it: without user, query and fragment, any of which may hold a key."""
    return re.split(r"[?#]", _USER_INFO.sub("", url), maxsplit=1)[0]


def _without_queries(text: str) -> str:
    def hide(match: re.Match[str]) -> str:
        fields = (re.sub(r"(?<==).+", MASK, one) if "=" in one else MASK for one in match[2].split("&"))
        return f"{match[1]}?{'&'.join(fields)}"

    return _FRAGMENT.sub(rf"\1#{MASK}", _QUERY.sub(hide, text))


def is_address(url: str | None) -> bool:
    """Whether it is an address of HTTP with a host."""
    return bool(re.match(r"https?://[^/\s]", url or ""))


def is_variable(name: str) -> bool:
    """Whether it can be the name of an environment variable, and is not a key that was put in its place.

    A name that no variable has is taken for a key if it is as long and as full of figures as keys are.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or _KEY_PREFIX.match(name):
        return False
    figures = sum(map(str.isdigit, name))
    looks_like_a_key = len(name) >= 12 and figures >= (6 if "_" in name else 3)
    return name in os.environ or not looks_like_a_key


def key_from(variable: str) -> str:
    """The key in an environment variable; empty where there is none.

    Raises:
        ValueError: it cannot be sent in a header; the message names the variable and not the key.
    """
    key = os.environ.get(variable, "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise ValueError(f"${variable} holds blanks or characters that a key cannot have")
    return key
