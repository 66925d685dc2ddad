"""What is a secret, and what is shown in its place: keys come from environment variables and never reach logs or messages.

A secret is a value whose name says so (`is_secret`), or the user, password, query and fragment of an address. Structure is
masked before text is made of it (`masked`); of a text by others, such as an error, `without_credentials` masks what it finds.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

MASK = "***"
SECRETS = frozenset({"args", "env", "env_set", "headers", "setup"})
"""Keys of the configuration, of MCP servers and of Hydra's launchers, whose values may hold secrets under any name."""
_WORDS = re.compile(
    r"\w*(?:passw(?:or)?d|passphrase|passcode|secret|credential|authori[sz]ation|bearer|cookie)s?\d*"
)
"""Words of a name that make it a secret's wherever they are."""
_LAST_WORDS = re.compile(
    r"(?:api|access|auth|private|secret|signing)?keys?\d*|\w*token\d*|auth|jwt|pass|pwd|pw"
)
"""Words that do so at its end: a `key_variable` and `max_tokens` hold none."""
_VARIABLE = re.compile(
    r"(?:--?[\w-]+=|(?:Basic|Bearer|Token) )?\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|\{oc\.env:[A-Za-z_]\w*\})"
)
"""A value that names a secret and does not hold it: `$NAME`, also as `Bearer $NAME` or `--key=$NAME`."""
_ASSIGNMENT = re.compile(r"((?:export\s+)?-{0,2}([A-Za-z_][\w.-]*)=)(.+)", re.DOTALL)
"""A text that sets one name: `--api-key=...`, `export TOKEN=...`."""
_SCHEME = re.compile(r"([A-Za-z0-9+.-]{2,}:/)(/*)")
_IN_TEXT = re.compile(
    r"""(?P<open>["'`(<\[]?)"""
    r"""(?:(?<![A-Za-z0-9+.-])(?P<address>[A-Za-z0-9+.-]{2,}:/\S+)|(?<![^\s"'`(<\[=,])(?P<path>/[^\s?#]*(?:\?\S*)?))"""
)
"""An address, or the path of one alone: HTTP libraries write `url: /weather?appid=...` in errors."""
_ASSIGNED = re.compile(
    r"""(?<![\w.?&-])(?P<names>(?:-{0,2}[A-Za-z_][\w.-]*=)+)(?P<value>"[^"]*"|'[^']*'|[^\s"'=]\S*)"""
)
_HEADER = re.compile(
    r"""\b([Aa]uthorization["']?: *["']?(?=[^\s"'])|[Bb]earer +(?=[^\s"',]{8}))([^\n"',]+)"""
)
_CLOSING = {"(": ")", "<": ">", "[": "]"}


def is_secret(name: str) -> bool:
    """Whether the values of a key may be secrets: one of `SECRETS`, or named like one.

    >>> [is_secret(name) for name in ("api_key", "apiKey", "DB_PASSWD", "X-Auth-Token", "Set-Cookie", "max_tokens", "monkey")]
    [True, True, True, True, True, False, False]
    """
    if name.lower() in SECRETS:
        return True
    words = re.findall(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|[^\W_]+", name)
    words = [word.lower() for word in words]
    return any(map(_WORDS.fullmatch, words)) or bool(words and _LAST_WORDS.fullmatch(words[-1]))


def masked(value: Any, secret: bool = False, digest: bool = False) -> Any:
    """A configuration in plain types, with `***` for secrets: every value below a key that `is_secret` unless it is `$NAME`,
    and in any text the user, password, query and fragment of an address.

    Args:
        digest: add a hash of what is masked, by which two values can be distinguished.
    """
    if isinstance(value, Mapping):
        return {str(key): masked(item, secret or is_secret(str(key)), digest) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [masked(item, secret, digest) for item in value]
    if value is None or value == "" or (isinstance(value, bool | int | float) and not secret):
        return value
    text = str(value)
    if secret:
        shown = text if _VARIABLE.fullmatch(text) else MASK
    elif _SCHEME.match(text):
        shown = masked_address(text, f"{MASK}@")
    elif (assignment := _ASSIGNMENT.fullmatch(text)) and is_secret(assignment[2].rpartition(".")[2]):
        shown = text if _VARIABLE.fullmatch(assignment[3]) else f"{assignment[1]}{MASK}"
    else:
        shown = _addresses_masked(text, f"{MASK}@")
    if digest and shown != text:
        return f"{shown} (sha256 {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]})"
    return shown


def masked_address(address: str, mark: str = "") -> str:
    """An address with `***` for its query values and its fragment, and `mark` for user and password.

    A password may hold an unencoded `@`, `/`, `?` or `#`: whatever may be a part of one is masked.
    """
    scheme, slashes, rest, host_and_path, query, fragment = _parts(address)
    if rest is None:  # no host can be told from a password
        return f"{scheme}{slashes}{MASK}"
    fields = [
        f"{name}={MASK}" if sign and value else MASK if not sign else f"{name}="
        for name, sign, value in (field.partition("=") for field in query.split("&"))
    ]
    return "".join(
        (
            scheme,
            slashes,
            mark if host_and_path != rest else "",
            host_and_path,
            f"?{'&'.join(fields)}" if query else "",
            f"#{MASK}" if fragment else "",
        )
    )


def shown_address(url: str) -> str:
    """An address without user, query and fragment, any of which may hold a key."""
    scheme, slashes, rest, host_and_path, _, _ = _parts(url)
    return f"{scheme}{slashes}{MASK if rest is None else host_and_path}"


def _parts(address: str) -> tuple[str, str, str | None, str, str, str]:
    """An address as scheme, slashes, all between them and the query, what of that follows the user, query, fragment.

    The third is None if user and host cannot be told apart.
    """
    match = _SCHEME.match(address)
    scheme, slashes = (match[1], match[2]) if match else ("", "")
    tail = address[match.end() :] if match else address
    before, _, fragment = tail.partition("#")
    before, _, query = before.partition("?")
    host = before.partition("/")[0]
    # A path has one slash only after a scheme that pathlib has shortened: http:/user@host.
    has_host = slashes == "/" or (slashes == "" and scheme.startswith(("http", "ftp")))
    if not has_host or "@" in before:
        return scheme, slashes, before, before.rpartition("@")[2] if has_host else before, query, fragment
    try:
        is_cut = "@" in query + fragment and ":" in host
        _ = urlsplit(f"http://{host}").port
    except ValueError:  # no number: `user:pass` cut at a `?` or `#`
        is_cut = True
    return (
        (scheme, slashes, None, "", "", "") if is_cut else (scheme, slashes, before, before, query, fragment)
    )


def without_credentials(text: str, mark: str = "") -> str:
    """A text by others with its secrets masked: addresses, NAME=VALUE of a secret's name, the tokens of headers.

    Args:
        mark: goes where a user and password were.
    """

    def assigned(match: re.Match[str]) -> str:
        names, value = match["names"], match["value"]
        is_known = value == "..." or _VARIABLE.fullmatch(value)
        last = [name.rpartition(".")[2] for name in names.split("=")]
        holds_secret = any(is_secret(name) for name in last if name != "key")  # "expected key=value"
        return f"{names}{MASK}" if holds_secret and not is_known else match[0]

    def header(match: re.Match[str]) -> str:
        return match[0] if _VARIABLE.fullmatch(match[2].strip()) else f"{match[1]}{MASK}"

    return _HEADER.sub(header, _ASSIGNED.sub(assigned, _addresses_masked(text, mark)))


def _addresses_masked(text: str, mark: str) -> str:
    """A text with its addresses masked."""
    return _IN_TEXT.sub(lambda match: _shown_in_text(match, mark), text)


def _shown_in_text(match: re.Match[str], mark: str) -> str:
    opening, address = match["open"], match["address"] or match["path"]
    end = ""
    if opening:  # what encloses an address does not belong to it
        address, closing, end = address.rpartition(_CLOSING.get(opening, opening))
        address, end = (address, closing + end) if closing else (end, "")
    if match["address"]:
        return f"{opening}{masked_address(address, mark)}{end}"
    path, sign, query = address.partition("?")
    return (
        f"{opening}{masked_address(f'x://x{address}')[5:]}{end}"
        if sign and query
        else f"{opening}{path}{sign}{end}"
    )


def printable(text: str) -> str:
    """Text for a terminal: line breaks and tabs stay, other control, formatting and escape characters become `\ufffd`."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


def is_address(url: str | None) -> bool:
    """Whether it is an HTTP address with a host, and without user name and password."""
    try:
        parts = urlsplit(url or "")
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and "@" not in parts.netloc
            and parts.port != -1
        )
    except ValueError:
        return False


def is_variable(name: str) -> bool:
    """Whether it is an environment variable, or named like one (`MY_KEY`): a key pasted here would reach the logs."""
    return name in os.environ or bool(re.fullmatch(r"[A-Z_][A-Z0-9_]*", name))
