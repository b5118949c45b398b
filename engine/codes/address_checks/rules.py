"""Judge addresses from their syntax, lists and what DNS says. Pure."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from engine.base.errors import ErrorType, Refusal
from engine.codes.address_checks import domain_lists
from engine.codes.address_checks.types import AddressCheck, AddressVerdict, CheckReason, Checks, MailRoute
from engine.mail.address import BadAddress, bare_address, canonical

MAX_ADDRESSES: Final = 100  # of one call
_UNSUBSCRIBE: Final = "unsubscribe"  # the reason of a suppression


class ParsedAddress(Struct, frozen=True):
    """An address of a request; without `normalized` its syntax is wrong."""

    text: str
    normalized: str | None

    @property
    def key(self) -> str:
        """Return the form in which two addresses are the same, so that they are charged once."""
        return self.text if self.normalized is None else canonical(self.normalized)

    @property
    def domain(self) -> str:
        """Return the domain in lower-case A-labels, "" if the syntax is wrong."""
        return (self.normalized or "").rpartition("@")[2]


def parsed(text: str) -> ParsedAddress:
    """Return an address of a request with its normalised form."""
    try:
        return ParsedAddress(text, bare_address(text.strip()))
    except BadAddress:
        return ParsedAddress(text, None)


def judge(one: ParsedAddress, routes: Mapping[str, MailRoute], suppressed: Mapping[str, str]) -> AddressCheck:
    """Return the result for an address, given the routes of domains and the reasons of suppressed canonical addresses.

    `unsubscribe` leaves transactional mail open, so it makes an address risky and not undeliverable.
    """
    if one.normalized is None:
        return AddressCheck(
            address=one.text, normalized=None, verdict=AddressVerdict.UNDELIVERABLE, reason=CheckReason.SYNTAX,
            checks=Checks(syntax=False), suggestion=None,
        )  # fmt: skip
    local, domain = one.normalized.rpartition("@")[0], one.domain
    route = routes[domain]
    checks = Checks(
        syntax=True,
        domain=_reached(route, route is not MailRoute.NO_DOMAIN),
        mx=None if route is MailRoute.NO_DOMAIN else _reached(route, route is MailRoute.SERVER),
        null_mx=None if route is MailRoute.NO_DOMAIN else _reached(route, route is MailRoute.NULL_MX),
        disposable=domain_lists.is_disposable(domain),
        role=domain_lists.is_role(local),
        suppressed=suppressed.get(one.key, _UNSUBSCRIBE) != _UNSUBSCRIBE,
        relay=domain_lists.is_relay(domain),
    )
    verdict, reason = _verdict(checks, route, is_unsubscribed=suppressed.get(one.key) == _UNSUBSCRIBE)
    return AddressCheck(
        address=one.text, normalized=one.normalized, verdict=verdict, reason=reason, checks=checks,
        suggestion=_suggestion(local, domain),
    )  # fmt: skip


def _reached(route: MailRoute, found: bool) -> bool | None:  # noqa: FBT001 - the value that is passed on
    return None if route is MailRoute.UNREACHABLE else found


def _verdict(checks: Checks, route: MailRoute, *, is_unsubscribed: bool) -> tuple[AddressVerdict, CheckReason | None]:
    """Return the first verdict that holds, from the worst to the best."""
    if route in _NO_ROUTE:
        return AddressVerdict.UNDELIVERABLE, _NO_ROUTE[route]
    if checks.suppressed:
        return AddressVerdict.UNDELIVERABLE, CheckReason.SUPPRESSED
    if route is MailRoute.UNREACHABLE:
        return AddressVerdict.UNKNOWN, CheckReason.DNS
    if is_unsubscribed:
        return AddressVerdict.RISKY, CheckReason.UNSUBSCRIBED
    if checks.role:
        return AddressVerdict.RISKY, CheckReason.ROLE
    if checks.disposable:
        return AddressVerdict.RISKY, CheckReason.DISPOSABLE
    return AddressVerdict.DELIVERABLE, None


_NO_ROUTE: Final = {
    MailRoute.NO_DOMAIN: CheckReason.NO_DOMAIN,
    MailRoute.NULL_MX: CheckReason.NULL_MX,
    MailRoute.NO_SERVER: CheckReason.NO_MAIL_SERVER,
}


def _suggestion(local: str, domain: str) -> str | None:
    meant = domain_lists.TYPING_ERRORS.get(domain)
    return None if meant is None else f"{local}@{meant}"


def month_used(limit: int, used: int, wanted: int, *, retry_after_s: int) -> Refusal:
    """Return the 403 for a call that asks for more checks than the month has left."""
    return Refusal(
        ErrorType.PLAN_LIMIT_REACHED,
        f"This request needs {wanted} address checks; {max(0, limit - used)} of this month's {limit} are left. Send "
        "fewer, or upgrade your plan.",
        retry_after_s=retry_after_s,
        resource="address_checks",
        limit=limit,
        used=used,
    )
