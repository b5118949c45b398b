"""Protocol of the services that people need from a process; the API's `ApiServices` satisfies it."""

from typing import Protocol

import asyncpg

from engine.base.settings import Settings
from engine.store.passwords import Passwords
from engine.store.rate_limits import RateLimiter


class PeopleServices(Protocol):
    """The database, the password hasher, the limits on tries and the settings."""

    pool: asyncpg.Pool
    passwords: Passwords
    limits: RateLimiter
    settings: Settings
