"""Addresses, keys and text from others: keys come from environment variables and never reach logs or messages."""

import os
import re

MASK = "***"
SECRETS = frozenset({"args", "env", "headers"})
"""Keys of the configuration whose values may be secrets: whatever is not `$NAME` is masked there."""
_SECRET_NAME = re.compile(r"(?i)(?:^|_)(?:key|token|secret|password|passwd|credentials?)$")


def is_secret(key: str) -> bool:
    """Whether the values of a key may be secrets: one of `SECRETS`, or named like one (`api_key`, `token`)."""
    return key in SECRETS or bool(_SECRET_NAME.search(key))


_USER_INFO = re.compile(r"(?<=://)[^/\s\"'<>]+@")
"""Up to the last @: a password may contain an unencoded one."""
_QUERY = re.compile(r"((?::/|(?<![\w/:]))/[^\s?#\"'<>]*)(?:\?([^\s#\"'<>]+))?")
"""Of an address, or of the path alone, as HTTP libraries write it in errors (`url: /weather?appid=...`). An address without a
query matches too, so that its end is searched for only once and not from each further `://` in it."""
_FRAGMENT = re.compile(r"(://[^\s#\"'<>]*)(?:#([^\s\"'<>]+))?")
"""As `_QUERY`."""


def without_credentials(text: str, mark: str = "") -> str:
    """Masks the query values and fragments of all addresses in a text; puts `mark` where a user and password were."""

    def query(match: re.Match[str]) -> str:
        parts = match[2].split("&") if match[2] else ()
        fields = [re.sub(r"(?<==).+", MASK, part) if "=" in part else MASK for part in parts]
        return f"{match[1]}?{'&'.join(fields)}" if fields else match[0]

    def fragment(match: re.Match[str]) -> str:
        return f"{match[1]}#{MASK}" if match[2] else match[0]

    return _FRAGMENT.sub(fragment, _QUERY.sub(query, _USER_INFO.sub(mark, text)))


def shown_address(url: str) -> str:
    """An address without user, query and fragment, any of which may hold a key."""
    return re.split(r"[?#]", _USER_INFO.sub("", url), maxsplit=1)[0]


def printable(text: str) -> str:
    """Text for a terminal: line breaks and tabs stay, other control, formatting and escape characters become `\ufffd`."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


def is_address(url: str | None) -> bool:
    """Whether it is an HTTP address with a host, and without user name and password."""
    return bool(re.match(r"https?://[^/\s]", url or "")) and not _USER_INFO.search(str(url))


def is_variable(name: str) -> bool:
    """Whether it is an environment variable, or named like one (`MY_KEY`): a key pasted here would reach the logs."""
    return name in os.environ or bool(re.fullmatch(r"[A-Z_][A-Z0-9_]*", name))
