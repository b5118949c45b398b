"""Store a batch of received messages in one transaction: lock the accounts' heads, decide each recipient, write.

What decides is read under the locks of the heads: whether the address still takes mail, the routes, the month's count,
and copies of the last 24 hours. So parallel batches count exactly, and a route that changes between RCPT and the end of
the data is applied as it is at the commit.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct

from engine.areas.inbound_routes import rules as route_rules
from engine.areas.reports import store as reports
from engine.areas.reports.types import ReportMail, ReportPurpose
from engine.base import clock, ids
from engine.base.plans import CAPS, Plan
from engine.flows.receiving import received_rows as rows
from engine.flows.receiving.received_rows import IncomingMail, StoredMessage
from engine.flows.receiving.types import InboundRecipient, ReceiveOutcome, RecipientPurpose
from engine.ledger import heads, log
from engine.ledger.heads import AccountHead
from engine.store.queries import Conn, Queries, columns

COPIES_KNOWN = timedelta(hours=24)  # within which the same bytes are not stored again
CLAIMED = frozenset({RecipientPurpose.ADDRESS, RecipientPurpose.PLATFORM})


class AddressState(Struct, frozen=True):
    """A claimed address as the transaction finds it; `routes` are fields of `RouteRow`, `used` counts the month."""

    address_id: UUID
    account_id: UUID
    enabled: bool
    payer_id: UUID
    used: int
    routes: list[Sequence[Any]]
    endpoints: list[UUID]


class Waiting(Struct):
    """A received message on its way into the database. `stored_bytes`: the transaction has its bytes already."""

    mail: IncomingMail
    recipients: Sequence[InboundRecipient]
    stored_bytes: bool = False


class ReceivedBatch(Struct):
    """The outcomes of a batch, one per message, and the rows to write."""

    outcomes: list[ReceiveOutcome] = []
    stored: list[StoredMessage] = []


_SQL = Queries.beside(__file__, "receive.sql")
_STATES = _SQL.rows("address_states", AddressState)
_COPIES = _SQL.command("recent_copies")
_OWNERS = _SQL.command("owners")
_INSERT_BYTES = _SQL.command("insert_bytes")
_DROP_BYTES = _SQL.command("drop_bytes")
_INSERT = _SQL.wide(
    "insert_received", rows.BYTES, rows.MESSAGE, rows.RECENT, rows.COUNT, rows.USAGE, rows.NEWEST, log.EVENT, rows.POST,
    heads.TIP, append_events=log.APPEND_EVENTS,
)  # fmt: skip


async def store(connection: Conn, batch: Sequence[Waiting], at: datetime) -> ReceivedBatch:
    """Decide and store a batch; return after the commit."""
    async with connection.transaction():
        return await _store(connection, batch, at)


async def store_large(connection: Conn, item: Waiting, at: datetime) -> ReceivedBatch:
    """Store one large message: its bytes are written before the heads are locked."""
    item.stored_bytes = True
    async with connection.transaction():
        await _INSERT_BYTES.execute(connection, item.mail.raw_id, item.mail.raw, item.mail.search_text)
        result = await _store(connection, [item], at)
        if not result.stored:
            await _DROP_BYTES.execute(connection, item.mail.raw_id)
        return result


async def _store(connection: Conn, batch: Sequence[Waiting], at: datetime) -> ReceivedBatch:
    await reports.add(connection, [one for item in batch for one in _reports(item)])
    claimed = [one for item in batch for one in item.recipients if one.purpose in CLAIMED]
    if not claimed:
        return ReceivedBatch([ReceiveOutcome.STORED] * len(batch))
    owners = await _owners(connection, batch)
    locked = await heads.lock_counted(connection, {one.account_id for one in claimed if one.account_id is not None})
    month = clock.first_of_month(at.date())
    addresses = list({one.address_id for one in claimed if one.address_id is not None})
    states = {one.address_id: one for one in await _STATES.fetch(connection, addresses, month)}
    decisions = Decisions(locked, states, owners, await _copies(connection, batch, at), at)
    result = decisions.on(batch)
    if result.stored:
        await _insert(connection, batch, result, locked, states, month)
    return result


class Decisions:
    """Decides the recipients of a batch in order of arrival, counting what the earlier ones use."""

    def __init__(
        self,
        locked: Mapping[UUID, AccountHead],
        states: Mapping[UUID, AddressState],
        owners: Mapping[UUID, UUID],
        copies: set[tuple[bytes, UUID]],
        at: datetime,
    ) -> None:
        self._at = at
        self._locked = locked
        self._states = states
        self._owners = owners
        self._copies = copies
        self._used = {state.payer_id: state.used for state in states.values()}
        self._routes: dict[UUID, route_rules.RouteDecision] = {}

    def on(self, batch: Sequence[Waiting]) -> ReceivedBatch:
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
        if recipient.purpose not in CLAIMED:
            return ReceiveOutcome.STORED
        account, address = recipient.account_id, recipient.address_id
        state = None if address is None else self._states.get(address)
        head = None if account is None else self._locked.get(account)
        if state is None or head is None or address is None or state.account_id != account or not state.enabled:
            return ReceiveOutcome.GONE
        if head.status == "closing":
            return ReceiveOutcome.GONE
        if (mail.digest, address) in self._copies:
            return ReceiveOutcome.STORED
        if recipient.purpose is not RecipientPurpose.PLATFORM and self._month_used(state.payer_id):
            return ReceiveOutcome.MONTH_USED
        self._copies.add((mail.digest, address))
        self._used[state.payer_id] += 1
        result.stored.append(self._message(mail, recipient, state, next(new_ids)))
        return ReceiveOutcome.STORED

    def _month_used(self, payer: UUID) -> bool:
        limit = CAPS[Plan(self._locked[payer].plan)].monthly_received if payer in self._locked else 0
        return limit is not None and self._used[payer] >= limit

    def _message(
        self, mail: IncomingMail, recipient: InboundRecipient, state: AddressState, new_id: UUID
    ) -> StoredMessage:
        route = self._routes.get(state.address_id)
        if route is None:
            known = [route_rules.RouteRule(*fields) for fields in state.routes]
            route = self._routes[state.address_id] = route_rules.decide(known, state.endpoints)
        answered = next((one for one in mail.candidates if self._owners.get(one) == state.account_id), None)
        return StoredMessage(
            mail=mail,
            id=new_id,
            account_id=state.account_id,
            recipient=recipient,
            replies_to=answered,
            action=route.action,
            fallback=route.fallback,
            in_mailbox=route.action in {"mailbox", "both"},
            include=list(route.include),
            forward_to=route.forward_to,
            webhook_ids=route.webhook_ids,
        )


async def _insert(
    connection: Conn,
    batch: Sequence[Waiting],
    result: ReceivedBatch,
    locked: dict[UUID, AccountHead],
    states: Mapping[UUID, AddressState],
    month: date,
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
        rows.RECENT.of(stored),
        rows.COUNT.of(rows.count_changes(stored)),
        rows.USAGE.of(_usage(stored, states, month)),
        rows.NEWEST.of(_newest(stored)),
        log.EVENT.of(events),
        rows.POST.of(rows.posts(stored)),
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


def _usage(stored: Iterable[StoredMessage], states: Mapping[UUID, AddressState], month: date) -> list[rows.UsageChange]:
    found: dict[UUID, int] = {}
    for one in stored:
        assert one.recipient.address_id is not None
        payer = states[one.recipient.address_id].payer_id
        found[payer] = found.get(payer, 0) + 1
    return [rows.UsageChange(payer, month, count) for payer, count in sorted(found.items())]


def _newest(stored: Iterable[StoredMessage]) -> list[rows.ReceivedNow]:
    found: dict[UUID, datetime] = {}
    for one in stored:
        assert one.recipient.address_id is not None
        found[one.recipient.address_id] = one.mail.received_at
    return [rows.ReceivedNow(address, at) for address, at in sorted(found.items())]


def _reports(item: Waiting) -> Iterator[ReportMail]:
    mail = item.mail
    for one in item.recipients:
        if one.purpose not in CLAIMED:
            yield ReportMail(
                purpose=ReportPurpose(one.purpose.value), local=one.local, host=one.host, sender=mail.envelope_from,
                remote_ip=mail.remote_ip, received_at=mail.received_at, raw=mail.raw,
            )  # fmt: skip


async def _owners(connection: Conn, batch: Sequence[Waiting]) -> dict[UUID, UUID]:
    """Return the accounts of the sent messages that In-Reply-To and References of the batch name."""
    named = {one for item in batch for one in item.mail.candidates}
    if not named:
        return {}
    found = await _OWNERS.records(connection, list(named), min(named), max(named))
    return {row["id"]: row["account_id"] for row in found}


async def _copies(connection: Conn, batch: Sequence[Waiting], at: datetime) -> set[tuple[bytes, UUID]]:
    pairs = [
        (item.mail.digest, one.address_id)
        for item in batch
        for one in item.recipients
        if one.purpose in CLAIMED and one.address_id is not None
    ]
    rows_found = await _COPIES.records(connection, *columns(pairs, 2), at - COPIES_KNOWN)
    return {(row["digest"], row["address_id"]) for row in rows_found}
