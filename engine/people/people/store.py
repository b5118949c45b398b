"""Read and write people and their memberships."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__)
INSERT_OWNER = _SQL.command("insert_owner")


class PersonRow(Struct, frozen=True):
    """A person for sign-in and changes of their record."""

    id: UUID
    email: str
    name: str
    password_hash: str | None
    email_verified_at: datetime | None
    verified_by_link: bool
    has_totp: bool
    is_operator: bool
    created_at: datetime


class Membership(Struct, frozen=True):
    """An account of a person and their role in it."""

    account_id: UUID
    name: str
    plan: str
    status: str
    role: str


class ProfileRow(Struct, frozen=True):
    """The profile of a person."""

    id: UUID
    email: str
    email_verified_at: datetime | None
    name: str
    display_name: str | None
    timezone: str | None
    signature: str | None
    signature_addresses: list[str] | None


class NamedOperator(Struct, frozen=True):
    """The person of an operator's address, and what they need to be an operator."""

    email: str
    email_verified: bool
    is_operator: bool


class AccountOwnerRow(Struct, frozen=True):
    """An owner of an account, who receives its notices."""

    id: UUID
    email: str


FIND = _SQL.rows("find_person", PersonRow)
READ = _SQL.rows("read_person", PersonRow)
LOCK = _SQL.rows("lock_person", PersonRow)
MEMBERSHIPS = _SQL.rows("memberships", Membership)
SET_PASSWORD = _SQL.command("set_password")
REHASH = _SQL.command("rehash_password")
SIGNED_IN_TO = _SQL.command("signed_in_to")
SPEND = _SQL.command("spend_challenge")
FORGET_CHALLENGES = _SQL.command("forget_challenges")
INSERT = _SQL.command("insert_person")
CONFIRM_ADDRESS = _SQL.command("confirm_address")
SET_OPERATOR = _SQL.command("set_operator")
OPERATORS_NAMED = _SQL.rows("operators_named", NamedOperator)
OWNERS = _SQL.rows("owners_of", AccountOwnerRow)
APPROVERS = _SQL.rows("approvers_of", AccountOwnerRow)
MANAGERS = _SQL.rows("managers_of", AccountOwnerRow)
PROFILE = _SQL.rows("read_profile", ProfileRow)
SET_PROFILE = _SQL.command("set_profile")


async def insert_owner(
    connection: Conn,
    *,
    user: UUID,
    account: UUID,
    email: str,
    password_hash: str | None,
    verified_at: datetime | None,
    signed_up_from: str | None,
) -> None:
    """Insert the first person of an account as its owner; raise UniqueViolation if the address is in use."""
    await INSERT_OWNER.execute(connection, user, email, password_hash, verified_at, account, signed_up_from)
