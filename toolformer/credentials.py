"""Addresses, keys and foreign text: a key comes from an environment variable, and no text that is shown holds one."""

import os
import re

MASK = "***"
SECRETS = frozenset({"args", "env", "headers", "valves"})
"""Keys of the configuration whose values may be secrets: whatever is not `$NAME` is masked there."""
_USER_INFO = re.compile(r"(?<=://)[^/\s\"'<>]+@")
"""Up to the last @: a password may hold one that nobody has encoded."""
_QUERY = re.compile(r"((?::/|(?<![\w/:]))/[^\s?#\"'<>]*)(?:\?([^\s#\"'<>]+))?")
"""Of an address, or of the path alone, as HTTP libraries write it in their errors (`url: /weather?appid=...`). One without a
query matches too: so that its end is not looked for again from every further `://` in it."""
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
    """Whether it can be the name of an environment variable, and not a key pasted in its place."""
    digits = sum(map(str.isdigit, name))
    looks_like_a_key = len(name) >= 12 and digits >= (6 if "_" in name else 3)
    looks_like_a_key |= name.startswith(("sk_", "hf_", "gsk_", "ghp_", "github_pat_"))
    return bool(re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)) and (
        name in os.environ or not looks_like_a_key
    )
