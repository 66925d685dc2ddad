"""What is a secret, and what is shown in its place: keys come from environment variables and never reach logs or messages.

A secret is a value whose name says so (`is_secret`), or the user, password, query and fragment of an address. Structure is
masked before text is made of it (`masked`); of a text by others, such as an error, `without_credentials` masks what it finds.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

MASK = "***"
SECRETS = frozenset({"args", "env", "env_set", "headers", "setup"})
"""Keys of the configuration, of MCP servers and of Hydra's launchers, whose values may hold secrets under any name."""
_WORDS = re.compile(
    r"\w*(?:passw(?:or)?[dt]|passphrase|passcode|secret|credential|authori[sz]ation|bearer|cookie|sessionid|tokenvalue)s?\d*"
    r"|(?:\w*access)?keyid"
)
"""Words of a name that make it a secret's wherever they are, also where two of it are one: `pass_phrase`, `sessionId`."""
_LAST_WORDS = re.compile(
    r"\w*key\d*|(?:api|access|auth|private|secret|signing)?keys\d*|\w*token\d*|auth|jwt|\w*pass|\w*pwd|pw|pat|pem|pin|otp|sid|sig"
)
"""Words that do so at its end: a `key_variable`, `max_tokens` and a `pin_memory` hold none."""
_ENGLISH = frozenset("monkey donkey turkey hockey jockey hotkey compass bypass surpass underpass".split())
"""Words that only end like one of them."""
_VARIABLE = re.compile(
    r"(?:--?[\w-]+=|(?:Basic|Bearer|Token) )?\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|\{oc\.env:[A-Za-z_]\w*\})"
)
"""A value that names a secret and does not hold it: `$NAME`, also as `Bearer $NAME` or `--key=$NAME`."""
_ASSIGNMENT = re.compile(r"((?:export\s+)?-{0,2}([A-Za-z_][\w.-]*)=)(.+)", re.DOTALL)
"""A text that sets one name: `--api-key=...`, `export TOKEN=...`."""
_SCHEME = re.compile(r"([A-Za-z0-9+.-]{2,}:/)(/*)")
_IN_TEXT = re.compile(
    r"""(?P<open>["'`(<\[]?)"""
    r"""(?:(?<![A-Za-z0-9+.-])(?P<address>[A-Za-z0-9+.-]{2,}:/\S+)|(?<![^\s"'`(<\[=,])(?P<path>/[^\s?#]*(?:\?\S*)?|\?[\w.-]+=\S*))"""
)
"""An address, or the path or query of one alone: HTTP libraries write `url: /weather?appid=...` in errors."""
_USER = re.compile(r"""(?<![\w.+-])[\w.+-]{1,64}:(?:[^\s@/\\"'<>(){}\[\]]{1,256}@)+(?=[\w\[])""")
"""User and password before a host, without a scheme."""
_LOGIN = re.compile(r"(?<!\S)((?:-u|--user|--proxy-user)[ =])([^\s:/]+:(?!/)\S+)")
"""User and password after curl's option for them."""
_CLIENT = r"(?:mysql\w*|mariadb[\w-]*|sshpass)"
_OPTION_P = re.compile(rf"(\b(?:{_CLIENT}\b[^\n|;&]{{0,200}}?\s-p|sshpass\s+-p\s+))(\S+)")
"""A password after the option `-p` of these programs, without a blank."""
_NAME = re.compile(
    r"""(?<![\w.?&-])(?P<quote>(?:\\?["'])?)(?P<name>-{0,2}[A-Za-z_][\w.-]*+)(?P=quote)(?P<sign>[ \t]*+(?:=>|[=:])[ \t]*+|(?<!["'])[ \t]++)"""
)
"""A name and what is between it and its value: `--name=`, `name => `, `"name": `, `--name `."""
_VALUE = re.compile(
    r"""(?P<quote>\\?["'])(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\\\n]))+)|(?P<plain>[^\s"'=]\S*)"""
)
_HEADERS = ("authorization", "cookie", "cookies")
"""Headers whose value is the rest of the line."""
_AFTER_FIELD = re.compile(r"=[^;=]*;\s*$")
_REST_OF_FIELD = re.compile(r"""[^;\n"']*""")
_BEFORE_FIELD = re.compile(r"""[^;=\n"']*+(?=;(?:\s*$|[\w ]{0,64}=))""")
"""In a connection string, `Server=h;Password=two words;User=u`, a value may hold spaces: what is before it, and its end."""
_TOKEN = r"""(?=\S*\d)([^\s"',]{8,})"""
_ANNOUNCED = re.compile(
    rf"(?<![A-Za-z0-9])((?:bearer|(?:api|access|secret)[ _-]?key(?: provided)?:?) ++){_TOKEN}", re.IGNORECASE
)
"""A token after `Bearer`, `x-api-key` or `API key provided:`."""
_KEY = re.compile(
    r"(?<![\w-])(?:sk-(?=[\w-]*\d)[\w-]{16,}|(?:hf|gh[a-z])_[A-Za-z0-9]{16,}|github_pat_\w{16,}|(?:glpat|xox[a-z])-[\w-]{16,}"
    r"|npm_[A-Za-z0-9]{32,}|pypi-Ag[\w-]{32,}|AIza[\w-]{32,}|AKIA[0-9A-Z]{16}(?!\w)|eyJ[\w-]{12,512}\.[\w-]{12,}\.[\w-]{8,})"
    r"|(?<=/bot)\d{1,20}:[\w-]{8,}"
)
"""What is a key by its own form: those of OpenAI, Hugging Face, GitHub, GitLab, Slack, npm, PyPI, Google, AWS, of Telegram in a path, and
JSON web tokens."""
_ELEMENT = re.compile(r"(<(?P<name>[A-Za-z_][\w.-]{0,80})>)[^<>\s]+(?=</(?P=name)>)")
_FIELD = re.compile(r"(?<=[&?])((?P<name>[\w.-]+)=)[^&\s\"'<>]+")
_PAIR = re.compile(
    r"""([(\[]\s*+b?(["'])(?P<name>[A-Za-z_][\w.-]*+)\2,\s*+b?(["']))(?:(?!\4)[^\n]){1,2000}(?=\4\s*[)\]])"""
)
"""Other forms of a name and its value: `<name>value</name>`, `&name=value`, `('name', 'value')`."""
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_RANDOM = re.compile(
    r"((?=[\w-]*\d)(?=[\w-]*[a-z])(?=[\w-]*[A-Z])[\w-]{20,}|[0-9a-f]{32,})(?=[.,;:)]*(?:\s|\Z))"
)
"""What is a key after `key=`, which may also be the name of a setting."""
_BLOCK = re.compile(r"[|>][-+\d]{0,2}[ \t]*\n|\|[-+\d]{0,2} |>[-+]\d? ")
"""The sign of YAML before a text of several lines, or before what were lines."""
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
    if any(map(_WORDS.fullmatch, [*words, *map("".join, pairwise(words))])):
        return True
    return bool(words and words[-1] not in _ENGLISH and _LAST_WORDS.fullmatch(words[-1]))


def masked(value: Any, secret: bool = False, digest: bool = False) -> Any:
    """A configuration in plain types, with `***` for secrets: every value below a key that `is_secret` unless it is `$NAME`,
    and in any text, also a key, what `without_credentials` masks.

    Args:
        digest: add a hash of what is masked, by which two values can be distinguished.
    """
    if isinstance(value, Mapping):
        return {
            masked(str(key), digest=digest): masked(item, secret or is_secret(str(key)), digest)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        before = [None, *value]  # --api-key, K
        return [
            masked(item, secret or _is_option(option) or _is_login(before[1], option, item), digest)
            for option, item in zip(before, value, strict=False)
        ]
    if value is None or value == "" or (isinstance(value, bool | int | float) and not secret):
        return value
    text = str(value)
    if secret:
        shown = text if _VARIABLE.fullmatch(text) else MASK
    elif _SCHEME.match(text):
        shown = _named_masked(masked_address(text, f"{MASK}@"))
    elif (assignment := _ASSIGNMENT.fullmatch(text)) and is_secret(assignment[2].rpartition(".")[2]):
        shown = text if _VARIABLE.fullmatch(assignment[3]) else f"{assignment[1]}{MASK}"
    else:
        shown = without_credentials(text, f"{MASK}@")
    if digest and shown != text:
        return f"{shown} (sha256 {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]})"
    return shown


def _is_option(word: object) -> bool:
    """Whether a word of a command names a secret that follows as the next one."""
    return isinstance(word, str) and bool(re.fullmatch(r"--?[\w.-]+", word)) and is_secret(word)


def _is_login(program: object, option: object, word: object) -> bool:
    """Whether a word of a program's command gives a password, by itself or after the one before it."""
    if not isinstance(word, str):
        return False
    line = f"{program} {option} {word}"
    after_p = _OPTION_P.search(line)
    return bool(_LOGIN.match(f"{option} {word}") or (after_p and after_p.end() == len(line)))


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
    return f"{scheme}{slashes}{MASK if rest is None else _named_masked(host_and_path)}"


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
    """A text by others with its secrets masked: addresses, what follows a secret's name, the tokens of headers.

    Args:
        mark: goes where a user and password were.
    """
    text = _OPTION_P.sub(rf"\g<1>{MASK}", _LOGIN.sub(rf"\g<1>{MASK}", _PEM.sub(MASK, text)))
    return _named_masked(_USER.sub(mark, _addresses_masked(text, mark)))


def _named_masked(text: str) -> str:
    """A text with the values masked that follow the name of a secret, or are a key by their form."""
    parts, end = [], 0
    for match in _NAME.finditer(text):
        if match.start() >= end and (span := _secret_after(match)):
            parts += [text[end : span[0]], MASK]
            end = span[1]
    parts.append(text[end:])
    text = _ANNOUNCED.sub(
        lambda token: token[0] if _is_known(token[2]) else f"{token[1]}{MASK}", "".join(parts)
    )
    for form in (_ELEMENT, _FIELD, _PAIR):
        text = form.sub(_other_form_masked, text)
    return _KEY.sub(MASK, text)


def _other_form_masked(found: re.Match[str]) -> str:
    """A name and its value in another form, of which the first group stays; `('api_key', 'name')` is a list of names."""
    name, value = found["name"], found[0].removeprefix(found[1])
    is_value = found.re is not _PAIR or re.search(r"\d", value)
    is_masked = name != "key" and is_secret(name) and is_value and not _is_known(value)
    return f"{found[1]}{MASK}" if is_masked else found[0]


def _secret_after(match: re.Match[str]) -> tuple[int, int] | None:
    """Start and end of the value that follows a name and its sign in a text, if it is a secret."""
    text, name, sign, is_quoted = match.string, match["name"], match["sign"].strip(), bool(match["quote"])
    last = name.rpartition(".")[2]
    if not (sign or name.startswith("-")) or not is_secret(last):
        return None
    if last in SECRETS and sign != "=":  # "missing args: 2"
        return None
    if name == "key" and not is_quoted:  # "expected key=value"
        key = _RANDOM.match(text, match.end())
        return key.span(1) if key else None
    value = _VALUE.match(text, match.end())
    if not value or (name == "key" and not re.fullmatch(_TOKEN, value["quoted"] or "")):
        return None
    start, end = value.span("quoted" if value["quoted"] else "plain")
    if value["plain"] and not is_quoted:
        if sign == ":" and (block := _BLOCK.match(text, start)):
            end = _end_of_block(text, match.start(), block)
        elif last.lower().endswith(_HEADERS):
            end = _end_of_line(text, start)
        elif sign == ":" and _is_prose(last, text[start:end], text[end : end + 1] in ("", "\n")):
            return None
        elif sign == "=" and ";" not in value["plain"]:
            is_field = _AFTER_FIELD.search(text, max(0, match.start() - 256), match.start())
            rest = (_REST_OF_FIELD if is_field else _BEFORE_FIELD).match(text, end)
            end = rest.end() if rest else end
    return None if _is_known(text[start:end].strip()) else (start, end)


def _end_of_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _end_of_block(text: str, name: int, sign: re.Match[str]) -> int:
    """Where a text of several lines ends in YAML: its lines are indented more than its name."""
    if not sign[0].endswith("\n"):
        return _end_of_line(text, sign.end())
    line = text[text.rfind("\n", 0, name) + 1 : name]
    further = re.compile(rf"[ \t]*\n| {{{len(line) - len(line.lstrip(' -')) + 1}}}.*\n?")
    end = start = sign.end()
    while block := further.match(text, end):
        end = block.end()
    return start + len(text[start:end].rstrip())


def _is_prose(name: str, value: str, is_last: bool) -> bool:
    """Whether a colon leads to more of a message: `api_key: must be a text`, `unexpected token: +`."""
    if name in ("token", "pass", "pem", "sig"):  # "cert.pem: [Errno 2] ..."
        return len(value) < 8 or value.isalpha()
    return value.isalpha() and not is_last


def _is_known(value: str) -> bool:
    """Whether a value is no secret: a placeholder, or the name of a variable."""
    return value == "..." or bool(_VARIABLE.fullmatch(value))


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
