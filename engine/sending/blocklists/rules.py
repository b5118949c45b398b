"""Build queries for DNS blocklists, read their answers, and judge whether a list can be trusted (RFC 5782)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from msgspec import Struct

from engine.sending.blocklists.types import ListAnswer, ListFamily

# RFC 5782 2.3, 5, 6: every list contains the first test point and does not contain the second one.
TEST_POINTS: Final = {
    ListFamily.IPV4: ("127.0.0.2", "127.0.0.1"),
    ListFamily.IPV6: ("::ffff:7f00:2", "::ffff:7f00:1"),
    ListFamily.DOMAIN: ("test", "invalid"),
}
MEASURED_INTERVALS: Final = 3  # checks that may fail in a row before the state of a target is unknown
JITTER: Final = 0.1  # share of the interval, so that the checks of many targets spread

_CODES: Final = ip_network("127.0.0.0/8")  # RFC 5782 2.1
_NO_LISTING: Final = ip_address("127.0.0.1")  # URIBL and SURBL: this resolver is refused
_REFUSALS: Final = ip_network("127.255.255.0/24")  # Spamhaus: typing error, public resolver, too many queries
_ARPA: Final = {4: ".in-addr.arpa", 6: ".ip6.arpa"}


class ZoneJudgement(Struct, frozen=True):
    """Whether the answers of a list can be trusted, with a sentence for the operator."""

    trusted: bool
    detail: str


def family_of(ip: str) -> ListFamily:
    """Return the family of lists to query about an IP address."""
    return ListFamily.IPV6 if ip_address(ip).version == 6 else ListFamily.IPV4


def query_name(target: str, family: ListFamily, zone: str) -> str:
    """Return the name to look up: reversed octets or nibbles of an address, or a domain name, below the zone."""
    if family is ListFamily.DOMAIN:
        return f"{target.removesuffix('.').lower()}.{zone}"
    address = ip_address(target)
    return f"{address.reverse_pointer.removesuffix(_ARPA[address.version])}.{zone}"


def read_answer(addresses: Sequence[str]) -> ListAnswer:
    """Return the meaning of the A records that a list answered with; none is the answer `not listed`.

    A single address that is no listing code makes the whole answer unknown: it comes from a list that refuses the
    query, or from a resolver that rewrites answers.
    """
    if not addresses:
        return ListAnswer.NOT_LISTED
    if all(_is_listing_code(ip_address(one)) for one in addresses):
        return ListAnswer.LISTED
    return ListAnswer.UNKNOWN


def judge_zone(
    family: ListFamily, listed_point: Sequence[str] | None, unlisted_point: Sequence[str] | None
) -> ZoneJudgement:
    """Judge a list by the A records of its two test points; None for a point without an answer."""
    listed, unlisted = TEST_POINTS[family]
    if listed_point is None or unlisted_point is None:
        return ZoneJudgement(trusted=False, detail="no answer from DNS")
    if read_answer(listed_point) is not ListAnswer.LISTED:
        said = f"answers {', '.join(listed_point)}" if listed_point else "is not listed"
        return ZoneJudgement(trusted=False, detail=f"its test point {listed} {said}")
    if read_answer(unlisted_point) is not ListAnswer.NOT_LISTED:
        return ZoneJudgement(
            trusted=False, detail=f"{unlisted}, which no list contains, answers {', '.join(unlisted_point)}"
        )
    return ZoneJudgement(trusted=True, detail="its test points are right")


def next_check_at(at: datetime, *, every_s: float, jitter: float) -> datetime:
    """Return the time of the next check; `jitter` is a random number from -1 to 1."""
    return at + timedelta(seconds=every_s * (1 + JITTER * jitter))


def measured_until(at: datetime, *, every_s: float) -> datetime:
    """Return the time until which a check at `at` says how its target stands."""
    return at + timedelta(seconds=every_s * (MEASURED_INTERVALS + JITTER))


def _is_listing_code(address: IPv4Address | IPv6Address) -> bool:
    return address in _CODES and address != _NO_LISTING and address not in _REFUSALS
