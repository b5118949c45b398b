"""Compare what a client sent to the MX with the mailboxes: messages, bytes, counts, events and the account logs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from loadtests.drill.faults import InjectedFault
from loadtests.drill.mx_client import DrillMail, MxClient
from loadtests.drill.reconciliation import longest_gap
from loadtests.drill.report import Check, DrillReport
from loadtests.kit.check import read_account_log

_PAGE: Final = 5_000
_STORED: Final = """
    SELECT m.id, m.header_message_id, m.recipient, m.raw_id, sha256(b.bytes) AS digest
    FROM inbound_messages m LEFT JOIN inbound_bytes b ON b.id = m.raw_id
    WHERE m.account_id = $1 AND m.id > $2 ORDER BY m.id LIMIT $3
"""
_COUNTS: Final = """
    SELECT (SELECT count(*) FROM inbound_messages WHERE account_id = ANY ($1)) AS messages,
           (SELECT count(*) FROM events WHERE account_id = ANY ($1) AND type = 'inbound.received') AS events,
           (SELECT coalesce(sum(messages), 0) FROM inbound_counts WHERE account_id = ANY ($1))::bigint AS counted,
           (SELECT coalesce(sum(used), 0) FROM plan_usage
            WHERE account_id = ANY ($1) AND resource = 'received_messages')::bigint AS used,
           (SELECT count(*) FROM inbound_bytes b
            WHERE NOT EXISTS (SELECT FROM inbound_messages m WHERE m.raw_id = b.id)) AS orphans
"""
_NO_ID: Final = UUID(int=0)


class MailboxFindings(Struct, kw_only=True):
    """The comparison of a client's record with the mailboxes of `accounts`."""

    lost: list[str] = []  # "message to recipient", answered by a 250 and not stored with its bytes
    twice: list[str] = []
    copies: int = 0  # how many rows too many
    unknown: list[str] = []  # stored, and never sent
    unanswered: list[str] = []  # without a 250 or a 5xx
    stored: int = 0
    texts: int = 0  # different bytes
    accepted: int = 0  # messages
    logs_intact: bool = True
    counts: dict[str, int] = {}


async def compare(url: str, accounts: Sequence[UUID], mails: Sequence[DrillMail]) -> MailboxFindings:
    """Read the mailboxes, which must have no mail but `mails`."""
    connection = await asyncpg.connect(url)
    try:
        rows = [row for account in accounts for row in await _rows(connection, account)]
        counts = await connection.fetchrow(_COUNTS, list(accounts))
        logs = [await read_account_log(connection, account) for account in accounts]
    finally:
        await connection.close()
    assert counts is not None
    stored = Counter((row["header_message_id"].strip("<>"), row["recipient"], row["digest"]) for row in rows)
    wanted = {(mail.message_id, one, mail.digest): mail for mail in mails for one in mail.recipients}
    return MailboxFindings(
        lost=[_name(key) for key, mail in wanted.items() if mail.is_accepted and key not in stored],
        twice=[_name(key) for key, count in stored.items() if count > 1],
        copies=sum(count - 1 for count in stored.values()),
        unknown=[_name(key) for key in stored if key not in wanted],
        unanswered=[
            f"{mail.message_id}: {mail.tries} tries" for mail in mails if not (mail.is_accepted or mail.refusal)
        ],
        stored=len(rows),
        texts=len({row["raw_id"] for row in rows}),
        accepted=sum(mail.is_accepted for mail in mails),
        logs_intact=all(one.intact for one in logs),
        counts=dict(counts),
    )


def checks_of(found: MailboxFindings) -> list[Check]:
    """Return the checks that must hold after every fault."""
    counts = found.counts
    exact = counts["messages"] == counts["events"] == counts["counted"] == counts["used"]
    once = found.texts <= found.accepted + len(found.unanswered) and counts["orphans"] == 0
    return [
        Check(
            "every message answered by 250 is in the mailbox, byte for byte", not found.lost, f"{len(found.lost)} lost"
        ),
        Check("no message is in a mailbox twice", not found.twice, f"{found.copies} extra copies"),
        Check("the mailbox has no message that was not sent", not found.unknown, f"{len(found.unknown)}"),
        Check(
            "every message was answered in the end", not found.unanswered, f"{len(found.unanswered)} without a reply"
        ),
        Check(
            "the bytes of a message are stored once for all recipients", once, f"{found.texts} of {found.stored} rows"
        ),
        Check("events, counts and the month's usage match the messages", exact, f"{counts}"),
        Check("the account logs are intact", found.logs_intact, f"{counts['events']} events"),
    ]


def report_of(
    drill: str, found: MailboxFindings, clients: Iterable[MxClient], injected: Sequence[InjectedFault], took_s: float
) -> DrillReport:
    """Return the comparison as a drill report."""
    clients = list(clients)
    mails = [mail for client in clients for mail in client.mails]
    gap = longest_gap(sorted(mail.answered_at for mail in mails if mail.is_accepted), injected)
    replies: Counter[str] = sum((Counter(client.replies()) for client in clients), Counter())
    return DrillReport(
        drill=drill,
        sent=len(mails),
        accepted=found.accepted,
        delivered=found.texts,
        lost=len(found.lost),
        duplicated=len(found.twice),
        copies=found.copies,
        recovery_s=gap,
        took_s=took_s,
        checks=checks_of(found),
        done=[one.label for one in injected],
        examples=[*found.lost[:3], *found.twice[:3], *found.unknown[:3], *found.unanswered[:3]],
        figures={"replies": dict(replies), "repeated messages": sum(mail.tries > 1 for mail in mails)},
    )


async def _rows(connection: asyncpg.Connection, account: UUID) -> list[Any]:
    rows: list[Any] = []
    while page := await connection.fetch(_STORED, account, rows[-1]["id"] if rows else _NO_ID, _PAGE, timeout=60):
        rows += page
    return rows


def _name(key: tuple[str, str, bytes]) -> str:
    return f"{key[0]} to {key[1]}"
