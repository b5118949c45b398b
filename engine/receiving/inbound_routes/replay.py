"""Send a received message along its route again, as the route is now: the same event, and so the same delivery id."""

from collections.abc import Collection
from uuid import UUID

import asyncpg
import orjson
from msgspec import Struct

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.ledger import heads, log
from engine.ledger.events import append_locked
from engine.receiving.inbound_messages import rules, store
from engine.receiving.inbound_routes import store as routes
from engine.receiving.inbound_routes.types import RouteAction, RouteDecision
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "replay.sql")
_QUEUE_AGAIN = _SQL.command("queue_again")
_FORWARD_AGAIN = _SQL.command("forward_again")
_REMEMBER_INCLUDE = _SQL.command("remember_include")


class ReplayedMessage(Struct, frozen=True):
    """The places to which a received message was sent again, and its delivery id."""

    event_id: UUID
    decision: RouteDecision


async def replay(
    pool: asyncpg.Pool,
    account: UUID,
    message: UUID,
    *,
    domains: Collection[str] | None = None,
    actor: str | None = None,
    scanner_required: bool = False,
) -> ReplayedMessage:
    """Queue the posts, or the forwarding, that the present route of the message's address asks for.

    Raises the 404 for an unknown message, the 409 if mail to the address now goes to the mailbox alone, the 422 for a
    message with a virus, or an attachment that was not scanned where that is required, that would be forwarded.
    """
    async with pool.acquire() as connection, connection.transaction():
        locked = await heads.lock(connection, [account])
        row = await store.read(connection, account, message, domains=domains)
        if row is None or account not in locked:
            raise not_found(rules.WHAT)
        if row.is_erased:
            raise Refusal(
                ErrorType.INVALID_STATE,
                "The content was deleted once the message was posted or forwarded, so it can't be replayed.",
                state="erased",
            )
        route = (await routes.routes_of(connection, [row.address_id])).get(row.address_id)
        decision = None if route is None else route.decision
        if decision is None or decision.action is RouteAction.MAILBOX or row.event_id is None or row.event_seq is None:
            raise _nowhere(row.address)
        if decision.forward_to is not None:
            files = rules.files_of(row.attachments)
            rules.check_forwardable(files, row.warnings, scanner_required=scanner_required)
        await _queue(connection, account, message, row.event_id, row.event_seq, decision)
        detail = _detail(message, row.address, decision) | ({} if actor is None else {"actor": actor})
        entry = log.Entry(account, AccountEvent.INBOUND_MESSAGE_REPLAYED, log.detail_text(detail), clock.now())
        await append_locked(connection, locked, [entry])
    return ReplayedMessage(row.event_id, decision)


async def _queue(
    connection: Conn, account: UUID, message: UUID, event: UUID, seq: int, decision: RouteDecision
) -> None:
    if decision.forward_to is not None:
        await _FORWARD_AGAIN.execute(connection, account, message, decision.forward_to)
        return
    await _REMEMBER_INCLUDE.execute(connection, account, message, orjson.dumps(decision.include).decode())
    await _QUEUE_AGAIN.execute(connection, account, event, seq, sorted(decision.webhook_ids))


def _detail(message: UUID, address: str, decision: RouteDecision) -> dict[str, object]:
    return {
        "id": ids.format_id(ids.Kind.RECEIVED, message),
        "address": address,
        "action": decision.action.value,
        "webhook_ids": [ids.format_id(ids.Kind.WEBHOOK, one) for one in decision.webhook_ids],
        "forward_to": decision.forward_to,
    }


def _nowhere(address: str) -> Refusal:
    return Refusal(
        ErrorType.INVALID_STATE,
        f"Mail to {address} only goes to the mailbox. Add a route to an active webhook or a forwarding address, "
        "then replay the message.",
        state="mailbox",
    )
