"""Ask for approval of a send, approve it, decline it: each with its event in the account log."""

from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from engine.base import ids
from engine.base.errors import ErrorType, Refusal, existing, not_found
from engine.base.events import AccountEvent
from engine.base.secrets import Pepper, Unsealable, derived, seal, unseal
from engine.ledger import heads
from engine.ledger.events import record_event
from engine.sending.accept import Acceptor
from engine.sending.agent_sends import rules, store
from engine.sending.agent_sends.types import MAX_PENDING, TO_DECIDE, AgentSendRow, NewAgentSend
from engine.sending.emails.types import Accepted, SendRequest
from engine.sending.preparation import Origin
from engine.store.database_clock import new_time
from engine.store.queries import Conn

WHAT = "agent send"
_EMAIL = msgspec.json.Decoder(SendRequest)


async def ask(pool: asyncpg.Pool, account: UUID, new: NewAgentSend, pepper: Pepper, at: datetime) -> AgentSendRow:
    """Store a send until a person decides, and return it; the same one is stored once while it is pending.

    Raises the 409 if MAX_PENDING sends of the account wait already.
    """
    async with pool.acquire() as connection, connection.transaction():
        if not await heads.lock(connection, [account]):
            raise not_found("account")
        same = await store.SAME.first(connection, account, new.key_id, new.digest, at)
        if same is not None:
            return same
        waiting = (await store.COUNT_PENDING.records(connection, account, at))[0]["pending"]
        if waiting >= MAX_PENDING:
            raise Refusal(
                ErrorType.CONFLICT, f"{MAX_PENDING} sends already wait for approval. Ask a person to decide on them."
            )
        created = await new_time(connection)
        send = ids.uuid7_at(created)
        sealed = seal(derived(pepper, rules.SEALING), new.email, send.bytes)
        (row,) = await store.INSERT.fetch(
            connection, send, account, new.key_id, new.agent, new.digest, new.sender, new.subject, new.recipients,
            sealed, created, created + TO_DECIDE,
        )  # fmt: skip
        await _record(connection, account, AccountEvent.AGENT_SEND_REQUESTED, row, _key(row))
    return row


async def approve(
    pool: asyncpg.Pool, acceptor: Acceptor, account: UUID, send: UUID, user: UUID, pepper: Pepper, at: datetime
) -> AgentSendRow:
    """Send an email that waits for approval; return it with its message.

    A crash between the approval and the send leaves it approved: approving it again sends it, once. A refusal of the
    send lets it wait again, unless it may have gone out: no answer of the database, or an approval at the same time.
    """
    row = await store.CLAIM.first(pool, account, send, user, at) or await _undecidable(pool, account, send, at)
    try:
        accepted = await _accepted(pool, acceptor, account, row, pepper)
    except Refusal as refusal:
        if refusal.kind is not ErrorType.UNAVAILABLE:
            await store.RELEASE.execute(pool, account, send, user, at)
        raise
    message = ids.parse_id(ids.Kind.MESSAGE, accepted.id)
    async with pool.acquire() as connection, connection.transaction():
        finished = await store.FINISH.first(connection, account, send, message, user, at)
        if finished is not None:
            actor = ids.format_id(ids.Kind.USER, finished.decided_by or user)
            await _record(connection, account, AccountEvent.AGENT_SEND_APPROVED, finished, actor)
    return finished or existing(await store.READ.first(pool, account, send, None), WHAT)


async def decline(pool: asyncpg.Pool, account: UUID, send: UUID, user: UUID, at: datetime) -> AgentSendRow:
    """Decline a pending send; its email is deleted."""
    async with pool.acquire() as connection, connection.transaction():
        row = await store.DECLINE.first(connection, account, send, user, at)
        if row is not None:
            await _record(
                connection, account, AccountEvent.AGENT_SEND_DECLINED, row, ids.format_id(ids.Kind.USER, user)
            )
    return row or await _undecidable(pool, account, send, at)


def email_of(row: AgentSendRow, pepper: Pepper) -> SendRequest | None:
    """Return the email of a send; None if it was deleted, or encrypted under a pepper that is gone."""
    if row.sealed_email is None:
        return None
    try:
        return _EMAIL.decode(unseal(derived(pepper, rules.SEALING), row.sealed_email, row.id.bytes))
    except Unsealable:
        return None


async def _undecidable(pool: asyncpg.Pool, account: UUID, send: UUID, at: datetime) -> AgentSendRow:
    """Raise the 404 for an unknown send, and the 409 for one that is decided or expired."""
    row = existing(await store.READ.first(pool, account, send, None), WHAT)
    state = rules.state_of(row, at)
    raise Refusal(ErrorType.INVALID_STATE, f"This send is {state}; only a pending one can be decided.", state=state)


async def refusal_of_key(pool: asyncpg.Pool, account: UUID, row: AgentSendRow) -> Refusal | None:
    """Return the refusal of a send whose key was revoked since: what it asked for is not to be trusted any more."""
    if not await store.REVOKED.records(pool, account, row.key_id):
        return None
    return Refusal(ErrorType.INVALID_STATE, "The API key that asked was revoked. Decline this send.", state=row.state)


async def _accepted(
    pool: asyncpg.Pool, acceptor: Acceptor, account: UUID, row: AgentSendRow, pepper: Pepper
) -> Accepted:
    refusal = await refusal_of_key(pool, account, row)
    if refusal is not None:
        raise refusal
    email = email_of(row, pepper)
    if email is None:
        raise Refusal(
            ErrorType.INVALID_STATE, "The email can't be decrypted any more. Let the agent ask again.", state=row.state
        )
    keyed = msgspec.structs.replace(email, idempotency_key=rules.key_of_approval(row.id))
    # The restrictions of the key were checked when it asked; the person decides on the rest.
    return await acceptor.accept(await acceptor.preparer.check(keyed, Origin(account, "api")))


async def _record(connection: Conn, account: UUID, kind: AccountEvent, row: AgentSendRow, actor: str) -> None:
    """Record the event without addresses: the log outlives an erasure."""
    detail: dict[str, object] = {
        "id": ids.format_id(ids.Kind.AGENT_SEND, row.id), "key_id": _key(row), "recipients": len(row.recipients),
    }  # fmt: skip
    if row.message_id is not None:
        detail["message_id"] = ids.format_id(ids.Kind.MESSAGE, row.message_id)
    await record_event(connection, account, kind, detail, actor=actor)


def _key(row: AgentSendRow) -> str:
    return ids.format_id(ids.Kind.API_KEY, row.key_id)
