"""Define the form of API keys, their scopes and their restrictions. Pure, except for randomness."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from msgspec import Struct

from engine.base import clock
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.scopes import SCOPES
from engine.base.secrets import random_base62

PREFIX = "svc_live_"
ID_LENGTH, SECRET_LENGTH = 12, 32
MAX_NAME = 120
MAX_NAMED = 50  # max. domains, streams or networks of one key
MAX_ORIGINS, MAX_ORIGIN = 10, 300  # of one key; characters of one
DEFAULT_OVERLAP_HOURS, MAX_OVERLAP_HOURS = 24, 168  # for which a rotated key and its successor both authenticate
_FORM = re.compile(rf"{PREFIX}([0-9A-Za-z]{{{ID_LENGTH}}})([0-9A-Za-z]{{{SECRET_LENGTH}}})", re.ASCII)

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# The form in which browsers send origins (RFC 6454 6.2): lower case, A-labels, no default port.
_ORIGIN = re.compile(rf"(?:https://{_LABEL}(?:\.{_LABEL})*|http://localhost)(?::([1-9][0-9]{{0,4}}))?", re.ASCII)
_DEFAULT_PORTS = {"https": "443", "http": "80"}

Network = IPv4Network | IPv6Network


class FreshApiKey(Struct, frozen=True):
    """A new or presented key, the only form with the secret in clear."""

    key_id: str
    secret: str

    @property
    def token(self) -> str:
        """Return the bearer token."""
        return PREFIX + self.key_id + self.secret


class KeyRestrictions(Struct, frozen=True):
    """The restrictions of a key in addition to its scopes; None means no restriction."""

    domains: frozenset[str] | None = None  # allowed sending domains, in lower-case A-labels
    streams: frozenset[str] | None = None  # allowed streams
    networks: tuple[Network, ...] | None = None  # allowed client networks
    recipients: frozenset[str] | None = None  # allowed recipients: canonical addresses, and `@` with a domain
    needs_approval: bool = False  # a person approves each send (engine.sending.agent_sends)

    @classmethod
    def of(
        cls,
        domains: Sequence[str] | None,
        streams: Sequence[str] | None,
        networks: Sequence[str] | None,
        recipients: Sequence[str] | None = None,
        approval: str | None = None,
    ) -> "KeyRestrictions | None":
        """Build the restrictions from stored values; None for a key without any, so that sends skip the checks."""
        needs_approval = approval == "required"
        if domains is None and streams is None and networks is None and recipients is None and not needs_approval:
            return None
        return cls(
            None if domains is None else frozenset(domains),
            None if streams is None else frozenset(streams),
            None if networks is None else tuple(ip_network(one) for one in networks),
            None if recipients is None else frozenset(recipients),
            needs_approval,
        )

    def admits(self, address: str | None) -> bool:
        """Return True if the key may be used from this address; an unknown address is in no network."""
        if self.networks is None:
            return True
        try:
            client = ip_address(address or "")
        except ValueError:
            return False
        client = getattr(client, "ipv4_mapped", None) or client
        return any(client in network for network in self.networks)

    def covers_domain(self, domain: str) -> bool:
        """Return True if the key may see and change things of this domain."""
        return self.domains is None or domain in self.domains

    def covers_stream(self, stream: str) -> bool:
        """Return True if the key may see and change things of this stream."""
        return self.streams is None or stream in self.streams

    def covers(self, domain: str, stream: str) -> bool:
        """Return True if the key may see and change mail from this domain on this stream."""
        return self.covers_domain(domain) and self.covers_stream(stream)

    def check(self, domain: str, stream: str) -> None:
        """Raise the 403 for a message from a domain or on a stream that the key does not allow."""
        if self.domains is not None and domain not in self.domains:
            raise Refusal(
                ErrorType.FORBIDDEN,
                f"This API key isn't allowed to send from {domain}. Use a key that allows this domain.",
            )
        if self.streams is not None and stream not in self.streams:
            raise Refusal(
                ErrorType.FORBIDDEN,
                f"This API key isn't allowed to send on the stream {stream!r}. Use a key that allows it.",
            )
        if self.needs_approval:
            raise Refusal(
                ErrorType.FORBIDDEN,
                "A person must approve what this API key sends. Use POST /v1/agent-sends, which asks for it.",
            )

    def check_recipients(self, canonical: Iterable[str]) -> None:
        """Raise the 403 for a recipient that the key does not allow."""
        if self.recipients is None:
            return
        for address in canonical:
            if address not in self.recipients and address[address.rfind("@") :] not in self.recipients:
                raise Refusal(
                    ErrorType.FORBIDDEN,
                    f"This API key isn't allowed to send to {address}. Use a key that allows this recipient.",
                )


def new_key() -> FreshApiKey:
    """Return a new random key."""
    return FreshApiKey(random_base62(ID_LENGTH), random_base62(SECRET_LENGTH))


def parse(token: str) -> FreshApiKey | None:
    """Parse a bearer token; return None if it does not have the form of a key."""
    match = _FORM.fullmatch(token)
    return FreshApiKey(match[1], match[2]) if match else None


def hint(key_id: str) -> str:
    """Return the beginning of a key, to recognise it in lists."""
    return PREFIX + key_id[:4]


def checked_scopes(scopes: Iterable[str]) -> list[str]:
    """Return the scopes sorted without duplicates; raise the 400 that names an unknown one."""
    wanted = sorted(set(scopes))
    for scope in wanted:
        if scope not in SCOPES:
            raise _unknown(scope)
    if not wanted:
        raise invalid("scopes", "`scopes` is empty. Name at least one scope.")
    return wanted


def checked_networks(texts: Iterable[str]) -> list[str]:
    """Return networks in CIDR notation, sorted without duplicates; an address is a network of one."""
    found: set[Network] = set()
    for text in texts:
        try:
            found.add(_unmapped(ip_network(text.strip())))
        except ValueError:
            shown = text[:50]
            raise invalid(
                "networks", f"{shown!r} is not a network. Use the form 203.0.113.0/24 or 2001:db8::/32, or an address."
            ) from None
    return [str(one) for one in sorted(found, key=lambda one: (one.version, one.network_address, one.prefixlen))]


def checked_origins(texts: Iterable[str], scopes: Iterable[str]) -> list[str]:
    """Return the origins sorted without duplicates; raise the 400 for one that no browser sends, and for a key that may
    do more than read: its secret stands in the source of a page.
    """
    for scope in scopes:
        if not scope.endswith(":read"):
            raise invalid(
                "allowedOrigins", f"`allowedOrigins` is for keys that only read; this one has {scope}. Remove it."
            )
    for text in texts:
        match = _ORIGIN.fullmatch(text)
        if match is None or match[1] == _DEFAULT_PORTS[text.partition(":")[0]]:
            raise invalid(
                "allowedOrigins",
                f"{text[:100]!r} is not an origin as browsers send it. Use the form https://app.example.com or "
                "http://localhost:3000: lower case, without a path, without the default port.",
            )
    return sorted(set(texts))


def _unmapped(network: Network) -> Network:
    """Return the IPv4 network of IPv4-mapped IPv6 addresses (RFC 4291 2.5.5.2), see `KeyRestrictions.admits`."""
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    return network if mapped is None or network.prefixlen < 96 else IPv4Network((mapped, network.prefixlen - 96))


def checked_expiry(text: str | None, at: datetime) -> datetime | None:
    """Return the time at which the key expires; raise the 400 unless it is after `at`."""
    if text is None:
        return None
    try:
        ends = clock.parse_iso(text)
    except ValueError as error:
        raise invalid("expiresAt", f"`expiresAt` is not a time such as 2027-01-31T00:00:00Z: {error}.") from None
    if ends <= at:
        raise invalid("expiresAt", f"`expiresAt` is {text}, which is in the past. Give a later time or leave it out.")
    return ends


def end_of_overlap(expires_at: datetime | None, at: datetime, hours: int) -> datetime:
    """Return when a key that is rotated at `at` expires: after the overlap, or at its own expiry if that is earlier."""
    end = at + timedelta(hours=hours)
    return end if expires_at is None else min(end, expires_at)


def _unknown(scope: str) -> Refusal:
    if scope == "billing:read":
        return invalid(
            "scopes", "billing:read can't be granted to a key. Use account:read, which allows reading billing."
        )
    return invalid("scopes", f"Unknown scope {scope[:100]!r}.")
