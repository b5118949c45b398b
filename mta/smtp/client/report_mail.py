"""Send one report to a mail server of this service, as the local sink and the simulator do."""

from typing import Final

from engine.mail.replies import Reply
from mta.smtp.client.connection import ConnectFailed, Envelope, SmtpConnection, SmtpTimeouts, TlsMode

TIMEOUTS: Final = SmtpTimeouts(connect_s=5.0, reply_s=30.0, quit_s=1.0)


async def send_report(server: tuple[str, int], *, helo: str, recipient: str, content: bytes) -> bool:
    """Send a report from the null sender; return True if the server took it. Never raises for a server's fault."""
    try:
        connection = await SmtpConnection.open(
            server, server_name=server[0], helo=helo, tls=TlsMode.OFF, timeouts=TIMEOUTS
        )
    except ConnectFailed:
        return False
    try:
        sent = await connection.send(Envelope("", (recipient,), content, eight_bit=not content.isascii()))
    finally:
        await connection.close()
    said = sent.answers[0].outcome
    return isinstance(said, Reply) and 200 <= said.code < 300
