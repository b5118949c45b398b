"""Sign in with address, password and code; every wrong combination gets one answer in the same time.

Guessing is limited per network address, per mail address and network, per mail address, and per /56 and /48 of IPv6.
The last three limits are high, and networks that the person has recently signed in from pass them, so that a stranger
who uses them up locks out no owner. The passwords of these networks are also checked before those of strangers.
"""

import math
from uuid import UUID

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.netaddr import SHARES, network_of, wider_networks
from engine.base.settings import Settings
from engine.people.open_session import NewSession, Outdated, open_session
from engine.people.people import challenge, rules
from engine.people.people import store as people
from engine.people.people.store import PersonRow
from engine.people.second_factor import service as second_factor
from engine.people.services import PeopleServices
from engine.people.sessions import store as sessions
from engine.people.sessions.rules import Device
from engine.people.sessions.session_auth import Person
from engine.store.rate_limits import RateLimiter

STRANGERS = 12  # times `WAYBILL_SIGN_IN_RATE` per hour: tries for one mail address from networks unknown to its person


async def log_in(
    services: PeopleServices,
    email: str,
    password: str,
    code: str | None,
    device: Device,
    *,
    caller: Person | None = None,
    challenge_token: str | None = None,
) -> NewSession:
    """Return a session; raises the same 401 `invalid_credentials` for an unknown address, a wrong password or a
    wrong code.

    `caller` is the person of a session that the browser has. While many passwords of strangers wait, raises 400 for an
    unsolved challenge, unless the person is known from this network. Raises 401 `totp_required` if the password is
    right and a code is required; 429 after too many tries, and while too many passwords wait to be checked.
    """
    address = rules.checked_email(email)
    await slow_down(services.limits, "login", address, device, services.settings, wide=False)
    person = await people.FIND.first(services.pool, address)
    # Asked of the database for unknown addresses too, so that both take the same time.
    is_known = await _known_from(services, ids.uuid7() if person is None else person.id, device)
    is_known = is_known or (person is not None and caller is not None and caller.user_id == person.id)
    await _limit_strangers(services, address, device, is_known=is_known)
    if services.passwords.is_crowded and not is_known:
        await _spend(services, challenge.checked(services.settings.pepper, challenge_token))
    stored = None if person is None else person.password_hash
    is_right = await services.passwords.matches(stored, password, known=is_known)
    if not is_right or person is None or stored is None:
        raise wrong()
    method = await _with_second_factor(services, person, code, device) if person.has_totp else "password"
    pepper = services.settings.pepper
    try:
        made = await open_session(services.pool, pepper, person.id, method=method, device=device, proven=person)
    except Outdated:
        raise wrong() from None
    if services.passwords.outdated(stored):
        await people.REHASH.execute(
            services.pool, person.id, stored, await services.passwords.hashed(password, known=True)
        )
    return made


async def slow_down(
    limits: RateLimiter, what: str, address: str | None, device: Device, settings: Settings, *, wide: bool = True
) -> None:
    """Count a try of `what` (`login`, `forgot`, `signup`…) against its network, against the mail address from there,
    and with `wide` against the larger IPv6 networks.

    Raises 429 beyond `WAYBILL_SIGN_IN_RATE` a minute. Other networks cannot use up the first two limits.
    """
    rate = settings.sign_in_rate / 60
    network = network_of(device.address)
    buckets = [f"{what}:{network}"] if address is None else [f"{what}:{network}", f"{what}:{network}:{address}"]
    for bucket in buckets:  # in this order: a network that has used up its own limit takes nothing of the wider ones
        standing = await limits.check(bucket, rate, burst_s=60)
        if not standing.allowed:
            raise too_many(standing.retry_after_s)
    if wide and (wait_s := await _wide_wait_s(limits, what, device, settings)):
        raise too_many(wait_s)


async def _wide_wait_s(limits: RateLimiter, what: str, device: Device, settings: Settings) -> float:
    """Count a try against the larger IPv6 networks around the address; return the seconds to wait if one is used up."""
    for network, length in wider_networks(device.address):
        rate = SHARES[length] * settings.sign_in_rate / 60
        standing = await limits.check(f"{what}:{network}", rate, burst_s=60)
        if not standing.allowed:
            return standing.retry_after_s
    return 0.0


def wrong() -> Refusal:
    """Return the same 401 for an unknown address, a wrong password and a wrong code."""
    return Refusal(
        ErrorType.INVALID_CREDENTIALS, "Address, password or code is wrong. Check them, or ask for a new password."
    )


def too_many(retry_after_s: float) -> Refusal:
    """Return the 429 for tries that come too fast."""
    wait = max(1, math.ceil(retry_after_s))
    return Refusal(ErrorType.RATE_LIMITED, f"Too many attempts. Wait {wait} s before the next.", retry_after_s=wait)


async def _spend(services: PeopleServices, proof: bytes) -> None:
    """Use up a proof of work; raise 400 if it was used before."""
    if not await people.SPEND.records(services.pool, proof, clock.now() + challenge.LIFETIME):
        raise challenge.spent()


async def _limit_strangers(services: PeopleServices, address: str, device: Device, *, is_known: bool) -> None:
    """Limit the tries for one mail address and those from a large IPv6 network; people known from there pass."""
    rate = STRANGERS * services.settings.sign_in_rate / 3600
    standing = await services.limits.check(f"login-strangers:{address}", rate, burst_s=3600)
    wait_s = 0.0 if standing.allowed else standing.retry_after_s
    wait_s = wait_s or await _wide_wait_s(services.limits, "login", device, services.settings)
    if wait_s and not is_known:
        raise too_many(wait_s)


async def _with_second_factor(services: PeopleServices, person: PersonRow, code: str | None, device: Device) -> str:
    """Return the session's sign-in method once the code is right.

    The code is checked only after the password, so that a stranger can neither guess codes nor delay the person.
    """
    if code is None:
        raise Refusal(
            ErrorType.TOTP_REQUIRED, "A code is required: send `code` from your authenticator app, or a recovery code."
        )
    place = network_of(device.address) if await _known_from(services, person.id, device) else second_factor.ELSEWHERE
    factor = await second_factor.proven(services, person.id, code, clock.now(), place=place)
    if factor is None:
        raise wrong()
    return f"password+{factor.value}"


async def _known_from(services: PeopleServices, user: UUID, device: Device) -> bool:
    rows = await sessions.PLACES.records(services.pool, user)
    return network_of(device.address) in {network_of(row["address"]) for row in rows}
