"""Addresses and keys of servers: a key comes from an environment variable, and no text that is shown holds one.

Knows no server and no library for HTTP.
"""

from __future__ import annotations

import os
import re

USER_INFO = re.compile(r"(?<=://)[^/\s@]+@")


def without_credentials(text: str) -> str:
    """Addresses in a text, without user names and passwords."""
    return USER_INFO.sub("", text)


def is_address(url: str | None) -> bool:
    """Whether it is an address of HTTP with a host."""
    return bool(re.match(r"https?://[^/\s]", url or ""))


def is_variable(name: str) -> bool:
    """Whether it can be the name of an environment variable, and is not a key that was put in its place."""
    return bool(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)) and not name.startswith("sk_")


def key_from(variable: str) -> str:
    """The key in an environment variable; empty where there is none.

    Raises:
        ValueError: it cannot be sent in a header; the message names the variable and not the key.
    """
    key = os.environ.get(variable, "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise ValueError(f"${variable} holds blanks or characters that a key cannot have")
    return key
