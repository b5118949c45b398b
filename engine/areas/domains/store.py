"""Rows of sending domains and their signing keys."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from engine.base.secrets import derived, seal, unseal
from engine.mail import dkim
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__)
SEALING = "dkim keys"  # the purpose of the derived key


class DomainRow(Struct):
    """One sending domain of an account."""

    id: UUID
    account_id: UUID
    name: str
    status: str
    created_at: datetime
    verified_at: datetime | None
    checked_at: datetime | None


class DomainName(Struct, frozen=True):
    """What acceptance needs to know of a domain."""

    name: str
    status: str


class SigningRow(Struct, frozen=True):
    """An active signing key of a domain."""

    domain_id: UUID
    name: str
    selector: str
    algorithm: str
    sealed_key: bytes


class PublishedRow(Struct, frozen=True):
    """A TXT record that a domain's owner is asked to publish."""

    domain_id: UUID
    selector: str
    algorithm: str
    public_txt: str
    status: str


NAMES = _SQL.rows("domain_names", DomainName)
LIST = _SQL.rows("list_domains", DomainRow)
READ = _SQL.rows("read_domain", DomainRow)
SIGNING = _SQL.rows("signing_keys", SigningRow)
PUBLISHED = _SQL.rows("published_keys", PublishedRow)
PUBLISHED_AT = _SQL.rows("published_at", PublishedRow)
INSERT = _SQL.command("insert_domain")
INSERT_KEY = _SQL.command("insert_domain_key")
MARK = _SQL.command("mark_domain")
ACTIVATE = _SQL.command("activate_key")


async def insert(connection: Conn, domain: UUID, account: UUID, name: str, *, pepper: str) -> None:
    """A new pending domain with a fresh RSA-2048 and a fresh Ed25519 key.

    Raises UniqueViolationError when the account has it already.
    """
    await INSERT.execute(connection, domain, account, name)
    sealing = derived(pepper, SEALING)
    for selector, algorithm, der, status in (
        ("wb1", "rsa-sha256", dkim.generate_rsa(), "active"),
        ("wb1e", "ed25519-sha256", dkim.generate_ed25519(), "pending"),  # active once it is found published
    ):
        sealed = seal(sealing, der, domain.bytes)
        await INSERT_KEY.execute(connection, domain, selector, algorithm, sealed, dkim.public_txt(der), status)


async def signing_keys(connection: Conn, account: UUID, name: str, *, pepper: str) -> list[dkim.SigningKey]:
    """The keys that sign for the domain, RSA first; empty when it has none or does not exist."""
    rows = await SIGNING.fetch(connection, account, name)
    sealing = derived(pepper, SEALING)
    return [dkim.load(row.name, row.selector, unseal(sealing, row.sealed_key, row.domain_id.bytes)) for row in rows]
