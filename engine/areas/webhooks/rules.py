"""What is posted to a webhook and how it is signed, which URLs are taken, when a post is tried again. Pure."""

import hmac
import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from ipaddress import AddressValueError, IPv4Address
from urllib.parse import SplitResult, urlsplit
from uuid import UUID

import idna
import yarl

from engine.base import clock, ids, secrets, server_url
from engine.base.errors import Refusal, invalid
from engine.base.events import AccountEvent, EventType
from engine.base.suggest import hint
from engine.delivery.ladder import Ladder

MAX_URL, MAX_TYPES, MAX_TYPE = 2_000, 20, 100  # characters, names, characters of a name
MAX_ANSWER_BYTES = 4_096
EVENT_TYPES = frozenset(EventType) | {
    AccountEvent.INBOUND_RECEIVED, AccountEvent.ALERT_FIRED, AccountEvent.DOMAIN_VERIFIED,
    AccountEvent.DOMAIN_FAILED, AccountEvent.SUPPRESSION_ADDED, AccountEvent.WEBHOOK_TEST,
}  # fmt: skip
SECRET_PREFIX = "whsec_"  # noqa: S105 - of every secret, itself none
SECRET_LENGTH = 32
PREVIOUS_HOURS = 24  # how long the former secret signs beside a new one
USER_AGENT = "Service-Webhooks/1.0"
GONE = frozenset({404, 410})  # answers that end a delivery at once

# The waits are promised to the second: none is shorter, and the spread that keeps the retries of one outage apart
# adds a twentieth at the most.
SPREAD = 0.05

_UNWRITTEN = re.compile(r"[\x00-\x20\x7f\\]")  # white space, controls, and the backslash that browsers read as a slash
_WELL_FORMED = re.compile(r"(?:[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+", re.ASCII)  # RFC 3986 2, without #
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII | re.IGNORECASE)
_NUMERIC = re.compile(r"(?:[0-9]+|0[xX][0-9a-fA-F]*)", re.ASCII)  # such a last label makes a host an IPv4 address


# -- an endpoint ----------------------------------------------------------------------------------


def checked_url(url: str) -> str:
    """The URL as it was given; raises the 400 that names `url` for one that could never be posted to.

    An address that may not be dialled is no matter of the text: it is looked at on every dialling.
    """
    if len(url) > MAX_URL:
        raise _unusable(f"must have at most {MAX_URL} characters")
    if _UNWRITTEN.search(url):
        raise _unusable("must not hold white space, control characters or backslashes: percent-encode them")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _unusable(f"is not a URL: {str(error)[:100]}") from None
    if parts.scheme not in {"http", "https"} or not url[len(parts.scheme) :].startswith("://"):
        raise _unusable("must begin with http:// or https://")
    if "@" in parts.netloc:
        raise _unusable("must not hold a user name or password: posts are signed, check the signature instead")
    if "#" in url:
        raise _unusable("must not hold a fragment (#…): it is never sent")
    if port == 0:
        raise _unusable("must not name port 0")
    _check_host(parts)
    try:
        target(url)
    except ValueError:  # such as a host with an invisible letter, which would lead elsewhere than it seems
        raise _unusable("must name a host, such as https://example.com/hooks") from None
    return url


def target(url: str) -> yarl.URL:
    """Where an accepted URL is posted to: its octets as they were given, since a receiver may compare or have signed
    them; where it is no well-formed URI, what it lacks is percent-encoded. Raises ValueError."""
    return yarl.URL(url, encoded=_WELL_FORMED.fullmatch(url) is not None)


def _check_host(parts: SplitResult) -> None:
    host = parts.hostname or ""
    if "[" in parts.netloc:
        try:
            server_url.host_port(parts.netloc)  # some patch levels of Python let urlsplit pass `a[::1]`
        except ValueError:
            raise _unusable("holds no valid IPv6 address between the brackets") from None
        if "%" in host:
            raise _unusable("must not name a network interface")
        return
    name = _ascii(host).removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _unusable("must name a host, such as https://example.com/hooks")
    if _NUMERIC.fullmatch(labels[-1]):
        try:
            plain = str(IPv4Address(name))
        except AddressValueError:
            plain = ""
        if plain != host:  # 127.1, 0x7f.1, ①②⑦.⓪.⓪.①: addresses to some, names to others
            raise _unusable("must write an IPv4 address as four decimal numbers")


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise _unusable("must name a host, such as https://example.com/hooks") from None


def _unusable(why: str) -> Refusal:
    return invalid("url", f"`url` {why}.")


def checked_types(names: Sequence[str]) -> list[str]:
    """The wanted event types in their order; names that nothing has are kept, since they may come to be."""
    if len(names) > MAX_TYPES:
        raise invalid("eventTypes", f"`eventTypes` takes at most {MAX_TYPES} names.")
    for place, name in enumerate(names):
        if not 1 <= len(name) <= MAX_TYPE or "\0" in name:
            field = f"eventTypes[{place}]"
            raise invalid(field, f"`{field}` must have 1 to {MAX_TYPE} characters, none of them NUL.")
    return list(names)


def unmatched(names: Sequence[str]) -> dict[str, str]:
    """Return the names that match no event this service has, each with a sentence for its author."""
    return {
        name: f"No event of this service is called `{name}`; it will not match until one is.{hint(name, EVENT_TYPES)}"
        for name in names
        if name not in EVENT_TYPES
    }


def new_secret() -> str:
    """A signing secret of 190 random bits."""
    return SECRET_PREFIX + secrets.random_base62(SECRET_LENGTH)


# -- a post ---------------------------------------------------------------------------------------


def body(event_id: UUID, seq: int, occurred_at: datetime, payload: str) -> bytes:
    """The octets posted for an event, the same on every attempt.

    The payload as it is stored, `{"type":T,"messageId":M,"detail":D}`, is cut and not read: what was hashed into
    the account's log is what arrives.
    """
    cut = payload.index(',"messageId":')
    kind, data = payload[1:cut], payload[cut + 1 :]
    public = ids.format_id(ids.Kind.EVENT, event_id)
    text = f'{{"id":"{public}",{kind},"createdAt":"{clock.iso(occurred_at)}","seq":{seq},"data":{{{data}}}'
    return text.encode()


def signature(secret: str, content: bytes, at_s: int) -> str:
    """The signature header's value: HMAC-SHA-256 over the Unix time, a full stop and the body."""
    code = hmac.digest(secret.encode(), b"%d." % at_s + content, sha256).hex()
    return f"t={at_s},v1={code}"


def headers(
    content: bytes, *, event_id: UUID, attempt: int, secret: str, previous: str | None, at_s: int
) -> dict[str, str]:
    """Everything that is said beside the body; `previous` is the former secret while it is still good."""
    found = {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "Service-Signature": signature(secret, content, at_s),
        "Service-Delivery-Id": ids.format_id(ids.Kind.EVENT, event_id),
        "Service-Attempt": str(attempt),
    }
    if previous is not None:
        found["Service-Signature-Previous"] = signature(previous, content, at_s)
    return found


@lru_cache(maxsize=8)
def ladder(steps_s: tuple[float, ...]) -> Ladder:
    """The waits between attempts at one post."""
    return Ladder(steps_s, jitter=SPREAD)


def wait_after(status: int | None, made: int, steps: Ladder, *, jitter: float) -> float | None:
    """Seconds until the next attempt after a failure; None: there is none.

    `status` is the answer's, None without an answer; `made` counts this ladder's attempts, the failed one among them;
    `jitter` in [0, 1) is the caller's randomness; 0 gives the promised wait itself.
    """
    if status in GONE:
        return None
    return steps.wait_s(made, jitter=0.5 + jitter / 2)


def shown(answer: bytes) -> str:
    """The first octets of an answer as text that can be stored: no NUL, and what is no UTF-8 replaced."""
    return answer[:MAX_ANSWER_BYTES].decode("utf-8", "replace").replace("\0", "\ufffd")
