"""Sign in with address, password and code; every wrong combination gets one answer in the same time.

Guessing is limited per network address, per mail address and network, and per mail address. The last limit is high, and
networks that the person has recently signed in from pass it, so that a stranger who uses it up locks out no owner.
"""

import math

from engine.areas.people import rules
from engine.areas.people import store as people
from engine.areas.people.store import PersonRow
from engine.areas.sessions import store as sessions
from engine.areas.sessions.rules import Device
from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.netaddr import network_of
from engine.base.settings import Settings
from engine.flows.people import second_factor
from engine.flows.people.open_session import NewSession, Outdated, open_session
from engine.flows.people.services import PeopleServices
from engine.store.rate_limits import RateLimiter

STRANGERS = 12  # times `WAYBILL_SIGN_IN_RATE` per hour: tries for one mail address from networks unknown to its person


async def log_in(services: PeopleServices, email: str, password: str, code: str | None, device: Device) -> NewSession:
    """Return a session; raises the same 401 `invalid_credentials` for an unknown address, a wrong password or a
    wrong code.

    Raises 401 `totp_required` if the password is right and a code is required; 429 after too many tries.
    """
    address = rules.checked_email(email)
    await slow_down(services.limits, "login", address, device, services.settings)
    person = await people.FIND.first(services.pool, address)
    await _limit_strangers(services, address, person, device)
    stored = None if person is None else person.password_hash
    if not await services.passwords.matches(stored, password) or person is None or stored is None:
        raise wrong()
    method = await _with_second_factor(services, person, code, device) if person.has_totp else "password"
    pepper = services.settings.key_pepper or ""
    try:
        made = await open_session(services.pool, pepper, person.id, method=method, device=device, proven=person)
    except Outdated:
        raise wrong() from None
    if services.passwords.outdated(stored):
        await people.REHASH.execute(services.pool, person.id, stored, await services.passwords.hashed(password))
    return made


async def slow_down(limits: RateLimiter, what: str, address: str | None, device: Device, settings: Settings) -> None:
    """Count a try of `what` (`login`, `forgot`, `signup`…) against its network and against the mail address from
    there.

    Raises 429 beyond `WAYBILL_SIGN_IN_RATE` a minute. Other networks cannot use up either limit.
    """
    rate = settings.sign_in_rate / 60
    network = network_of(device.address)
    buckets = [f"{what}:{network}"] if address is None else [f"{what}:{network}", f"{what}:{network}:{address}"]
    for bucket in buckets:
        standing = await limits.check(bucket, rate, burst_s=60)
        if not standing.allowed:
            raise too_many(standing.retry_after_s)


def wrong() -> Refusal:
    """Return the same 401 for an unknown address, a wrong password and a wrong code."""
    return Refusal(
        ErrorType.INVALID_CREDENTIALS, "Address, password or code is wrong. Check them, or ask for a new password."
    )


def too_many(retry_after_s: float) -> Refusal:
    """Return the 429 for tries that come too fast."""
    wait = max(1, math.ceil(retry_after_s))
    return Refusal(ErrorType.RATE_LIMITED, f"Too many tries. Wait {wait} s before the next.", retry_after_s=wait)


async def _limit_strangers(services: PeopleServices, address: str, person: PersonRow | None, device: Device) -> None:
    """Limit the tries for one mail address from all networks that its person is not known from."""
    rate = STRANGERS * services.settings.sign_in_rate / 3600
    standing = await services.limits.check(f"login-strangers:{address}", rate, burst_s=3600)
    if standing.allowed:
        return
    if person is not None and await _known_from(services, person, device):
        return
    raise too_many(standing.retry_after_s)


async def _with_second_factor(services: PeopleServices, person: PersonRow, code: str | None, device: Device) -> str:
    """Return the session's sign-in method once the code is right.

    The code is checked only after the password, so that a stranger can neither guess codes nor delay the person.
    """
    if code is None:
        raise Refusal(
            ErrorType.TOTP_REQUIRED, "A code is required: send `code` from your authenticator app, or a recovery code."
        )
    place = network_of(device.address) if await _known_from(services, person, device) else second_factor.ELSEWHERE
    factor = await second_factor.proven(services, person.id, code, clock.now(), place=place)
    if factor is None:
        raise wrong()
    return f"password+{factor.value}"


async def _known_from(services: PeopleServices, person: PersonRow, device: Device) -> bool:
    rows = await sessions.PLACES.records(services.pool, person.id)
    return network_of(device.address) in {network_of(row["address"]) for row in rows}
