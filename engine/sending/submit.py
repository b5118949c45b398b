"""Read a message that its client composed, in a thread if it is large; the result goes to acceptance.

SMTP submission and `POST /v1/emails/raw` call this.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from engine.mail.address import Mailbox
from engine.mail.submitted import with_crlf
from engine.sending.emails import submitted
from engine.sending.emails.submitted import Submitted
from engine.sending.emails.types import SendRequest
from engine.sending.preparation import LARGE_REQUEST_BYTES


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
