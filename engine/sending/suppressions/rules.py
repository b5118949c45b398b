"""Compare suppression reasons, decide which mail they block, and parse list cursors and filters. Pure."""

import re
import unicodedata
from contextlib import suppress

from engine.base import list_cursors
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.list_cursors import ListPlace
from engine.mail.address import BadAddress, canonical, domain_name, parse_mailbox
from engine.sending.suppressions.types import Reason, SuppressionFilters, SuppressionRow

# Weakest first. A weaker reason never replaces a stronger one, so that a later manual suppression does not overwrite a
# complaint or a hard bounce.
STRENGTH: tuple[Reason, ...] = (Reason.UNSUBSCRIBE, Reason.MANUAL, Reason.BOUNCE, Reason.COMPLAINT)

BROADCAST = "broadcast"  # the source of a broadcast's messages
_TRANSACTIONAL = "transactional"
_CURSOR = "sup_"
_WILD = re.compile(r"[\\%_]")


def blocks(reason: str, *, stream: str, source: str) -> bool:
    """Return True if `reason` blocks a message of `stream` from `source`.

    An unsubscribed address still gets transactional mail. A broadcast is never transactional, although accounts whose
    plan has one stream send broadcasts on that stream.
    """
    return reason != Reason.UNSUBSCRIBE or stream != _TRANSACTIONAL or source == BROADCAST


def is_stronger(wanted: Reason, current: str) -> bool:
    """Return True if `wanted` replaces `current`, the reason already stored."""
    return STRENGTH.index(wanted) > STRENGTH.index(Reason(current))


def address_of(text: str) -> str:
    """Return the canonical form of an address; raise the 422 `invalid_address`."""
    try:
        mailbox = parse_mailbox(text)
    except BadAddress as error:
        raise _bad_address(text, str(error)) from None
    if mailbox.name or "<" in text:
        raise _bad_address(text, "give the address without a name, such as ann@example.com")
    return canonical(mailbox.address)


def filters(*, before: str | None, reason: Reason | None, search: str | None) -> SuppressionFilters:
    """Return the filters of a list request; raise the 400 that names the invalid parameter."""
    if search is not None and "\0" in search:
        raise invalid("search", "`search` contains NUL (U+0000). Remove it.")
    return SuppressionFilters(
        before=place(before),
        reason=None if reason is None else reason.value,
        search=None if search is None else _patterns(search),
    )


def cursor(row: SuppressionRow) -> str:
    """Return the cursor after a row."""
    return list_cursors.cursor(_CURSOR, ListPlace(row.created_at, row.address))


def place(text: str | None) -> ListPlace:
    """Return the place of a cursor; raise the 400 if it is invalid."""
    return list_cursors.place(_CURSOR, text)


def _patterns(text: str) -> list[str]:
    """Return LIKE patterns that match `text` anywhere in a canonical address, including Unicode domains."""
    lowered = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    found = {lowered: None}
    if not text.isascii():
        local, at, domain = lowered.rpartition("@")
        for asked, ending in ((domain, ""), (f"{domain}.test", ".test")):  # a complete domain, or some labels of one
            with suppress(BadAddress):
                found[f"{local}{at}{domain_name(asked).removesuffix(ending)}"] = None
    return ["%" + _WILD.sub(r"\\\g<0>", one) + "%" for one in found]


def _bad_address(text: str, problem: str) -> Refusal:
    return Refusal(
        ErrorType.INVALID_ADDRESS, f"`address` is not an email address: {problem}", address=text, field="address"
    )
