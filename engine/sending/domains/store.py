"""Read and write sending domains, their signing keys, and Cloudflare tokens."""

import asyncio
from collections.abc import Sequence
from typing import Final, Literal
from uuid import UUID

from msgspec import Struct

from engine.authentication import dkim_signing as dkim
from engine.base.secrets import Pepper, Unsealable, derived, seal, unseal
from engine.sending.domains import rules
from engine.sending.domains.types import (
    DEFAULT_RETURN_PATH_LABEL,
    DomainKeyRow,
    DomainName,
    DomainRow,
    SendingIdentity,
    SigningRow,
)
from engine.store.queries import Conn, Queries, Source

_SQL = Queries.beside(__file__)
SEALING = "dkim keys"  # the purpose of the derived key
TOKEN_SEALING: Final = "cloudflare tokens"  # noqa: S105 - a purpose

NAMES = _SQL.rows("domain_names", DomainName)
LIST = _SQL.rows("list_domains", DomainRow)
READ = _SQL.rows("read_domain", DomainRow)
FIND = _SQL.rows("find_domain", DomainRow)
LOCK = _SQL.rows("lock_domains", DomainRow)
HOLDER = _SQL.rows("domain_holder", DomainRow)
OWNERS = _SQL.rows("owners_of_name", DomainRow)
RETURN_PATH_HOST = _SQL.command("return_path_host")
RETURN_PATH_DOMAIN = _SQL.command("return_path_domain")
SET_RETURN_PATH_LABEL = _SQL.command("set_return_path_label")
SIGNING = _SQL.rows("signing_keys", SigningRow)
PUBLISHED = _SQL.rows("published_keys", DomainKeyRow)
PUBLISHED_OF_MANY = _SQL.rows("published_keys_of_many", DomainKeyRow)
KEPT_SELECTOR = _SQL.command("kept_selector")
INSERT = _SQL.command("insert_domain")
INSERT_KEY = _SQL.command("insert_domain_key")
MARK = _SQL.command("mark_domain")
VOUCH = _SQL.command("vouch_for_domain")
MAIL_FAILED = _SQL.command("mail_failed")
SAVE_CHECK = _SQL.command("save_check")
CLAIM_DUE = _SQL.rows("claim_due", DomainRow)
CHECK_SOON = _SQL.command("check_soon")
MOVE_KEY = _SQL.command("move_key")
ASK_FOR_PAIR = _SQL.command("ask_for_pair")
DUE_TO_RETIRE = _SQL.rows("due_to_retire", DomainKeyRow)
REPLACE_RETIRED = _SQL.command("replace_retired")
REMOVE = _SQL.command("remove_domain")
FORGET_REMOVED = _SQL.command("forget_removed")
KEEP_TOKEN = _SQL.command("keep_token")
READ_TOKEN = _SQL.command("read_token")
FORGET_TOKEN = _SQL.command("forget_token")


class FreshKey(Struct, frozen=True):
    """A new key before it is stored."""

    selector: str
    algorithm: dkim.Algorithm
    der: bytes
    public_txt: str


def fresh_pair(pair: str) -> list[FreshKey]:
    """Generate an RSA-2048 and an Ed25519 key under `wb1` and `wb1e` (or `wb2`).

    Takes up to 150 ms of CPU: call it outside the event loop.
    """
    return [fresh_key(pair, "rsa-sha256"), fresh_key(f"{pair}e", "ed25519-sha256")]


def fresh_key(selector: str, algorithm: str) -> FreshKey:
    """Generate one key."""
    rsa = algorithm == "rsa-sha256"
    der = dkim.generate_rsa() if rsa else dkim.generate_ed25519()
    return FreshKey(selector, "rsa-sha256" if rsa else "ed25519-sha256", der, dkim.public_txt(der))


async def insert(
    connection: Conn,
    domain: UUID,
    account: UUID,
    name: str,
    *,
    pepper: Pepper,
    keys: Sequence[FreshKey] | None = None,
    standby: Sequence[FreshKey] = (),
    return_path_label: str = DEFAULT_RETURN_PATH_LABEL,
) -> None:
    """Insert a pending domain with signing `keys` (generated if None) and `standby` keys.

    Raises UniqueViolation if the account has the domain already.
    """
    await INSERT.execute(connection, domain, account, name, return_path_label)
    for key in fresh_pair("wb1") if keys is None else keys:
        # Ed25519 signs only after a check has found its record.
        status: Literal["active", "pending"] = "active" if key.algorithm == "rsa-sha256" else "pending"
        await insert_key(connection, domain, key, status, pepper=pepper)
    for key in standby:
        await insert_key(connection, domain, key, "standby", pepper=pepper)


async def insert_key(
    connection: Conn, domain: UUID, key: FreshKey, status: Literal["active", "pending", "standby"], *, pepper: Pepper
) -> None:
    """Insert a key of a domain, which has none under its selector."""
    sealed = seal_key(domain, key, pepper=pepper)
    await INSERT_KEY.execute(connection, domain, key.selector, key.algorithm, sealed, key.public_txt, status)


def seal_key(domain: UUID, key: FreshKey, *, pepper: Pepper) -> bytes:
    """Return the private key encrypted and bound to its domain."""
    return seal(derived(pepper, SEALING), key.der, domain.bytes)


async def is_return_path_host(source: Source, host: str) -> bool:
    """Return True if `host` is the return-path host of a domain that was verified once.

    Bounces to it count even after the record was removed: mail sent before carries it.
    """
    label, _, name = host.partition(".")
    return bool((await RETURN_PATH_DOMAIN.records(source, label, name))[0]["known"])


async def sending_identity(source: Source, account: UUID, name: str, *, pepper: Pepper) -> SendingIdentity:
    """Return the keys that sign for the domain, and the host of its return paths."""
    hosts = await RETURN_PATH_HOST.records(source, account, name)
    keys = await signing_keys(source, account, name, pepper=pepper)
    return SendingIdentity(keys, hosts[0]["host"] if hosts else None)


async def signing_keys(source: Source, account: UUID, name: str, *, pepper: Pepper) -> list[dkim.SigningKey]:
    """Return the keys that sign for the domain, RSA first; empty if it has none or does not exist.

    Decrypts and parses in a thread, without a database connection: a thousand accounts that start to send at once would
    block the event loop for a second.
    """
    rows = await SIGNING.fetch(source, account, name)
    return await asyncio.to_thread(_loaded, rows, pepper) if rows else []


def _loaded(rows: Sequence[SigningRow], pepper: Pepper) -> list[dkim.SigningKey]:
    sealing = derived(pepper, SEALING)
    return [dkim.load(row.name, row.selector, unseal(sealing, row.sealed_key, row.domain_id.bytes)) for row in rows]


async def key_that_signs(source: Source, domain: DomainRow, *, pepper: Pepper) -> dkim.SigningKey | None:
    """Return the RSA key that signs for this domain; None if another one of its name signs, or the key is unreadable.

    `ops doctor` and the log of the mta processes tell of keys that this pepper can't unseal.
    """
    rows = await SIGNING.fetch(source, domain.account_id, domain.name)
    mine = [row for row in rows if row.domain_id == domain.id and row.algorithm == "rsa-sha256"]
    try:
        return (await asyncio.to_thread(_loaded, mine[:1], pepper))[0] if mine else None
    except (Unsealable, dkim.BadKey):
        return None


async def pair_for(connection: Source, account: UUID, name: str) -> tuple[str, bool]:
    """Return the pair for a new domain, and True if the other pair may be published as well.

    A removed domain of that name keeps its selectors while its mail is in transit.
    """
    rows = await KEPT_SELECTOR.records(connection, account, name)
    return (rules.other(rows[0]["selector"]), False) if rows else ("wb1", True)


async def keep_token(connection: Conn, account: UUID, token: str, *, pepper: Pepper) -> None:
    """Store the account's Cloudflare token, sealed and bound to the account."""
    await KEEP_TOKEN.execute(connection, account, seal(derived(pepper, TOKEN_SEALING), token.encode(), account.bytes))


async def read_token(connection: Source, account: UUID, *, pepper: Pepper) -> str | None:
    """Return the account's Cloudflare token; None if there is none or this pepper can't unseal it."""
    rows = await READ_TOKEN.records(connection, account)
    if not rows:
        return None
    try:
        return unseal(derived(pepper, TOKEN_SEALING), rows[0]["sealed_token"], account.bytes).decode()
    except Unsealable:
        return None
