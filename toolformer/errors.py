"""The one exception type for bad input. It knows nothing else of the project."""

from __future__ import annotations


class UserError(Exception):
    """Bad input from the user.

    The message is one line that names the key, file or row and the mend. The command line prints it and
    ends with exit code 2; nothing that is already written is touched.
    """
