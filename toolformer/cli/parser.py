"""The options of a command; bad ones end in one line that names the nearest."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from toolformer.errors import UserError, near


class Parser(argparse.ArgumentParser):
    """argparse's, whose faults are a `UserError`."""

    def error(self, message: str) -> NoReturn:
        unknown = re.search(r"unrecognized arguments: (\S+)", message)
        hint = near(unknown[1].partition("=")[0], self._option_string_actions) if unknown else ""
        raise UserError(f"{message}{hint}; see {self.prog} --help")
