"""Which reason stands above which, what a reason forbids, and the cursor and filters of the list."""

import base64
import binascii
import re
import unicodedata
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from engine.areas.suppressions.types import Reason, SuppressionCursor, SuppressionFilters, SuppressionRow
from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail.address import BadAddress, canonical, domain_name, parse_mailbox

# Weakest first. A weaker reason never takes the place of a stronger one: nobody's complaint, and no proof that an
# address is dead, is lost to a later request to suppress it.
STRENGTH: tuple[Reason, ...] = (Reason.UNSUBSCRIBE, Reason.MANUAL, Reason.BOUNCE, Reason.COMPLAINT)

_TRANSACTIONAL = "transactional"
_CURSOR = "sup_"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NEWEST = SuppressionCursor(datetime(9999, 12, 31, tzinfo=UTC), "")
_WILD = re.compile(r"[\\%_]")


def blocks(reason: str, stream: str) -> bool:
    """Whether an address suppressed for `reason` gets no mail of `stream`: who unsubscribed still gets receipts."""
    return reason != Reason.UNSUBSCRIBE or stream != _TRANSACTIONAL


def is_stronger(wanted: Reason, standing: str) -> bool:
    """Whether `wanted` takes the place of the reason an address is suppressed for already."""
    return STRENGTH.index(wanted) > STRENGTH.index(Reason(standing))


def address_of(text: str) -> str:
    """The canonical form under which an address is suppressed; raises the 422 `invalid_address`."""
    try:
        mailbox = parse_mailbox(text)
    except BadAddress as error:
        raise _bad_address(text, str(error)) from None
    if mailbox.name or "<" in text:
        raise _bad_address(text, "give the bare address, such as ann@example.com")
    return canonical(mailbox.address)


def filters(*, before: str | None, reason: Reason | None, search: str | None) -> SuppressionFilters:
    """The filters of a list request; raises the 400 that names the parameter at fault."""
    if search is not None and "\0" in search:
        raise invalid("search", "`search` must not hold NUL.")
    return SuppressionFilters(
        before=_NEWEST if before is None else place(before),
        reason=None if reason is None else reason.value,
        search=None if search is None else _patterns(search),
    )


def cursor(row: SuppressionRow) -> str:
    """The place after a row. It says itself where it is, so it stays good when the row goes."""
    micros = (row.created_at - _EPOCH) // _MICROSECOND
    return _CURSOR + base64.urlsafe_b64encode(f"{micros}:{row.address}".encode()).rstrip(b"=").decode()


def place(text: str) -> SuppressionCursor:
    """The place that a cursor names; raises the 400 for anything else."""
    with suppress(ValueError, OverflowError, binascii.Error):
        if text.startswith(_CURSOR) and text.isascii():
            body = text.removeprefix(_CURSOR)
            plain = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True).decode()
            micros, colon, address = plain.partition(":")
            if colon and micros.isascii() and micros.isdigit() and "\0" not in address:
                return SuppressionCursor(_EPOCH + int(micros) * _MICROSECOND, address)
    raise invalid("before", "`before` must be the `nextCursor` of an earlier page.")


def _patterns(text: str) -> list[str]:
    """LIKE patterns that find `text` anywhere in a canonical address, a domain in its own script included."""
    lowered = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    found = {lowered: None}
    if not text.isascii():
        local, at, domain = lowered.rpartition("@")
        for asked, ending in ((domain, ""), (f"{domain}.test", ".test")):  # a whole domain, or labels of one
            with suppress(BadAddress):
                found[f"{local}{at}{domain_name(asked).removesuffix(ending)}"] = None
    return ["%" + _WILD.sub(r"\\\g<0>", one) + "%" for one in found]


def _bad_address(text: str, problem: str) -> Refusal:
    return Refusal(ErrorType.INVALID_ADDRESS, f"`address` is not an address: {problem}", address=text, field="address")
