"""The form of an API key, which scopes it may carry, and what else it may be limited to."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from msgspec import Struct

from engine.base import clock
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.scopes import SCOPES
from engine.base.secrets import random_base62

PREFIX = "svc_live_"
ID_LENGTH, SECRET_LENGTH = 12, 32
MAX_NAME = 120
MAX_NAMED = 50  # domains, streams or networks of one key
_FORM = re.compile(rf"{PREFIX}([0-9A-Za-z]{{{ID_LENGTH}}})([0-9A-Za-z]{{{SECRET_LENGTH}}})", re.ASCII)

Network = IPv4Network | IPv6Network


class FreshApiKey(Struct, frozen=True):
    """A key at its making: the only moment its secret exists in clear."""

    key_id: str
    secret: str

    @property
    def token(self) -> str:
        """What the caller sends as bearer token."""
        return PREFIX + self.key_id + self.secret


class KeyRestrictions(Struct, frozen=True):
    """What a key is restricted to beside its scopes; None: no restriction."""

    domains: frozenset[str] | None = None  # that it may send from, in lower-case A-labels
    streams: frozenset[str] | None = None  # that it may send on
    networks: tuple[Network, ...] | None = None  # that it may be used from

    @classmethod
    def of(
        cls, domains: Sequence[str] | None, streams: Sequence[str] | None, networks: Sequence[str] | None
    ) -> "KeyRestrictions | None":
        """From what is stored; None for a key without limits, so that nothing has to be looked at in its sends."""
        if domains is None and streams is None and networks is None:
            return None
        return cls(
            None if domains is None else frozenset(domains),
            None if streams is None else frozenset(streams),
            None if networks is None else tuple(ip_network(one) for one in networks),
        )

    def admits(self, address: str | None) -> bool:
        """Whether the key may be used from this address; an unknown one is outside every network."""
        if self.networks is None:
            return True
        try:
            client = ip_address(address or "")
        except ValueError:
            return False
        client = getattr(client, "ipv4_mapped", None) or client
        return any(client in network for network in self.networks)

    def check(self, domain: str, stream: str) -> None:
        """Refuse a message from a domain or on a stream that the key is not for: 403 `forbidden`."""
        if self.domains is not None and domain not in self.domains:
            raise Refusal(ErrorType.FORBIDDEN, f"This key may not send from {domain}: it is limited to other domains.")
        if self.streams is not None and stream not in self.streams:
            raise Refusal(
                ErrorType.FORBIDDEN,
                f"This key may not send on the stream {stream!r}: it is limited to others.",
            )


def new_key() -> FreshApiKey:
    """A fresh random key."""
    return FreshApiKey(random_base62(ID_LENGTH), random_base62(SECRET_LENGTH))


def parse(token: str) -> FreshApiKey | None:
    """Key id and secret of a bearer token, or None when it does not have the form of one."""
    match = _FORM.fullmatch(token)
    return FreshApiKey(match[1], match[2]) if match else None


def hint(key_id: str) -> str:
    """Enough to recognise a key in a list, useless as a credential."""
    return PREFIX + key_id[:4]


def checked_scopes(scopes: Iterable[str]) -> list[str]:
    """The scopes in order without repetition; refuses an unknown one by name."""
    wanted = sorted(set(scopes))
    for scope in wanted:
        if scope not in SCOPES:
            raise _unknown(scope)
    if not wanted:
        raise invalid("scopes", "Name at least one scope.")
    return wanted


def checked_networks(texts: Iterable[str]) -> list[str]:
    """Networks in CIDR notation, in order without repetition; a single address is a network of one."""
    found: set[Network] = set()
    for text in texts:
        try:
            found.add(_unmapped(ip_network(text.strip())))
        except ValueError:
            shown = text[:50]
            raise invalid(
                "networks", f"{shown!r} is no network. Write it like 203.0.113.0/24 or 2001:db8::/32, or one address."
            ) from None
    return [str(one) for one in sorted(found, key=lambda one: (one.version, one.network_address, one.prefixlen))]


def _unmapped(network: Network) -> Network:
    """Return the IPv4 network of IPv4-mapped IPv6 addresses (RFC 4291 2.5.5.2), see `KeyRestrictions.admits`."""
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    return network if mapped is None or network.prefixlen < 96 else IPv4Network((mapped, network.prefixlen - 96))


def checked_expiry(text: str | None, at: datetime) -> datetime | None:
    """The moment a key ends by itself; it must lie after `at`."""
    if text is None:
        return None
    try:
        ends = clock.parse_iso(text)
    except ValueError as error:
        raise invalid("expiresAt", f"`expiresAt`: {error}.") from None
    if ends <= at:
        raise invalid("expiresAt", "`expiresAt` must lie in the future.")
    return ends


def _unknown(scope: str) -> Refusal:
    if scope == "billing:read":
        return invalid("scopes", "billing:read can't be granted to a key; billing reads accept account:read.")
    return invalid("scopes", f"There is no scope named {scope[:100]!r}.")
