"""Signing in with address, password and code: one answer in the same time to every wrong pair.

Guessing is slowed in three places: per network address, per pair of mail address and network, and per mail address.
The last bucket is large and passed by networks the person has signed in from lately, signed out or not, so that a
stranger who empties it keeps nobody out.
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

STRANGERS = 12  # times `WAYBILL_SIGN_IN_RATE`, an hour: tries for one mail address from networks new to its person


async def log_in(services: PeopleServices, email: str, password: str, code: str | None, device: Device) -> NewSession:
    """A session; 401 `invalid_credentials` for an unknown address, a wrong password and a wrong code alike.

    401 `totp_required` asks for the code once the password is right; 429 after too many tries.
    """
    address = rules.checked_email(email)
    await slow_down(services.limits, "login", address, device, services.settings)
    person = await people.FIND.first(services.pool, address)
    await _heed_strangers(services, address, person, device)
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
    """Count a try of `what` (`login`, `forgot`, `signup`…) against its network and against the mail address from there.

    Raises 429 beyond `WAYBILL_SIGN_IN_RATE` a minute. Neither bucket can be emptied from elsewhere.
    """
    rate = settings.sign_in_rate / 60
    network = network_of(device.address)
    buckets = [f"{what}:{network}"] if address is None else [f"{what}:{network}", f"{what}:{network}:{address}"]
    for bucket in buckets:
        standing = await limits.check(bucket, rate, burst_s=60)
        if not standing.allowed:
            raise too_many(standing.retry_after_s)


def wrong() -> Refusal:
    """The one answer to an unknown address, a wrong password and a wrong code."""
    return Refusal(
        ErrorType.INVALID_CREDENTIALS, "Address, password or code is wrong. Check them, or ask for a new password."
    )


def too_many(retry_after_s: float) -> Refusal:
    """The 429 of tries that come too fast."""
    wait = max(1, math.ceil(retry_after_s))
    return Refusal(ErrorType.RATE_LIMITED, f"Too many tries. Wait {wait} s before the next.", retry_after_s=wait)


async def _heed_strangers(services: PeopleServices, address: str, person: PersonRow | None, device: Device) -> None:
    """Bound the tries for one mail address from everywhere; a network that its person has come from is let by."""
    rate = STRANGERS * services.settings.sign_in_rate / 3600
    standing = await services.limits.check(f"login-strangers:{address}", rate, burst_s=3600)
    if standing.allowed:
        return
    if person is not None and await _known_from(services, person, device):
        return
    raise too_many(standing.retry_after_s)


async def _with_second_factor(services: PeopleServices, person: PersonRow, code: str | None, device: Device) -> str:
    """How the session is proven, once the code is right; it is looked at only after the password, so a stranger can
    neither guess codes nor make the person wait."""
    if code is None:
        raise Refusal(ErrorType.TOTP_REQUIRED, "Send `code` besides: of your authenticator app, or a recovery code.")
    place = network_of(device.address) if await _known_from(services, person, device) else second_factor.ELSEWHERE
    factor = await second_factor.proven(services, person.id, code, clock.now(), place=place)
    if factor is None:
        raise wrong()
    return f"password+{factor.value}"


async def _known_from(services: PeopleServices, person: PersonRow, device: Device) -> bool:
    rows = await sessions.PLACES.records(services.pool, person.id)
    return network_of(device.address) in {network_of(row["address"]) for row in rows}
