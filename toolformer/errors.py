"""The one exception type for bad input, errors of others in one line, and hints at the right name."""

import difflib
from collections.abc import Collection

from toolformer.credentials import without_credentials


class UserError(Exception):
    """Bad input from the user.

    The message is one line that names the key, file or row and how to fix it. The command line prints it and
    ends with exit code 2; nothing that is already written is touched.
    """


class UsageError(UserError):
    """Arguments or overrides that cannot be read; the command line adds which command's help to see."""


def one_line(error: BaseException, limit: int = 300) -> str:
    """Message of an error, without keys, in one line of at most `limit` characters; the type, if the message is
    empty."""
    return " ".join(without_credentials(str(error)).split())[:limit] or type(error).__name__


def near(value: object, known: Collection[str]) -> str:
    """A hint at the known name that is most like a value, or nothing."""
    close = difflib.get_close_matches(str(value), list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
