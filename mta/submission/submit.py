"""Submit a message that came over SMTP: read it, accept it, and return the reply to its final dot.

The reply follows the commit: a 250 means that the message is stored and queued, as a 202 of the API does.
"""

from collections.abc import Sequence
from typing import Final

import structlog
from msgspec import Struct

from engine.base.errors import ErrorType, Refusal, invalid, unavailable
from engine.mail.address import Mailbox
from engine.mail.submitted import Unsendable
from engine.people.api_keys.key_auth import Caller
from engine.sending.accept import Acceptor
from engine.sending.emails.types import Accepted
from engine.sending.preparation import Origin, read_message
from engine.store import metrics
from engine.store.database_errors import DatabaseUnavailable
from engine.store.last_writes import LastWrites
from mta.submission import counters, replies

SOURCE: Final = "smtp"

_log = structlog.get_logger("relay")


class SubmittedEnvelope(Struct, frozen=True):
    """The sender, recipients and parameters of a message, from the SMTP commands.

    `overflowed`: the client named more recipients than one message can have, and sends to the others in another
    transaction.
    """

    recipients: Sequence[Mailbox]
    smtputf8: bool
    overflowed: bool


class Submitter:
    """The acceptance of submitted messages, for all sessions of one process."""

    def __init__(self, acceptor: Acceptor, host: str, writes: LastWrites | None) -> None:
        self._acceptor = acceptor
        self._host = host
        self._writes = writes  # only where the API reads from replicas

    async def submit(self, caller: Caller, envelope: SubmittedEnvelope, content: bytes) -> str:
        """Accept the message; return the reply to its final dot."""
        try:
            accept = self._accept(caller, envelope, content)
            accepted = await (accept if self._writes is None else self._writes.during(caller.credential, accept))
        except Unsendable as error:
            reply = replies.reply_line(replies.BY_FLAW[error.flaw], ErrorType.INVALID_REQUEST, str(error))
            return _refused(ErrorType.INVALID_REQUEST, caller, reply)
        except Refusal as refusal:
            return _refused(refusal.kind, caller, replies.refusal_reply(refusal))
        except (DatabaseUnavailable, OSError) as error:
            _log.warning("message not accepted: database unavailable", error=repr(error))
            return _refused(ErrorType.UNAVAILABLE, caller, replies.refusal_reply(unavailable()))
        metrics.TALLY.add(counters.MESSAGES, accepted.status)
        if accepted.status == "duplicate":
            differs = ", which was another message" if accepted.body_differs else ""
            return f"250 2.0.0 duplicate of {accepted.id}{differs}"
        return f"250 2.0.0 {accepted.status} as {accepted.id}"

    async def _accept(self, caller: Caller, envelope: SubmittedEnvelope, content: bytes) -> Accepted:
        read = await read_message(content, envelope.recipients, smtputf8=envelope.smtputf8, host=self._host)
        if envelope.overflowed and read.idempotency_key is not None:
            # The other recipients would arrive with the same key, and count as a replay of this message.
            raise invalid(
                "X-Waybill-Idempotency-Key",
                "A message with X-Waybill-Idempotency-Key can't be split into several transactions: name all its "
                "recipients in one, or leave out the key.",
            )
        origin = Origin(caller.account_id, SOURCE, caller.reach)
        return await self._acceptor.accept(await self._acceptor.preparer.check(read, origin))


def _refused(kind: ErrorType, caller: Caller, reply: str) -> str:
    metrics.TALLY.add(counters.MESSAGES, kind.value)
    metrics.TALLY.add(metrics.REFUSED, kind.value)
    _log.info("message refused", key=caller.key_id, type=kind.value)
    return reply
