"""Store a batch of received messages in one transaction: lock the accounts' heads, decide each recipient, write.

What decides is read under the locks of the heads: whether the address still takes mail, the routes, the month's count,
and copies of the last 24 hours. So parallel batches count exactly, and a route that changes between RCPT and the end of
the data is applied as it is at the commit.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from uuid import UUID

from msgspec import Struct

from engine.base import clock, ids
from engine.ledger import heads, log
from engine.ledger.heads import AccountHead
from engine.receiving import received_rows as rows
from engine.receiving.inbound_messages.rules import COPIES_KNOWN
from engine.receiving.inbound_routes import store as routes
from engine.receiving.inbound_routes.types import AddressRoute
from engine.receiving.receive_reports import MAILBOXES, UNCOUNTED
from engine.receiving.received_rows import IncomingMail, StoredMessage
from engine.receiving.reports import store as reports
from engine.receiving.reports.types import ReportMail
from engine.receiving.types import InboundRecipient, ReceiveOutcome
from engine.store.queries import Conn, Queries, columns


class WaitingMail(Struct):
    """A received message on its way into the database, with the mails for the report addresses among its recipients.

    `stored_bytes`: the transaction has its bytes already.
    """

    mail: IncomingMail
    recipients: Sequence[InboundRecipient]
    reports: Sequence[ReportMail] = ()
    stored_bytes: bool = False


class ReceivedBatch(Struct):
    """The outcomes of a batch, one per message, and the rows to write."""

    outcomes: list[ReceiveOutcome] = []
    stored: list[StoredMessage] = []


_SQL = Queries.beside(__file__, "receive.sql")
_MONTH_COUNTS = _SQL.command("month_counts")
_COPIES = _SQL.command("recent_copies")
_OWNERS = _SQL.command("owners")
_INSERT_BYTES = _SQL.command("insert_bytes")
_DROP_BYTES = _SQL.command("drop_bytes")
_INSERT = _SQL.wide(
    "insert_received", rows.BYTES, rows.MESSAGE, rows.RECENT, rows.COUNT, rows.USAGE, rows.NEWEST, log.EVENT, rows.POST,
    rows.FORWARD, rows.FORGET, heads.TIP, append_events=log.APPEND_EVENTS,
)  # fmt: skip


async def store(connection: Conn, batch: Sequence[WaitingMail]) -> ReceivedBatch:
    """Decide and store a batch; return after the commit."""
    async with connection.transaction():
        return await _store(connection, batch)


async def store_large(connection: Conn, item: WaitingMail) -> ReceivedBatch:
    """Store one large message: its bytes are written before the heads are locked."""
    item.stored_bytes = True
    async with connection.transaction():
        await _INSERT_BYTES.execute(connection, item.mail.raw_id, item.mail.raw, item.mail.search_text)
        result = await _store(connection, [item])
        if not result.stored:
            await _DROP_BYTES.execute(connection, item.mail.raw_id)
        return result


async def _store(connection: Conn, batch: Sequence[WaitingMail]) -> ReceivedBatch:
    await reports.add(connection, [mail for item in batch for mail in item.reports])
    claimed = [one for item in batch for one in item.recipients if one.purpose in MAILBOXES]
    if not claimed:
        return ReceivedBatch([ReceiveOutcome.STORED] * len(batch))
    owners = await _owners(connection, batch)
    locked = await heads.lock_counted(connection, {one.account_id for one in claimed if one.account_id is not None})
    found = await routes.routes_of(connection, {one.address_id for one in claimed if one.address_id is not None})
    at = clock.now()  # under the locks, so that the messages of an account are in the order of their commits
    used = await _month_counts(connection, locked, at)
    result = Decisions(locked, found, owners, await _copies(connection, batch, at), used, at).on(batch)
    if result.stored:
        await _insert(connection, batch, result, locked, at)
    return result


class Decisions:
    """Decides the recipients of a batch in order of arrival, counting what the earlier ones use."""

    def __init__(
        self,
        locked: Mapping[UUID, AccountHead],
        routes_found: Mapping[UUID, AddressRoute],
        owners: Mapping[UUID, UUID],
        copies: set[tuple[bytes, UUID]],
        used: dict[UUID, int],
        at: datetime,
    ) -> None:
        self._locked = locked
        self._routes = routes_found
        self._owners = owners
        self._copies = copies
        self._used = used
        self._at = at

    def on(self, batch: Sequence[WaitingMail]) -> ReceivedBatch:
        """Return one outcome per message, and what is to be stored."""
        result = ReceivedBatch()
        new_ids = ids.uuid7s(sum([len(item.recipients) for item in batch]), clock.milliseconds(self._at))
        for item in batch:
            outcomes = {self._decide(item.mail, one, new_ids, result) for one in item.recipients}
            # The month first: its reply makes the sender try again, and the retry stores nothing twice.
            worst = (ReceiveOutcome.MONTH_USED, ReceiveOutcome.GONE)
            result.outcomes.append(next((one for one in worst if one in outcomes), ReceiveOutcome.STORED))
        return result

    def _decide(
        self, mail: IncomingMail, recipient: InboundRecipient, new_ids: Iterator[UUID], result: ReceivedBatch
    ) -> ReceiveOutcome:
        if recipient.purpose not in MAILBOXES:
            return ReceiveOutcome.STORED
        account, address = recipient.account_id, recipient.address_id
        if account is None or address is None or account not in self._locked:
            return ReceiveOutcome.GONE
        route = self._routes.get(address)
        if route is None or route.account_id != account or not route.receives:
            return ReceiveOutcome.GONE
        # Without a Message-ID, equal bytes may be two messages: a device that raises the same alarm twice a day.
        copy = None if mail.header_message_id is None else (mail.digest, address)
        if copy in self._copies:
            return ReceiveOutcome.STORED
        payer = payer_of(self._locked[account])
        counts = recipient.purpose not in UNCOUNTED
        if counts and self._month_used(payer):
            return ReceiveOutcome.MONTH_USED
        if copy is not None:
            self._copies.add(copy)
        self._used[payer] = self._used.get(payer, 0) + counts
        result.stored.append(self._message(mail, recipient, route, next(new_ids)))
        return ReceiveOutcome.STORED

    def _month_used(self, payer: UUID) -> bool:
        limit = self._locked[payer].caps.monthly_received if payer in self._locked else 0
        return limit is not None and self._used.get(payer, 0) >= limit

    def _message(
        self, mail: IncomingMail, recipient: InboundRecipient, route: AddressRoute, new_id: UUID
    ) -> StoredMessage:
        decision = route.decision
        return StoredMessage(
            mail=mail,
            id=new_id,
            account_id=route.account_id,
            recipient=recipient,
            replies_to=next((one for one in mail.candidates if self._owners.get(one) == route.account_id), None),
            action=decision.action.value,
            fallback=decision.fallback,
            in_mailbox=decision.in_mailbox,
            include=list(decision.include),
            forward_to=decision.forward_to,
            webhook_ids=decision.webhook_ids,
            forgets=decision.forgets,
        )


def payer_of(head: AccountHead) -> UUID:
    """Return the account whose plan and month a message counts against: the parent of a sub-account."""
    return head.account_id if head.parent_id is None else head.parent_id


async def _insert(
    connection: Conn,
    batch: Sequence[WaitingMail],
    result: ReceivedBatch,
    locked: dict[UUID, AccountHead],
    at: datetime,
) -> None:
    stored = result.stored
    events = log.seal_all(locked, [rows.received_entry(one) for one in stored])
    _name_events(stored, events)
    wanted = {one.mail.raw_id for one in stored}
    contents = [item.mail for item in batch if item.mail.raw_id in wanted and not item.stored_bytes]
    counted = {one.account_id for one in stored}
    await _INSERT.run(
        connection,
        rows.BYTES.of(contents),
        rows.MESSAGE.of(stored),
        rows.RECENT.of([one for one in stored if one.mail.header_message_id is not None]),
        rows.COUNT.of(rows.count_changes(stored)),
        rows.USAGE.of(_usage(stored, locked, clock.first_of_month(at.date()))),
        rows.NEWEST.of(_newest(stored)),
        log.EVENT.of(events),
        rows.POST.of(rows.posts(stored)),
        rows.FORWARD.of([one for one in stored if one.forward_to is not None]),
        rows.FORGET.of([one for one in stored if one.forgets]),
        heads.TIP.of([head for account, head in locked.items() if account in counted]),
    )


def _name_events(stored: Iterable[StoredMessage], events: Iterable[log.LogRow]) -> None:
    """Give each message the id and seq of its event: the events of an account are in the order of its messages."""
    waiting: dict[UUID, deque[StoredMessage]] = {}
    for one in stored:
        waiting.setdefault(one.account_id, deque()).append(one)
    for event in events:
        message = waiting[event.account_id].popleft()
        message.event_id, message.seq = event.id, event.seq


def _usage(stored: Iterable[StoredMessage], locked: Mapping[UUID, AccountHead], month: date) -> list[rows.UsageChange]:
    counted = Counter(payer_of(locked[one.account_id]) for one in stored if one.recipient.purpose not in UNCOUNTED)
    return [rows.UsageChange(payer, month, count) for payer, count in sorted(counted.items())]


def _newest(stored: Iterable[StoredMessage]) -> list[rows.ReceivedNow]:
    found: dict[UUID, datetime] = {}
    for one in stored:
        assert one.recipient.address_id is not None
        found[one.recipient.address_id] = one.mail.received_at
    return [rows.ReceivedNow(address, at) for address, at in sorted(found.items())]


async def _owners(connection: Conn, batch: Sequence[WaitingMail]) -> dict[UUID, UUID]:
    """Return the accounts of the sent messages that In-Reply-To and References of the batch name."""
    named = {one for item in batch for one in item.mail.candidates}
    if not named:
        return {}
    found = await _OWNERS.records(connection, list(named), min(named), max(named))
    return {row["id"]: row["account_id"] for row in found}


async def _month_counts(connection: Conn, locked: Mapping[UUID, AccountHead], at: datetime) -> dict[UUID, int]:
    payers = {payer_of(head) for head in locked.values()}
    found = await _MONTH_COUNTS.records(connection, list(payers), clock.first_of_month(at.date()))
    return {row["account_id"]: row["used"] for row in found}


async def _copies(connection: Conn, batch: Sequence[WaitingMail], at: datetime) -> set[tuple[bytes, UUID]]:
    pairs = [
        (item.mail.digest, one.address_id)
        for item in batch
        for one in item.recipients
        if one.purpose in MAILBOXES and one.address_id is not None and item.mail.header_message_id is not None
    ]
    rows_found = await _COPIES.records(connection, *columns(pairs, 2), at - COPIES_KNOWN)
    return {(row["digest"], row["address_id"]) for row in rows_found}
