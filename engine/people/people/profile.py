"""Check the fields of a person's profile. Pure, except for reading the list of time zones once."""

from collections.abc import Sequence
from functools import cache
from importlib import resources

from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.text import checked_line, checked_text
from engine.mail.address import BadAddress, parse_mailbox
from engine.people.people.rules import MAX_EMAIL

MAX_NAME = 120
MAX_SIGNATURE = 10_000
MAX_ADDRESSES = 50  # per signature
MAX_ZONE = 64


def checked_name(text: str | None, field: str) -> str | None:
    """Return a name in one line; None if it is empty or white space."""
    if text is None or not text.strip():
        return None
    return checked_line(text, field, MAX_NAME)


def checked_zone(text: str | None) -> str | None:
    """Return the name of an IANA time zone; raise the 400 for an unknown one."""
    if text is not None and text not in _zones():
        raise invalid("timezone", f"Unknown time zone {text[:MAX_ZONE]!r}. Use an IANA name such as Europe/Berlin.")
    return text


def checked_signature(text: str | None) -> str | None:
    """Return a signature, which may have several lines; None if it is empty."""
    if text is None or not text.strip():
        return None
    return checked_text(text, "signature", MAX_SIGNATURE)


def checked_addresses(texts: Sequence[str] | None) -> list[str] | None:
    """Return the addresses for which the signature is used, without duplicates; raise the 422 for an invalid one."""
    if texts is None:
        return None
    found: dict[str, None] = {}
    for place, text in enumerate(texts):
        try:
            found[parse_mailbox(text).address.lower()] = None
        except BadAddress as error:
            shown, field = text[:MAX_EMAIL], f"signatureAddresses[{place}]"
            raise Refusal(
                ErrorType.INVALID_ADDRESS, f"{shown!r} is not an email address: {error}", address=shown, field=field
            ) from None
    return list(found)


@cache
def _zones() -> frozenset[str]:
    return frozenset((resources.files("tzdata") / "zones").read_text("utf-8").split())
