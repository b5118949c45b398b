"""Accept a message that its client composed: read it, in a thread if it is large, and hand it to acceptance.

SMTP submission and `POST /v1/emails/raw` call this.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from engine.mail.address import Mailbox
from engine.mail.submitted import with_crlf
from engine.sending.accept import Acceptor
from engine.sending.admission import Decision
from engine.sending.emails import submitted
from engine.sending.emails.submitted import Submitted
from engine.sending.emails.types import Accepted, Prepared, SendRequest
from engine.sending.preparation import LARGE_REQUEST_BYTES, Origin


async def read_message(
    octets: bytes, recipients: Sequence[Mailbox] | None, *, smtputf8: bool, host: str
) -> Submitted | SendRequest:
    """Read a message of SMTP submission and its options, as `submitted.read` does."""
    return await _run(octets, partial(submitted.read, octets, recipients, smtputf8=smtputf8, host=host))


async def read_file(
    octets: bytes, recipients: Sequence[Mailbox] | None, *, smtputf8: bool, host: str, protocol: str
) -> Submitted | SendRequest:
    """Read a message as `read_message` does; all its lines may end in LF, as programs write files."""

    def work() -> Submitted | SendRequest:
        return submitted.read(with_crlf(octets), recipients, smtputf8=smtputf8, host=host, protocol=protocol)

    return await _run(octets, work)


async def _run(octets: bytes, work: Callable[[], Submitted | SendRequest]) -> Submitted | SendRequest:
    return await asyncio.to_thread(work) if len(octets) > LARGE_REQUEST_BYTES else work()


async def accept_message(acceptor: Acceptor, message: Submitted | SendRequest, origin: Origin) -> Accepted:
    """Accept a message that was read; return after its commit."""
    if isinstance(message, SendRequest):
        return await acceptor.accept(message, origin)
    return await acceptor.accept_submitted(message, origin)


async def foresee_message(
    acceptor: Acceptor, message: Submitted | SendRequest, origin: Origin
) -> tuple[Decision, Prepared | None]:
    """Return the decision that `accept_message` would make, with the composed message; store and send nothing."""
    if isinstance(message, SendRequest):
        (found,) = await acceptor.foresee([message], origin)
        return found
    return await acceptor.foresee_submitted(message, origin)
