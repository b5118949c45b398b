"""People for tests: each with an address of their own, on an account, signed in."""

from uuid import UUID

import argon2
import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.base.secrets import Pepper
from engine.people import open_session
from engine.people.sessions.rules import Device
from tests.harness.accounts import PEPPER
from tests.harness.canaries import note, note_phrase

PASSWORD = note_phrase("correct horse battery staple")
# As a test's password the cheapest hash does: checking it costs under a millisecond.
_CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


class TestPerson(Struct, frozen=True):
    """A person who is signed in: send their requests with `api.post(…, person=ann)`."""

    __test__ = False  # pytest takes the name for a test class

    id: UUID
    account_id: UUID
    session_id: UUID
    email: str
    secret: str
    csrf: str

    @property
    def public_id(self) -> str:
        """`usr_…`."""
        return ids.format_id(ids.Kind.USER, self.id)


async def make_person(
    pool: asyncpg.Pool,
    account: UUID,
    role: str = "owner",
    *,
    email: str | None = None,
    verified: bool = True,
    password: str | None = PASSWORD,
    pepper: Pepper = PEPPER,
) -> TestPerson:
    """A new person with that role on the account, signed in to it."""
    user = ids.uuid7()
    address = email or f"{ids.encode(user)}@people.test"
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "INSERT INTO users (id, email, password_hash, email_verified_at) VALUES ($1, $2, $3, $4)",
            user,
            address,
            None if password is None else _CHEAP.hash(password),
            clock.now() if verified else None,
        )
        await connection.execute(
            "INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, $3)", account, user, role
        )
    return await signed_in(pool, user, account, address, pepper=pepper)


async def signed_in(
    pool: asyncpg.Pool, user: UUID, account: UUID, email: str, *, pepper: Pepper = PEPPER
) -> TestPerson:
    """Another session of a person."""
    device = Device.of("127.0.0.1", "tests")
    made = await open_session.open_session(pool, pepper, user, method="password", device=device, account=account)
    return TestPerson(user, account, made.id, email, note(made.secret), note(made.csrf))
