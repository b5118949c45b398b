"""Received messages for tests: claimed addresses, mail as bytes, and the Receiver's arguments."""

import itertools
from collections import Counter
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.authentication.results import AuthenticationVerdict, AuthenticationVerdicts
from engine.base import clock, ids
from engine.mail.received import summarise
from engine.receiving.inbound_messages import rules
from engine.receiving.receive import Receiver
from engine.receiving.types import (
    AttachmentScan,
    InboundRecipient,
    ReceivedEnvelope,
    ReceiveOutcome,
    RecipientPurpose,
    ScanResult,
    ScanVerdict,
)
from engine.store.caches import bump
from tests.harness.accounts import TestAccount
from tests.harness.api import Api

_NUMBERS = itertools.count(1)
PASSED = AuthenticationVerdicts(
    spf=AuthenticationVerdict("pass", "people.test", "192.0.2.1 is permitted"),
    dkim=AuthenticationVerdict("pass", "people.test"),
    dmarc=AuthenticationVerdict("pass", "people.test"),
    arc=AuthenticationVerdict("none"),
)


class ClaimedAddress(Struct, frozen=True):
    """A claimed address of a test account."""

    id: UUID
    account: UUID
    address: str

    @property
    def domain(self) -> str:
        """The domain of the address."""
        return self.address.rpartition("@")[2]

    def recipient(self, tag: str | None = None) -> InboundRecipient:
        """The recipient that the MX hands over for it."""
        local, _, domain = self.address.rpartition("@")
        given = self.address if tag is None else f"{local}+{tag}@{domain}"
        return InboundRecipient(
            given=given, purpose=RecipientPurpose.ADDRESS, account_id=self.account, address_id=self.id,
            address=self.address, domain=self.domain, tag=tag,
        )  # fmt: skip


async def claim(pool: asyncpg.Pool, account: TestAccount, local: str = "support") -> ClaimedAddress:
    """Claim an address of the account's domain."""
    address = ids.uuid7()
    text = f"{local}@{account.domain}"
    async with pool.acquire() as connection, connection.transaction():
        domain = await connection.fetchval("SELECT id FROM domains WHERE name = $1", account.domain)
        await connection.execute(
            "INSERT INTO inbound_addresses (id, account_id, domain_id, address, canonical, created_at)"
            " VALUES ($1, $2, $3, $4, $4, now())", address, account.id, domain, text,
        )  # fmt: skip
        await bump(connection, "inbound")
    return ClaimedAddress(address, account.id, text)


async def route(pool: asyncpg.Pool, claimed: ClaimedAddress, action: str, **columns: Any) -> UUID:
    """Give the address a route; returns its id."""
    names = ["id", "account_id", "address_id", "action", "created_at", *columns]
    route_id = ids.uuid7()
    values = [route_id, claimed.account, claimed.id, action, clock.now(), *columns.values()]
    places = ", ".join(f"${place}" for place in range(1, len(names) + 1))
    await pool.execute(f"INSERT INTO inbound_routes ({', '.join(names)}) VALUES ({places})", *values)
    return route_id


def mail(
    subject: str = "Hello",
    text: str = "Hello!\n",
    *,
    html: str | None = None,
    files: Sequence[tuple[str, str, bytes]] = (),
    **fields: str,
) -> bytes:
    """A message as bytes; `fields` are header fields, `_` for `-`; each message has another Message-ID."""
    made = EmailMessage()
    given = {
        "From": "Ann <ann@people.test>", "To": "support@example.test", "Subject": subject,
        "Date": format_datetime(clock.now()), "Message-ID": f"<{next(_NUMBERS)}@people.test>",
    } | {name.replace("_", "-"): value for name, value in fields.items()}  # fmt: skip
    for name, value in given.items():
        made[name] = value
    made.set_content(text)
    if html is not None:
        made.add_alternative(html, subtype="html")
    for filename, kind, content in files:
        main, _, sub = kind.partition("/")
        made.add_attachment(content, maintype=main, subtype=sub, filename=filename)
    return made.as_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def envelope(*recipients: InboundRecipient, sender: str = "ann@people.test") -> ReceivedEnvelope:
    """The envelope of a message from a server of people.test."""
    return ReceivedEnvelope(
        sender=sender, recipients=recipients, remote_ip="192.0.2.1", helo="mx.people.test", tls="TLSv1.3"
    )


def scanned(count: int = 0, *, score: float | None = 0.5, scan: AttachmentScan = AttachmentScan.CLEAN) -> ScanResult:
    """The result of a scan of `count` attachments."""
    signature = "Eicar-Test-Signature" if scan is AttachmentScan.INFECTED else None
    return ScanResult(spam_score=score, attachments=(ScanVerdict(scan, signature),) * count)


async def receive(
    receiver: Receiver,
    *recipients: InboundRecipient,
    raw: bytes | None = None,
    sender: str = "ann@people.test",
    scan: ScanResult | None = None,
) -> ReceiveOutcome:
    """Receive a message as the MX does after its checks."""
    octets = mail() if raw is None else raw
    summary = summarise(octets)
    found = scanned(len(summary.attachments)) if scan is None else scan
    return await receiver.receive(envelope(*recipients, sender=sender), octets, summary, PASSED, found)


async def messages_of(pool: asyncpg.Pool, account: UUID) -> list[asyncpg.Record]:
    """The received messages of an account, oldest first."""
    return await pool.fetch("SELECT * FROM inbound_messages WHERE account_id = $1 ORDER BY id", account)


async def counts_of(pool: asyncpg.Pool, account: UUID) -> dict[tuple[bool, bool, bool], int]:
    """The kept counts of an account by (in_mailbox, is_spam, is_read), without zeros."""
    found = await pool.fetch(
        "SELECT in_mailbox, is_spam, is_read, sum(messages) AS messages FROM inbound_counts WHERE account_id = $1"
        " GROUP BY 1, 2, 3 HAVING sum(messages) <> 0", account,
    )  # fmt: skip
    return {(row["in_mailbox"], row["is_spam"], row["is_read"]): int(row["messages"]) for row in found}


async def day_counts_of(pool: asyncpg.Pool, account: UUID) -> dict[tuple[object, ...], int]:
    """The kept counts by (day, address, flags), without zeros; address 0 for all."""
    found = await pool.fetch("SELECT * FROM inbound_day_counts WHERE account_id = $1 AND messages <> 0", account)
    return {tuple(row.values())[1:-1]: row["messages"] for row in found}


async def days_counted_anew(pool: asyncpg.Pool, account: UUID) -> dict[tuple[object, ...], int]:
    """The same counts, counted from the messages."""
    counted: Counter[tuple[object, ...]] = Counter()
    for row in await pool.fetch("SELECT * FROM inbound_messages WHERE account_id = $1", account):
        day = rules.received_at(row["id"]).date()
        for address in (row["address_id"], UUID(int=0)):
            counted[day, address, row["in_mailbox"], row["is_spam"], row["is_read"]] += 1
    return dict(counted)


async def counted_anew(pool: asyncpg.Pool, account: UUID) -> dict[tuple[bool, bool, bool], int]:
    """The same counts, counted from the messages."""
    found = await pool.fetch(
        "SELECT in_mailbox, is_spam, is_read, count(*) AS messages FROM inbound_messages WHERE account_id = $1"
        " GROUP BY 1, 2, 3", account,
    )  # fmt: skip
    return {(row["in_mailbox"], row["is_spam"], row["is_read"]): int(row["messages"]) for row in found}


async def received(receiver: Receiver, address: ClaimedAddress, *raws: bytes, **options: Any) -> None:
    """Receive messages one after the other."""
    for raw in raws:
        await receive(receiver, address.recipient(), raw=raw, **options)


async def listed(api: Api, account: TestAccount, query: str = "") -> list[dict[str, Any]]:
    """The messages of a list."""
    answer = await api.get(f"/v1/inbound/messages?{query}", account.token)
    assert answer.status == 200, answer.json
    found: list[dict[str, Any]] = answer.json["data"]
    return found


async def only(api: Api, account: TestAccount) -> dict[str, Any]:
    """The only message of the account."""
    [one] = await listed(api, account, "routed=all")
    return one
