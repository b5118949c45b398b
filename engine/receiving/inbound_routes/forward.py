"""Forward received messages: what the route asked for is composed, sealed with ARC and accepted like any message.

due → may be forwarded → composed → accepted → named on the received message → delivery watched. The transaction that
stores a received message queues its row; a worker takes it for a minute. If the worker dies, another one takes it, and
the row's key as idempotency key prevents a second copy. What can't be forwarded, or bounces, is shown in the mailbox.
"""

import asyncio
from datetime import timedelta
from typing import Final
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct

from engine.accounts import platform_account
from engine.authentication.dkim_signing import SigningKey
from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.events import SETTLED, AccountEvent, Status
from engine.base.settings import Settings
from engine.ledger import heads, log
from engine.ledger.events import append_locked
from engine.mail.address import parse_mailbox
from engine.receiving.inbound_addresses.rules import managed_label
from engine.receiving.inbound_messages import store as messages
from engine.receiving.inbound_routes import forward_rules as rules
from engine.receiving.inbound_routes import store as routes
from engine.receiving.inbound_routes.forward_rules import ForwardError, ForwardFacts
from engine.sending.domains import store as domains
from engine.sending.emails.types import Prepared
from engine.sending.job_acceptor import JobAcceptor
from engine.store.caches import Cache
from engine.store.database_errors import DatabaseUnavailable
from engine.store.jobs import Job
from engine.store.queries import Queries

BATCH: Final = 50
TAKEN_FOR: Final = timedelta(minutes=1)  # acceptance takes at most 15 s
LARGE_BYTES: Final = 256 * 1024  # composing more takes over 1 ms, so a thread does it, one message at a time

_SQL = Queries.beside(__file__, "forward.sql")
_log = structlog.get_logger("forward")


class DueForward(Struct, frozen=True):
    """A received message claimed for forwarding; with `sent_as`, it was accepted and its delivery is awaited."""

    message_id: UUID
    account_id: UUID
    forward_to: str
    key: UUID
    requested: bool
    sent_as: UUID | None
    attempts: int

    @property
    def public_id(self) -> str:
        """Return the id of the received message."""
        return ids.format_id(ids.Kind.RECEIVED, self.message_id)


_TAKE_DUE = _SQL.rows("take_due_forwards", DueForward)
_FACTS = _SQL.rows("forward_facts", ForwardFacts)
_WATCH = _SQL.command("watch_delivery")
_LOOK_LATER = _SQL.command("look_later")
_DROP = _SQL.command("drop_forward")
_SENT_STATUS = _SQL.command("sent_status")


class Forwarder:
    """Forwards received messages for one process; opens its connections at the first message."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._mail_host = settings.mail_host.lower()
        self._large = asyncio.Semaphore(1)
        self._keys: Cache[tuple[UUID, str], SigningKey | None] = Cache("domains", self._load_key, by_account=True)
        self._mail = JobAcceptor(pool, settings, "forwards", [self._keys])

    def job(self) -> Job:
        """Return the worker's job that forwards due messages. A run ends when a batch was not full."""

        async def run(*_: object) -> None:
            while await self.forward_due() >= BATCH:
                pass

        return Job("forwards", every_s=0.3, run=run)

    async def forward_due(self) -> int:
        """Handle at most BATCH due messages; return how many were claimed."""
        if not self._mail.is_ready():
            return 0
        due = await _TAKE_DUE.fetch(self._pool, BATCH, TAKEN_FOR)
        if not due:
            return 0
        await self._mail.refresh()
        async with asyncio.TaskGroup() as tasks:
            for one in due:
                tasks.create_task(self._handle(one))
        return len(due)

    async def close(self) -> None:
        """Close the connections."""
        await self._mail.close()

    async def _handle(self, due: DueForward) -> None:
        """Forward a message, or look at its delivery; after an error the row falls due again in a minute."""
        try:
            if due.sent_as is not None:
                await self._watch(due, due.sent_as)
            elif due.attempts > rules.MAX_ATTEMPTS:
                await self._keep(due, ForwardError.FAILED)
            else:
                await self._forward(due)
        except DatabaseUnavailable as error:
            _log.warning("forwarding postponed", message=due.public_id, error=repr(error))
        except Exception:  # noqa: BLE001 - process loop: one message must not end the others
            _log.exception("message not forwarded", message=due.public_id)

    # -- acceptance --------------------------------------------------------------------------------

    async def _forward(self, due: DueForward) -> None:
        facts = await _FACTS.first(self._pool, due.account_id, due.message_id)
        if facts is None:  # deleted meanwhile
            await _DROP.execute(self._pool, due.message_id, due.key)
            return
        allowed = await routes.may_forward(self._pool, due.account_id, due.forward_to)
        refused = rules.refusal_before(
            facts,
            self._mail_host,
            allowed=allowed,
            requested=due.requested,
            scanner_required=self._settings.clamd_required,
        )
        if refused is not None:
            await self._keep(due, refused)
        elif facts.size_bytes <= LARGE_BYTES:
            await self._send(due, facts)
        else:
            async with self._large:
                await self._send(due, facts)

    async def _send(self, due: DueForward, facts: ForwardFacts) -> None:
        raw = await messages.raw(self._pool, facts.raw_id)
        if raw is None:
            await _DROP.execute(self._pool, due.message_id, due.key)
            return
        if rules.is_loop(facts, raw):
            await self._keep(due, ForwardError.LOOP)
            return
        message = await self._composed(due, facts, raw)
        try:
            accepted = await self._mail.acceptor.accept(message)
        except Refusal as refusal:
            if not rules.is_temporary(refusal):
                await self._keep(due, refusal.kind.value)
            return
        await self._accepted(due, facts, ids.parse_id(ids.Kind.MESSAGE, accepted.id))

    async def _composed(self, due: DueForward, facts: ForwardFacts, raw: bytes) -> Prepared:
        key = await self._keys.get((due.account_id, facts.domain))

        def compose() -> Prepared:
            return rules.prepared(
                due.account_id, due.message_id, facts, raw, to=due.forward_to, once=due.key,
                mail_host=self._mail_host, key=key, at=clock.now(),
            )  # fmt: skip

        return compose() if len(raw) <= LARGE_BYTES else await asyncio.to_thread(compose)

    async def _load_key(self, place: tuple[UUID, str]) -> SigningKey | None:
        """Return the RSA key of the receiving domain, the platform's for a managed one; None without any."""
        account, domain = place
        if managed_label(domain, self._mail_host) is not None:
            platform = await platform_account.read(self._pool, clock.now())
            if platform.account_id is None:
                return None
            account = platform.account_id
            domain = parse_mailbox(platform_account.sender_of(self._settings, platform)).address.rpartition("@")[2]
        keys = await domains.signing_keys(self._pool, account, domain, pepper=self._settings.pepper)
        return next((one for one in keys if one.algorithm == "rsa-sha256"), None)  # all that RFC 8617 verifiers need

    # -- afterwards ----------------------------------------------------------------------------------

    async def _accepted(self, due: DueForward, facts: ForwardFacts, sent: UUID) -> None:
        """Name the sent message on the received one, with an event, and watch its delivery."""
        detail = self._detail(due, facts.address) | {"message_id": ids.format_id(ids.Kind.MESSAGE, sent)}
        async with self._pool.acquire() as connection, connection.transaction():
            locked = await heads.lock(connection, [due.account_id])
            if not await _WATCH.records(connection, due.message_id, due.key, sent, rules.watch_after(0)):
                return
            if await messages.mark_forwarded(connection, due.account_id, due.message_id, sent):
                kind = AccountEvent.INBOUND_MESSAGE_FORWARDED
                entry = log.Entry(due.account_id, kind, log.detail_text(detail), clock.now())
                await append_locked(connection, locked, [entry])

    async def _watch(self, due: DueForward, sent: UUID) -> None:
        """End the watch if the sent message is settled; one that was not delivered brings its original back."""
        found = await _SENT_STATUS.records(self._pool, due.account_id, sent)
        status = Status(found[0]["status"]) if found else Status.DELIVERED
        if status in {Status.DELIVERED, Status.COMPLAINED}:
            await _DROP.execute(self._pool, due.message_id, due.key)
        elif status in SETTLED:
            await self._keep(due, status.value)
        else:
            await _LOOK_LATER.execute(self._pool, due.message_id, due.key, rules.watch_after(due.attempts))

    async def _keep(self, due: DueForward, reason: str) -> None:
        """Show the message in the mailbox, with an event that says why, and end its forwarding."""
        async with self._pool.acquire() as connection, connection.transaction():
            locked = await heads.lock(connection, [due.account_id])
            if not await _DROP.records(connection, due.message_id, due.key):
                return
            facts = await _FACTS.first(connection, due.account_id, due.message_id)
            if facts is None:
                return
            await messages.keep_unforwarded(connection, due.account_id, due.message_id, str(reason))
            detail = self._detail(due, facts.address) | {
                "reason": str(reason),
                "message_id": None if due.sent_as is None else ids.format_id(ids.Kind.MESSAGE, due.sent_as),
            }
            kind = AccountEvent.INBOUND_MESSAGE_FORWARD_FAILED
            entry = log.Entry(due.account_id, kind, log.detail_text(detail), clock.now())
            await append_locked(connection, locked, [entry])

    @staticmethod
    def _detail(due: DueForward, address: str) -> dict[str, object]:
        return {"id": due.public_id, "address": address, "forward_to": due.forward_to}
