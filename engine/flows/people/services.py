"""What the services of people need of a process: the API's `ApiServices` has all of it."""

from typing import Protocol

import asyncpg

from engine.areas.identity.provider import IdentityProvider
from engine.base.settings import Settings
from engine.store.passwords import Passwords
from engine.store.rate_limits import RateLimiter


class PeopleServices(Protocol):
    """The database, the password hasher and the limits on tries, for whatever proves who a person is."""

    pool: asyncpg.Pool
    passwords: Passwords
    limits: RateLimiter
    settings: Settings


class IdentityServices(PeopleServices, Protocol):
    """The same with the identity provider; None where the settings name none."""

    provider: IdentityProvider | None
