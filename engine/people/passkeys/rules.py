"""Define where passkeys work, and the parameters of their ceremonies. Pure, except for randomness."""

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

NAME = "Waybill"  # name of the relying party that devices show
MAX_PASSKEYS = 20  # per person
MAX_NAME = 100
CHALLENGE_BYTES = 32
LIFETIME = timedelta(minutes=5)  # of a challenge, as WebAuthn 15.1 recommends with user verification
BROWSER_COOKIE = "svc_passkey"
BROWSER_LENGTH = 43  # of base62: 256 bits
# COSE algorithm numbers (RFC 9053, RFC 8812); ES256 first, because every authenticator supports it.
ALGORITHMS = (-7, -8, -257)
TRANSPORTS = frozenset({"ble", "cable", "hybrid", "internal", "nfc", "smart-card", "usb"})


class RelyingParty(Struct, frozen=True):
    """The RP id and the origin to which passkeys are bound."""

    id: str
    origin: str


def relying_party(public_url: str, rp_id: str | None) -> RelyingParty:
    """Return the relying party of `WAYBILL_PUBLIC_URL` and `WAYBILL_PASSKEY_RP_ID`; raise the 409 if they allow none.

    An RP id is a domain name, not an IP address, and browsers require a secure page (WebAuthn 5.1). A loopback address
    is treated as `localhost`, which is both.
    """
    url = urlsplit(public_url)
    host = (url.hostname or "").rstrip(".")
    if is_loopback(host):
        host = "localhost"
    elif _is_address(host):
        raise _nowhere(f"its host is the IP address {host}, but passkeys need a host name")
    elif url.scheme != "https":
        raise _nowhere("it does not use https, which browsers require for passkeys")
    default = {"http": 80, "https": 443}[url.scheme]
    port = "" if url.port in (None, default) else f":{url.port}"
    chosen = host if rp_id is None else rp_id.lower()
    if host != chosen and not host.endswith(f".{chosen}"):
        raise _nowhere(f"its host {host} is not {chosen} (WAYBILL_PASSKEY_RP_ID) or below it")
    return RelyingParty(chosen, f"{url.scheme}://{host}{port}")


def check_page(party: RelyingParty, origin: str | None) -> None:
    """Raise the 409 for a page of another origin, for example one opened by IP address.

    `origin` is the request's `Origin` header, sent by browsers with every POST. The check only explains the failure
    early; the origin that the authenticator signs decides.
    """
    if origin is not None and origin != party.origin:
        raise Refusal(
            ErrorType.INVALID_STATE,
            f"Passkeys only work on {party.origin}, but this page is on {origin}. Open it there.",
            state="other_origin",
        )


def is_loopback(host: str) -> bool:
    """Return True if the host is this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def checked_name(name: str) -> str:
    """Return a passkey's name without surrounding white space; raise the 400 if it can't be shown in a list."""
    return checked_line(name, "name", MAX_NAME)


def known_transports(named: Iterable[str]) -> list[str]:
    """Return the known transports of an authenticator, dropping unknown words."""
    return sorted(TRANSPORTS.intersection(named))


def new_browser() -> str:
    """Return a new secret that binds a challenge to the browser's cookie."""
    return random_base62(BROWSER_LENGTH)


def well_formed(browser: str | None) -> bool:
    """Return True if a cookie has the form of a browser secret."""
    return browser is not None and len(browser) == BROWSER_LENGTH and browser.isascii() and browser.isalnum()


def digest_of(challenge: bytes) -> bytes:
    """Return the stored digest of a challenge; 256 random bits need no key."""
    return sha256(challenge).digest()


def holder_of_browser(browser: str) -> bytes:
    """Return the holder id of a sign-in challenge."""
    return sha256(b"browser " + browser.encode()).digest()


def holder_of_session(session: UUID) -> bytes:
    """Return the holder id of a registration challenge."""
    return sha256(b"session " + session.bytes).digest()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _nowhere(why: str) -> Refusal:
    return Refusal(
        ErrorType.INVALID_STATE,
        f"Passkeys are not available at WAYBILL_PUBLIC_URL: {why}. Ask the operator to change it.",
        state="no_host_name",
    )
