"""Build and sign webhook posts, check endpoint URLs, and compute retry times. Pure."""

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

from engine.base import clock, ids, server_url
from engine.base.errors import Refusal, invalid
from engine.base.events import AccountEvent, EventType
from engine.base.suggest import hint
from engine.base.text import checked_line
from engine.delivery.retry_schedule import RetrySchedule
from engine.events.webhooks import standard

MAX_URL, MAX_TYPES, MAX_TYPE = 2_000, 20, 100  # characters, names, characters of a name
MAX_ANSWER_BYTES = 4_096
MAX_ANSWER_HEADERS = 1_024  # characters
MAX_DESCRIPTION = 200
EVENT_TYPES = frozenset(EventType) | {
    AccountEvent.INBOUND_RECEIVED, AccountEvent.ALERT_ENDED, AccountEvent.ALERT_FIRED,
    AccountEvent.DOMAIN_VERIFIED, AccountEvent.DOMAIN_FAILED, AccountEvent.SUPPRESSION_ADDED, AccountEvent.WEBHOOK_TEST,
    AccountEvent.CONTACT_CONFIRMED, AccountEvent.CONTACT_UNSUBSCRIBED, AccountEvent.BROADCAST_FINISHED,
    AccountEvent.BROADCAST_PAUSED, AccountEvent.VERIFICATION_FINISHED,
}  # fmt: skip
RECEIVED = f'{{"type":"{AccountEvent.INBOUND_RECEIVED}",'  # how the payloads of received messages begin
PREVIOUS_HOURS = 24  # after a rotation, how long the previous secret signs as well
USER_AGENT = "Service-Webhooks/1.0"
SIGNATURE, SIGNATURE_PREVIOUS = "Service-Signature", "Service-Signature-Previous"
DELIVERY_ID = "Service-Delivery-Id"
GONE = frozenset({404, 410})  # statuses that end a delivery without retry

# The documented waits are minimums: jitter, which spreads the retries after an outage, adds at most 5%.
SPREAD = 0.05

_UNWRITTEN = re.compile(r"[\x00-\x20\x7f\\]")  # white space, controls, and the backslash that browsers read as a slash
_WELL_FORMED = re.compile(r"(?:[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+", re.ASCII)  # RFC 3986 2, without #
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII | re.IGNORECASE)
_NUMERIC = re.compile(
    r"(?:[0-9]+|0[xX][0-9a-fA-F]*)", re.ASCII
)  # a last label like this makes the host an IPv4 address


# -- an endpoint ----------------------------------------------------------------------------------


def checked_url(url: str) -> str:
    """Return the URL unchanged; raise the 400 for a URL that can never be posted to.

    Forbidden addresses are checked at each connection, not here.
    """
    if len(url) > MAX_URL:
        raise _unusable(f"has {len(url)} characters; the limit is {MAX_URL}")
    if _UNWRITTEN.search(url):
        raise _unusable("contains white space, control characters or backslashes; percent-encode them")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _unusable(f"is not a URL: {str(error)[:100]}") from None
    if parts.scheme not in {"http", "https"} or not url[len(parts.scheme) :].startswith("://"):
        raise _unusable("must begin with http:// or https://")
    if "@" in parts.netloc:
        raise _unusable("contains a user name or password; remove it and verify the signature of the posts instead")
    if "#" in url:
        raise _unusable("contains a fragment (#…), which is never sent; remove it")
    if port == 0:
        raise _unusable("names port 0; use a port from 1 to 65535")
    _check_host(parts)
    try:
        target(url)
    except ValueError:  # for example an invisible letter in the host, which would change the target
        raise _unusable("has no valid host; use a URL such as https://example.com/hooks") from None
    return url


def target(url: str) -> yarl.URL:
    """Return the URL to post to, with the octets as given: receivers may compare or sign them.

    Percent-encodes what a well-formed URI lacks. Raises ValueError.
    """
    return yarl.URL(url, encoded=_WELL_FORMED.fullmatch(url) is not None)


def _check_host(parts: SplitResult) -> None:
    host = parts.hostname or ""
    if "[" in parts.netloc:
        try:
            server_url.host_port(parts.netloc)  # urlsplit of some Python patch levels accepts `a[::1]`
        except ValueError:
            raise _unusable("has no valid IPv6 address between the brackets") from None
        if "%" in host:
            raise _unusable("names a network interface (%…); remove it")
        return
    name = _ascii(host).removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _unusable("has no valid host; use a URL such as https://example.com/hooks")
    if _NUMERIC.fullmatch(labels[-1]):
        try:
            plain = str(IPv4Address(name))
        except AddressValueError:
            plain = ""
        if plain != host:  # 127.1, 0x7f.1, ①②⑦.⓪.⓪.①: parsers disagree on these
            raise _unusable("must write an IPv4 address as four decimal numbers")


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise _unusable("has no valid host; use a URL such as https://example.com/hooks") from None


def _unusable(why: str) -> Refusal:
    return invalid("url", f"`url` {why}.")


def checked_types(names: Sequence[str]) -> list[str]:
    """Return the event types in the given order; unknown names are kept, because later versions may add them.

    Raises the 400 for too many names and for names that are empty, too long or contain NUL.
    """
    if len(names) > MAX_TYPES:
        raise invalid("eventTypes", f"`eventTypes` has {len(names)} names; the limit is {MAX_TYPES}. Remove some.")
    for place, name in enumerate(names):
        if not 1 <= len(name) <= MAX_TYPE or "\0" in name:
            field = f"eventTypes[{place}]"
            raise invalid(field, f"`{field}` must have 1 to {MAX_TYPE} characters and must not contain NUL.")
    return list(names)


def checked_description(text: str) -> str:
    """Return the description without surrounding blanks; raise the 400 unless it is empty or one short line."""
    return checked_line(text, "description", MAX_DESCRIPTION) if text.strip() else ""


def unmatched(names: Sequence[str]) -> dict[str, str]:
    """Return a warning for each name that is no event type of this version."""
    return {
        name: f"Unknown event type `{name}`: it matches no event of this version.{hint(name, EVENT_TYPES)}"
        for name in names
        if name not in EVENT_TYPES
    }


# -- a post ---------------------------------------------------------------------------------------


def body(
    event_id: UUID,
    seq: int,
    occurred_at: datetime,
    payload: str,
    *,
    tags: str | None = None,
    metadata: str | None = None,
) -> bytes:
    """Return the body posted for an event: the same on every attempt, but for tags and metadata erased meanwhile.

    The stored payload, `{"type":T,"messageId":M,"detail":D}`, is cut as text and not parsed, so that receivers get
    exactly the text that the account log hashes. Tags and metadata of the message, JSON, follow `data`.
    """
    cut = payload.index(',"messageId":')
    kind, data = payload[1:cut], payload[cut + 1 :]
    public = ids.format_id(ids.Kind.EVENT, event_id)
    text = f'{{"id":"{public}",{kind},"createdAt":"{clock.iso(occurred_at)}","seq":{seq},"data":{{{data}}}'
    if tags is not None and metadata is not None:
        text = f'{text[:-1]},"tags":{tags},"metadata":{metadata}}}'
    return text.encode()


def signature(secret: str, content: bytes, at_s: int) -> str:
    """Return the signature header: HMAC-SHA-256 over the Unix time in seconds, a full stop and the body."""
    code = hmac.digest(secret.encode(), b"%d." % at_s + content, sha256).hex()
    return f"t={at_s},v1={code}"


def headers(
    content: bytes,
    *,
    event_id: UUID,
    attempt: int,
    secret: str,
    previous: str | None,
    at_s: int,
    signs_standard: bool = False,
) -> dict[str, str]:
    """Return the headers of a post; `previous` is the secret before the last rotation while it still signs."""
    found = _fixed_headers(event_id, attempt) | {SIGNATURE: signature(secret, content, at_s)}
    if previous is not None:
        found[SIGNATURE_PREVIOUS] = signature(previous, content, at_s)
    if signs_standard:
        public, both = found[DELIVERY_ID], (secret,) if previous is None else (secret, previous)
        value = standard.signature(both, content, public_id=public, at_s=at_s)
        found |= standard.headers(value, public_id=public, at_s=str(at_s))
    return found


def sent_headers(
    content: bytes | None,
    *,
    url: str,
    event_id: UUID,
    attempt: int,
    signed: str,
    signed_before: str | None,
    signed_standard: str | None = None,
) -> dict[str, str]:
    """Return the headers of a post that was made, with its stored signatures."""
    found = {"Host": target(url).raw_authority, **_fixed_headers(event_id, attempt), SIGNATURE: signed}
    if signed_before is not None:
        found[SIGNATURE_PREVIOUS] = signed_before
    if signed_standard is not None:
        at_s = signed.partition(",")[0].removeprefix("t=")
        found |= standard.headers(signed_standard, public_id=found[DELIVERY_ID], at_s=at_s)
    if content is not None:
        found["content-length"] = str(len(content))
    return found


def _fixed_headers(event_id: UUID, attempt: int) -> dict[str, str]:
    return {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        DELIVERY_ID: ids.format_id(ids.Kind.EVENT, event_id),
        "Service-Attempt": str(attempt),
    }


@lru_cache(maxsize=8)
def retry_schedule(steps_s: tuple[float, ...]) -> RetrySchedule:
    """Return the retry schedule of one post."""
    return RetrySchedule(steps_s, jitter=SPREAD)


def wait_after(status: int | None, made: int, steps: RetrySchedule, *, jitter: float) -> float | None:
    """Return the seconds until the next attempt after a failure, or None if there is none.

    `status` is None if no answer came; `made` counts the attempts of this schedule, including the failed one; `jitter`
    in [0, 1) is random; 0 gives the documented wait.
    """
    if status in GONE:
        return None
    return steps.wait_s(made, jitter=0.5 + jitter / 2)


def shown(answer: bytes) -> str:
    """Return the first bytes of an answer as text that can be stored: without NUL, invalid UTF-8 replaced."""
    return answer[:MAX_ANSWER_BYTES].decode("utf-8", "replace").replace("\0", "\ufffd")
