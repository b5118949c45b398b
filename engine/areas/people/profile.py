"""What a person may say of themselves, and of where they are. Pure but for the zones, which are read once."""

from collections.abc import Sequence
from functools import cache
from importlib import resources

from engine.areas.people.rules import MAX_EMAIL
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.text import checked_line, checked_text
from engine.mail.address import BadAddress, parse_mailbox

MAX_NAME = 120
MAX_SIGNATURE = 10_000
MAX_ADDRESSES = 50  # that a signature goes under
MAX_ZONE = 64


def checked_name(text: str | None, field: str) -> str | None:
    """A name in one line; None for none, and for nothing but white space."""
    if text is None or not text.strip():
        return None
    return checked_line(text, field, MAX_NAME)


def checked_zone(text: str | None) -> str | None:
    """A name of the IANA time zone database, as it is written there."""
    if text is not None and text not in _zones():
        raise invalid(
            "timezone", f"`timezone`: there is no time zone named {text[:MAX_ZONE]!r}, such as Europe/Berlin."
        )
    return text


def checked_signature(text: str | None) -> str | None:
    """A signature of several lines; None for none, and for an empty one."""
    if text is None or not text.strip():
        return None
    return checked_text(text, "signature", MAX_SIGNATURE)


def checked_addresses(texts: Sequence[str] | None) -> list[str] | None:
    """The addresses that a signature goes under, each once, in their order; 422 for what is none."""
    if texts is None:
        return None
    found: dict[str, None] = {}
    for place, text in enumerate(texts):
        try:
            found[parse_mailbox(text).address.lower()] = None
        except BadAddress as error:
            shown, field = text[:MAX_EMAIL], f"signatureAddresses[{place}]"
            raise Refusal(
                ErrorType.INVALID_ADDRESS, f"{shown!r} is no address: {error}", address=shown, field=field
            ) from None
    return list(found)


@cache
def _zones() -> frozenset[str]:
    return frozenset((resources.files("tzdata") / "zones").read_text("utf-8").split())
