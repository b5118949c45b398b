"""The rows of a verification that are stored in the transaction which accepts the mail of its code.

The lock of the account's head makes parallel starts of an account come one after the other, so that limits are exact
and only one verification of a destination is pending. Locks after it: verification, then destination.
"""

from datetime import date, datetime
from uuid import UUID

import orjson
from msgspec import Struct

from engine.base import clock
from engine.base.errors import ErrorType, Refusal, not_found
from engine.codes.verifications import rules, store
from engine.codes.verifications.mail import DEFAULT_LOCALE
from engine.codes.verifications.requests import AlreadyStarted, StartRequest
from engine.codes.verifications.rules import Destination
from engine.codes.verifications.types import NewVerification, ResendRow, VerificationRow, VerificationStatus
from engine.ledger.heads import AccountHead
from engine.sending.emails.types import Prepared
from engine.store.queries import Conn


class FirstCode(Struct, frozen=True, kw_only=True):
    """A verification to be started: its row, and the digests of destination and code."""

    verification: VerificationRow
    request: StartRequest
    destination: bytes
    code: bytes

    async def check(self, connection: Conn, head: AccountHead, payer: AccountHead, at: datetime) -> None:
        """Raise the refusal of a limit, or AlreadyStarted."""
        await _check_limits(connection, head, payer, self.destination, at, key=self.request.idempotency_key)

    async def write(
        self, connection: Conn, message: Prepared, head: AccountHead, payer: AccountHead, at: datetime
    ) -> None:
        """Cancel pending verifications of the destination, insert this one, and count its code."""
        account = head.account_id
        await store.WRITE_FIRST_CODE.run(
            connection,
            store.VERIFICATION.of([self._stored(account, message)]),
            account=account,
            destination=self.destination,
            payer=payer.account_id,
            month=_month(at),
        )

    def _stored(self, account: UUID, message: Prepared) -> NewVerification:
        request, row = self.request, self.verification
        return NewVerification(
            id=row.id,
            account_id=account,
            destination=self.destination,
            code=self.code,
            attempts_left=row.attempts_left,
            code_length=row.code_length,
            message_id=message.id,
            sender=message.sender,
            stream=message.stream,
            tags=orjson.dumps(message.tags).decode(),
            metadata=orjson.dumps(message.metadata).decode(),
            locale=request.locale or DEFAULT_LOCALE,
            has_link=bool(request.link),
            idempotency_key=request.idempotency_key,
            created_at=row.created_at,
            expires_at=row.expires_at,
        )


class AnotherCode(Struct, frozen=True):
    """A further code of a verification as it was read before; `code` is its digest."""

    verification: UUID
    known: ResendRow
    code: bytes

    async def check(self, connection: Conn, head: AccountHead, payer: AccountHead, at: datetime) -> None:
        """Raise the refusal of a limit, of a finished verification, or of one that has just sent another code."""
        await _check_limits(connection, head, payer, self.known.destination, at, key=None)
        rows = await store.LOCK_FOR_RESEND.records(connection, head.account_id, self.verification)
        if not rows:
            raise not_found(rules.WHAT)
        if rows[0]["status"] != VerificationStatus.PENDING:
            raise rules.terminal(rows[0]["status"])
        if rows[0]["codes_sent"] != self.known.codes_sent:
            raise Refusal(
                ErrorType.RATE_LIMITED,
                "Another code for this verification is being sent. Wait for it before you request one more.",
                retry_after_s=1,
            )

    async def write(
        self, connection: Conn, message: Prepared, head: AccountHead, payer: AccountHead, at: datetime
    ) -> None:
        """Replace the code, and count the new one."""
        await store.WRITE_NEXT_CODE.run(
            connection,
            code=self.code,
            message=message.id,
            account=head.account_id,
            id=self.verification,
            destination=self.known.destination,
            payer=payer.account_id,
            month=_month(at),
        )


async def _check_limits(
    connection: Conn, head: AccountHead, payer: AccountHead, destination: bytes, at: datetime, *, key: str | None
) -> None:
    """Raise the refusal of a code that the destination or the plan's month has no room for, or AlreadyStarted."""
    facts = await store.START_FACTS.first(connection, head.account_id, destination, key, payer.account_id, _month(at))
    assert facts is not None
    if facts.replay is not None:
        raise AlreadyStarted(facts.replay)
    refusal = rules.refuse_send(Destination(facts.sent, facts.locked_until), facts.now)
    if refusal is not None:
        raise refusal
    limit = payer.caps.monthly_verifications
    if facts.used >= limit:
        raise rules.month_used(limit, facts.used, retry_after_s=clock.seconds_until_next_month(at))


def _month(at: datetime) -> date:
    return clock.first_of_month(at.date())
