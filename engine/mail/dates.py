"""Read the times that mail programs write into Date fields. Pure; reads a bounded part of the field.

Every form is matched as a whole: words behind a time that are not understood make it unreadable, because they may move
it by hours.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from engine.mail.address_list import without_comments

MAX_DATE: Final = 200  # characters
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# RFC 5322 4.3 defines those of North America. The others have one meaning in mail.
_ZONES: Final[dict[str, float]] = {
    "hst": -10, "akst": -9, "akdt": -8, "pst": -8, "pdt": -7, "mst": -7, "mdt": -6, "cst": -6, "cdt": -5, "est": -5,
    "edt": -4, "wet": 0, "west": 1, "bst": 1, "cet": 1, "met": 1, "mez": 1, "cest": 2, "mest": 2, "mesz": 2, "eet": 2,
    "sast": 2, "eest": 3, "msk": 3, "hkt": 8, "sgt": 8, "awst": 8, "jst": 9, "kst": 9, "aest": 10, "aedt": 11,
    "nzst": 12, "nzdt": 13, "nst": -3.5, "ndt": -2.5, "adt": -3, "art": -3, "brt": -3, "brst": -2, "clt": -4,
    "clst": -3, "pkt": 5, "npt": 5.75, "ict": 7, "wib": 7, "acst": 9.5, "acdt": 10.5,
}  # fmt: skip

_weekday = r"(?:[^\W\d]{2,12}\.?\s?,?\s*)?"
_day = r"(?P<day>\d{1,2})"
_month = rf"(?P<month>{'|'.join(_MONTHS)})[a-z]{{0,6}}\.?"
_year = r"(?P<year>\d{2,4})"
_time = (
    r"(?P<hour>\d{1,2})\s*[:.]\s*(?P<minute>\d{2})(?:\s*[:.]\s*(?P<second>\d{2}))?(?:[.,]\d{1,9})?"
    r"(?:\s*(?P<half>[ap])\.?m\.?(?![a-z]))?"
)
# A name, an offset, or both: `EST`, `+0100`, `+01:00`, `GMT+1`, `GMT +0100`, `-0500 EST`.
_zone = (
    r"(?:\s*(?P<name>(?![ap]m\b)[a-z]{1,5})(?![a-z]))?"
    r"(?:\s*(?P<sign>[+-])(?P<hours>\d{1,2}?)(?::?(?P<minutes>\d{2}))?(?!\d)(?:\s*(?![ap]\.?m\b)[a-z][a-z ]{0,40})?)?"
)
_FORMS: Final = tuple(
    re.compile(form, re.IGNORECASE).fullmatch
    for form in (
        rf"{_weekday}{_day}[\s-]+{_month},?[\s-]+{_year},?\s+{_time}{_zone}",  # RFC 5322 3.3 and 4.3
        rf"{_weekday}{_month}\s+{_day},?\s+{_time}{_zone}\s+(?P<year>\d{{4}})",  # C's asctime
        rf"{_weekday}{_month}\s+{_day},?\s+{_time}\s+(?P<year>\d{{4}}){_zone}",
        rf"{_weekday}{_month}\s+{_day},?\s+(?P<year>\d{{4}}),?\s+{_time}{_zone}",  # JavaScript's Date
        rf"(?P<year>\d{{4}})[-/](?P<number>\d{{1,2}})[-/]{_day}(?:t|,?\s+){_time}{_zone}",  # ISO 8601, or its look
    )
)


def read_date(text: str) -> datetime | None:
    """Return the time of an unfolded Date field in UTC; None if it is no date.

    A time without a zone, or with a name of a zone that is not defined, is taken as UTC (RFC 5322 4.3).
    """
    text = " ".join(without_comments(text[:MAX_DATE]).split())
    for form in _FORMS:
        found = form(text)
        if found is not None:
            try:
                return _time_of(found.groupdict())
            except (ValueError, OverflowError):
                return None
    return _iso_8601(text)


def _iso_8601(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=at.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _time_of(found: dict[str, str | None]) -> datetime:
    """Return the time of the named parts. Raises ValueError, OverflowError."""
    month = int(found["number"] or 0) if "number" in found else _MONTHS.index((found["month"] or "").lower()) + 1
    second = int(found["second"] or 0)
    if second == 60:  # a leap second
        second = 59
    hour = _hour(int(found["hour"] or 0), found["half"])
    zone = _offset(found)
    local = datetime(_full_year(found["year"] or ""), month, int(found["day"] or 0), hour, int(found["minute"] or 0),
                     second, tzinfo=zone)  # fmt: skip
    return local.astimezone(UTC)


def _full_year(year: str) -> int:
    number = int(year)
    if len(year) == 4:
        return number
    return number + (1900 if len(year) == 3 or number >= 50 else 2000)  # RFC 5322 4.3


def _hour(hour: int, half: str | None) -> int:
    """Return the hour of the day; `13:00 PM` is written, too."""
    if half is None or hour > 12:
        return hour
    return hour % 12 + (12 if half in "pP" else 0)


def _offset(found: dict[str, str | None]) -> timezone:
    """Return the zone: the offset if there is one, whatever name stands beside it. Raises ValueError."""
    if found["sign"] is None:
        return timezone(timedelta(hours=_ZONES.get((found["name"] or "").lower(), 0)))
    minutes = int(found["minutes"] or 0)
    if minutes > 59:
        raise ValueError(minutes)
    offset = timedelta(hours=int(found["hours"] or 0), minutes=minutes)
    return timezone(-offset if found["sign"] == "-" else offset)
