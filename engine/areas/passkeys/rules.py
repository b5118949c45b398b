"""Where passkeys work, what they are called, and what is asked of an authenticator. Pure."""

from collections.abc import Iterable
from datetime import timedelta
from hashlib import sha256
from ipaddress import ip_address
from urllib.parse import urlsplit
from uuid import UUID

from msgspec import Struct

from engine.base.errors import ErrorType, Refusal
from engine.base.secrets import random_base62
from engine.base.text import checked_line

NAME = "Waybill"  # of the relying party, as devices show it
MAX_PASSKEYS = 20  # passkeys of one person
MAX_NAME = 100
CHALLENGE_BYTES = 32
LIFETIME = timedelta(minutes=5)  # of a challenge; WebAuthn 15.1 recommends so much for a ceremony with verification
BROWSER_COOKIE = "svc_passkey"
BROWSER_LENGTH = 43  # of base62: 256 bits
# ES256 first: every authenticator has it. COSE algorithm numbers (RFC 9053, RFC 8812).
ALGORITHMS = (-7, -8, -257)
TRANSPORTS = frozenset({"ble", "cable", "hybrid", "internal", "nfc", "smart-card", "usb"})


class RelyingParty(Struct, frozen=True):
    """What a passkey is bound to: the RP id, and the origin that our pages have."""

    id: str
    origin: str


def relying_party(public_url: str, rp_id: str | None) -> RelyingParty:
    """Where passkeys work, from `WAYBILL_PUBLIC_URL` and `WAYBILL_PASSKEY_RP_ID`; 409 where they can't.

    An RP id is a domain name: no IP address is one, and a browser has passkeys on secure pages only (WebAuthn 5.1).
    A loopback address stands for `localhost`, which is both.
    """
    url = urlsplit(public_url)
    host = (url.hostname or "").rstrip(".")
    if is_loopback(host):
        host = "localhost"
    elif _is_address(host):
        raise _nowhere(f"the service is reached at the IP address {host}, and a passkey is bound to a host name")
    elif url.scheme != "https":
        raise _nowhere("the service is reached without TLS, and browsers have passkeys on https pages only")
    default = {"http": 80, "https": 443}[url.scheme]
    port = "" if url.port in (None, default) else f":{url.port}"
    chosen = host if rp_id is None else rp_id.lower()
    if host != chosen and not host.endswith(f".{chosen}"):
        raise _nowhere(f"WAYBILL_PASSKEY_RP_ID is {chosen}, and the service's own host {host} is not below it")
    return RelyingParty(chosen, f"{url.scheme}://{host}{port}")


def check_page(party: RelyingParty, origin: str | None) -> None:
    """Say at once that a page elsewhere will get no passkey, such as one that was opened by its IP address.

    `origin` is the `Origin` of a request, which browsers send with every POST; only for the sake of the sentence: what
    counts is the origin that the authenticator signs.
    """
    if origin is not None and origin != party.origin:
        raise Refusal(
            ErrorType.INVALID_STATE,
            f"Passkeys of this service work on {party.origin} only; this page is elsewhere. Open it there.",
            status="other_origin",
        )


def is_loopback(host: str) -> bool:
    """Whether a URL's host is this very machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def checked_name(name: str) -> str:
    """What a person calls a passkey, without the white space around it; 400 for what can't be shown in a list."""
    return checked_line(name, "name", MAX_NAME)


def known_transports(named: Iterable[str]) -> list[str]:
    """How a browser reaches the authenticator, as far as we know the words; others could only be echoed."""
    return sorted(TRANSPORTS.intersection(named))


def new_browser() -> str:
    """What ties a challenge to the browser that asked for it."""
    return random_base62(BROWSER_LENGTH)


def well_formed(browser: str | None) -> bool:
    """Whether a cookie can be one of ours."""
    return browser is not None and len(browser) == BROWSER_LENGTH and browser.isascii() and browser.isalnum()


def digest_of(challenge: bytes) -> bytes:
    """What is stored of a challenge: 256 random bits need no key."""
    return sha256(challenge).digest()


def holder_of_browser(browser: str) -> bytes:
    """Who may use a challenge of a sign-in."""
    return sha256(b"browser " + browser.encode()).digest()


def holder_of_session(session: UUID) -> bytes:
    """Who may use a challenge of a registration."""
    return sha256(b"session " + session.bytes).digest()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _nowhere(why: str) -> Refusal:
    return Refusal(
        ErrorType.INVALID_STATE, f"There are no passkeys here: {why}. The operator sets WAYBILL_PUBLIC_URL.",
        status="no_host_name",
    )  # fmt: skip
