"""Check the options of an endpoint: events of some domains and streams only, headers, metadata, signatures, retries.

Values of headers are often credentials: they are stored sealed and never shown again.
"""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct, structs

from engine.base import secrets
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.slugs import is_slug
from engine.events.webhooks import standard
from engine.events.webhooks.types import EndpointRow, HeadersRow
from engine.mail.address import BadAddress, domain_name

MAX_FILTERS: Final = 50  # domains, and streams, of an endpoint
MAX_DOMAIN, MAX_STREAM = 253, 64  # characters
MAX_HEADERS, MAX_HEADER_NAME, MAX_HEADER_VALUE = 10, 64, 1_024  # headers of an endpoint, characters
SERVICE_PREFIX: Final = "service-"
_PURPOSE = "webhook headers"
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # a token of RFC 9110 5.6.2
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
# Written by the service or by its HTTP client, or about the connection (RFC 9110 7.6.1).
_RESERVED: Final = frozenset({
    "host", "user-agent", "expect", "date", "connection", "keep-alive", "proxy-connection", "proxy-authorization",
    "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade", "accept-encoding",
})  # fmt: skip


class PostOptions(Struct, frozen=True, kw_only=True):
    """The options of a request; None for one that it does not give. A header of None is removed."""

    domains: Sequence[str] | None = None
    streams: Sequence[str] | None = None
    headers: Mapping[str, str | None] | None = None
    include_metadata: bool | None = None
    signatures: Sequence[str] | None = None
    honor_retry_after: bool | None = None

    def checked(self) -> "PostOptions":
        """Return the options with names in their stored form. Raises the 400 that names the field at fault."""
        return PostOptions(
            domains=None if self.domains is None else _checked_domains(self.domains),
            streams=None if self.streams is None else _checked_streams(self.streams),
            headers=None if self.headers is None else _checked_headers(self.headers),
            include_metadata=self.include_metadata,
            signatures=None if self.signatures is None else _checked_signatures(self.signatures),
            honor_retry_after=self.honor_retry_after,
        )

    def within(self, domains: AbstractSet[str] | None, streams: AbstractSet[str] | None) -> "PostOptions":
        """Return checked options for a caller who may see these domains and streams alone (None: all).

        An empty filter, which all events pass, becomes the caller's. Raises the 403 for a name that the caller lacks.
        """
        return structs.replace(
            self,
            domains=_filter_within("domains", self.domains, domains),
            streams=_filter_within("streams", self.streams, streams),
        )


class KnownNames(Struct, frozen=True):
    """The domains of an account and the slugs of its streams."""

    domains: frozenset[str]
    streams: frozenset[str]


def headers_key(pepper: secrets.Pepper) -> secrets.DerivedKey:
    """Return the key that seals the headers of endpoints."""
    return secrets.derived(pepper, _PURPOSE)


def sealed_headers(
    given: Mapping[str, str | None], stored: HeadersRow | None, key: secrets.DerivedKey, webhook: UUID
) -> HeadersRow:
    """Return the headers to store: those of `stored` with the changes `given`, in which None removes one.

    Raises the 400 for too many of them, Unsealable if the stored ones were sealed with another pepper and some stay.
    """
    kept = {name.lower(): name for name in given}
    names = [] if stored is None else [name for name in stored.header_names if name.lower() not in kept]
    before = {} if stored is None or not names else opened(stored.sealed_headers, key, webhook)
    found = {name: before[name] for name in names}
    found |= {name: value for name, value in given.items() if value is not None}
    if len(found) > MAX_HEADERS:
        raise invalid(
            "headers", f"The endpoint would have {len(found)} headers; the limit is {MAX_HEADERS}. Remove some."
        )
    if not found:
        return HeadersRow([], None)
    return HeadersRow(list(found), secrets.seal(key, msgspec.json.encode(found), webhook.bytes))


def opened(sealed: bytes | None, key: secrets.DerivedKey, webhook: UUID) -> dict[str, str]:
    """Return the headers of an endpoint. Raises Unsealable."""
    if sealed is None:
        return {}
    return msgspec.json.decode(secrets.unseal(key, sealed, webhook.bytes), type=dict[str, str])


def merged(own: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a post; an endpoint may have named one of its own before the service sent it too."""
    return {name: value for name, value in own.items() if name.lower() not in ours} | dict(ours)


def unknown(row: EndpointRow, known: KnownNames) -> list[tuple[str, str]]:
    """Return the field and a warning for each filter that names no domain or stream of the account."""
    why = "the filter matches no message until it is added."
    found = [
        (f"domains[{place}]", f"Your account has no domain {name}: {why}")
        for place, name in enumerate(row.domains)
        if name not in known.domains
    ]
    return found + [
        (f"streams[{place}]", f"Your account has no stream `{name}`: {why}")
        for place, name in enumerate(row.streams)
        if name not in known.streams
    ]


def _filter_within(field: str, given: Sequence[str] | None, allowed: AbstractSet[str] | None) -> Sequence[str] | None:
    if allowed is None or given is None:
        return given
    if not given:
        return sorted(allowed)
    others = [name for name in given if name not in allowed]
    if others:
        raise Refusal(
            ErrorType.FORBIDDEN,
            f"Your API key is limited to some {field}, not including {others[0]}. Leave it out, or use a key "
            "without this limit.",
        )
    return given


def _checked_domains(names: Sequence[str]) -> list[str]:
    _check_number("domains", names)
    found = []
    for place, name in enumerate(names):
        try:
            found.append(domain_name(name.strip()))
        except BadAddress as error:
            field = f"domains[{place}]"
            raise invalid(field, f"`{field}` is {name[:100]!r}: {error}. Give a domain such as example.com.") from None
    return list(dict.fromkeys(found))


def _checked_streams(names: Sequence[str]) -> list[str]:
    _check_number("streams", names)
    for place, name in enumerate(names):
        if not is_slug(name):
            field = f"streams[{place}]"
            raise invalid(
                field, f"`{field}` is {name[:100]!r}, which isn't a valid stream name. Use one such as `transactional`."
            )
    return list(dict.fromkeys(names))


def _check_number(field: str, names: Sequence[str]) -> None:
    if len(names) > MAX_FILTERS:
        raise invalid(field, f"`{field}` has {len(names)} names; the limit is {MAX_FILTERS}. Remove some.")


def _checked_signatures(names: Sequence[str]) -> list[str]:
    if standard.WAYBILL not in names:
        raise invalid("signatures", "`signatures` must include `waybill`: each post has `Service-Signature`.")
    return list(dict.fromkeys(names))


def _checked_headers(headers: Mapping[str, str | None]) -> dict[str, str | None]:
    seen: set[str] = set()
    for name, value in headers.items():
        lower = name.lower()
        if len(name) > MAX_HEADER_NAME or not _NAME.fullmatch(name):
            raise _unusable(
                f"{name[:100]!r} isn't a valid header name; use 1 to {MAX_HEADER_NAME} letters, digits or `-`"
            )
        added = lower in standard.HEADERS and value is not None  # an endpoint may have one from before these were ours
        if added or lower in _RESERVED or lower.startswith(("content-", SERVICE_PREFIX)):
            raise _unusable(f"`{name}` is set by Waybill or HTTP itself, so you can't set it")
        if lower in seen:
            raise _unusable(f"`{name}` is given twice; upper and lower case are the same")
        seen.add(lower)
        if value is not None and (len(value) > MAX_HEADER_VALUE or not _VALUE.fullmatch(value)):
            raise _unusable(
                f"the value of `{name}` must be 1 to {MAX_HEADER_VALUE} visible ASCII characters and spaces"
            )
    return dict(headers)


def _unusable(why: str) -> Refusal:
    return invalid("headers", f"`headers` can't be used: {why}.")
