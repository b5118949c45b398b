"""The lists of `bounce_words.toml`, compiled once. Used by `bounce_texts.py` and `delivery_reports.py`."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct


class _BounceWords(Struct, frozen=True, forbid_unknown_fields=True):
    failure: tuple[str, ...]
    failure_subject: tuple[str, ...]
    delay: tuple[str, ...]
    given_up: tuple[str, ...]
    auto_reply_subject: tuple[str, ...]
    challenge: tuple[str, ...]
    returned: tuple[str, ...]
    daemons: tuple[str, ...]
    recipient_labels: tuple[str, ...]
    sure_labels: tuple[str, ...]
    other_labels: tuple[str, ...]
    failing: tuple[str, ...]


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(word) for word in words))


def _one_of(expressions: Iterable[str]) -> str:
    return f"(?:{'|'.join(expressions)})"


_TEXT: Final = (Path(__file__).parent / "bounce_words.toml").read_text("utf-8")
_TABLE: Final = msgspec.convert(tomllib.loads(_TEXT), _BounceWords)
_BEFORE_ADDRESS: Final = r"[^\w@]{0,12}[<(\[\"'“«]*\s*$"

FAILURE: Final = _any_of(_TABLE.failure)
FAILURE_SUBJECT: Final = _any_of(_TABLE.failure_subject)
DELAY: Final = _any_of(_TABLE.delay)
GIVEN_UP: Final = _any_of(_TABLE.given_up)
AUTO_REPLY_SUBJECT: Final = _any_of(_TABLE.auto_reply_subject)
CHALLENGE: Final = _any_of(_TABLE.challenge)
DAEMONS: Final = re.compile(rf"^(?:.*[-_.+])?{_one_of(_TABLE.daemons)}(?:[-_.+].*)?$")
RETURNED_MARK: Final = re.compile(
    rf"^[ \t>|*#~]*(?:[-=_*+]{{2,}}|<{{3,}}|\[)?[ \t]*{_one_of(_TABLE.returned)}[ \t]*:?[ \t]*[-=_*+>\]]*[ \t]*$",
    re.IGNORECASE,
)
RECIPIENT_LABEL: Final = re.compile(
    r"(?<![a-zà-ÿа-я])" + _one_of(_TABLE.recipient_labels) + _BEFORE_ADDRESS, re.IGNORECASE
)
SURE_LABEL: Final = re.compile(_one_of(_TABLE.sure_labels), re.IGNORECASE)
OTHER_LABEL: Final = re.compile(_one_of(_TABLE.other_labels) + _BEFORE_ADDRESS, re.IGNORECASE)
FAILING: Final = re.compile(_one_of(_TABLE.failing), re.IGNORECASE)
