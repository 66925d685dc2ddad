"""Extract a date from a URL (paper, appendix A.1, calendar)."""

import datetime
import re
from urllib.parse import unquote

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

_YEAR = r"(?P<y>(?:19|20)\d\d)"
_DAY = r"(?P<d>\d{1,2})"
MONTH = (
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?"
)
"""Pattern of a month's English name or abbreviation, in lower case."""
_NAME = rf"(?P<m>{MONTH})"
_SEPARATOR = r"(?P<s>[/\-_.])"
# Each alternative is a lookahead: a match that is not a date must not hide the beginning of one that is.
_FORMS = [
    re.compile(f"(?={form})", re.ASCII | re.IGNORECASE)
    for form in (
        rf"(?<!\d){_YEAR}{_SEPARATOR}(?P<m>\d{{1,2}})(?P=s){_DAY}(?!\d)",
        rf"(?<!\d){_YEAR}(?P<m>\d\d)(?P<d>\d\d)(?!\d)",
        rf"(?<!\d){_YEAR}{_SEPARATOR}{_NAME}(?P=s){_DAY}(?!\d)",
        rf"(?<!\d){_DAY}{_SEPARATOR}{_NAME}(?P=s){_YEAR}(?!\d)",
        rf"(?<![a-z]){_NAME}{_SEPARATOR}{_DAY}(?P=s){_YEAR}(?!\d)",
    )
]
# The day a page was archived is not the day it was written: an archive's address holds the page's, mostly with its scheme.
_ENCLOSING = re.compile(r"^[^?#]*/(?=https?:/)", re.IGNORECASE)
_ARCHIVE = re.compile(
    r"//(?:web\.archive\.org/web|archive\.(?:today|ph|is|li|vn|md|fo)|arquivo\.pt/wayback|webarchive\.[\w.-]+)"
    r"/\d[\d.-]{3,20}[a-z_]*/",
    re.IGNORECASE,
)


def date_from_url(url: str | None, latest: datetime.date | None = None) -> datetime.date | None:
    """The first date in a URL, or None.

    Read are year, month and day in this order, joined by one of `/ - _ .` or run together, and with the month's English
    name also the other way round (/14-aug-2020/, /august/14/2020/). Years are 1900 to 2099. Impossible dates and dates
    after `latest` are skipped. Of an archive's address, only the archived page's counts.
    """
    if not url:
        return None
    plain = _ARCHIVE.sub("//", _ENCLOSING.sub("", unquote(url)))
    dates: list[tuple[int, datetime.date]] = []
    for form in _FORMS:
        for match in form.finditer(plain):
            name = match["m"].lower()
            month = int(name) if name.isdigit() else MONTHS.index(name[:3]) + 1
            try:
                date = datetime.date(int(match["y"]), month, int(match["d"]))
            except ValueError:
                continue
            if latest is None or date <= latest:
                dates.append((match.start("y"), date))
                break
    return min(dates)[1] if dates else None
