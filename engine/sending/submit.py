"""Read a message that its client composed, for SMTP submission and `POST /v1/emails/raw`."""

from collections.abc import Sequence

from engine.mail.address import Mailbox
from engine.mail.submitted import with_crlf
from engine.sending.emails import submitted
from engine.sending.emails.submitted import Submitted
from engine.sending.emails.types import SendRequest
from engine.sending.preparation import run_sized


async def read_message(
    octets: bytes, recipients: Sequence[Mailbox] | None, *, smtputf8: bool, host: str, protocol: str | None = None
) -> Submitted | SendRequest:
    """Read a message and its options as `submitted.read` does, in a thread if it is large.

    `protocol`: None for SMTP submission. By another one all lines may end in LF, as programs write files.
    """

    def work() -> Submitted | SendRequest:
        lines = octets if protocol is None else with_crlf(octets)
        return submitted.read(lines, recipients, smtputf8=smtputf8, host=host, protocol=protocol)

    return await run_sized(len(octets), work)
