"""Make and read the addresses to which receivers send reports about a domain.

`dmarc+<token>@<mail host>` is for DMARC aggregate reports (RFC 7489 7.2), `tls+<token>@…` for TLS reports (RFC 8460 3).
The token, 40 base32 characters, holds the domain id and 72 bits of a keyed digest, so that an address for another
account's domain can't be guessed.
"""

from typing import Final, Literal, cast
from uuid import UUID

from engine.base.ids import ALPHABET, base32
from engine.base.secrets import DerivedKey, hmac_sha256, is_mac

ReportKind = Literal["dmarc", "tls"]

_MAC_BYTES: Final = 9
_LENGTH: Final = (16 + _MAC_BYTES) * 8 // 5
_KINDS: Final = frozenset({"dmarc", "tls"})
_VALUES: Final = {letter: value for value, letter in enumerate(ALPHABET)}


def report_address(key: DerivedKey, kind: ReportKind, domain: UUID, mail_host: str) -> str:
    """Return the address for one kind of report about one domain."""
    mac = hmac_sha256(key, kind.encode() + domain.bytes)[:_MAC_BYTES]
    number = int.from_bytes(domain.bytes + mac, "big")
    return f"{kind}+{base32(number, _LENGTH)}@{mail_host}"


def reported_domain(key: DerivedKey, address: str) -> tuple[ReportKind, UUID] | None:
    """Return kind and domain id of a report address; None for any other or forged address."""
    kind, plus, token = address.rpartition("@")[0].lower().partition("+")
    if kind not in _KINDS or not plus or len(token) != _LENGTH:
        return None
    number = 0
    for letter in token:
        value = _VALUES.get(letter)
        if value is None:
            return None
        number = number << 5 | value
    raw = number.to_bytes(16 + _MAC_BYTES, "big")
    domain = UUID(bytes=raw[:16])
    return (cast("ReportKind", kind), domain) if is_mac(key, kind.encode() + domain.bytes, raw[16:]) else None
