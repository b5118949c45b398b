"""Report mails in tests: made, stored and read back."""

from datetime import datetime
from uuid import UUID

import asyncpg

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.mail import return_path
from engine.receiving.reports import store
from engine.receiving.reports.types import Reporter, ReportMail, ReportPurpose
from tests.harness.accounts import TestAccount


def mail(
    raw: bytes,
    *,
    local: str,
    purpose: ReportPurpose = ReportPurpose.BOUNCE,
    host: str = "bounces.mail.test",
    at: datetime | None = None,
    is_genuine: bool = True,
    reporter: Reporter | None = None,
) -> ReportMail:
    """A report mail as the MX hands it over."""
    return ReportMail(
        purpose=purpose,
        local=local,
        host=host,
        sender="",
        remote_ip="192.0.2.1",
        received_at=at or clock.now(),
        raw=raw,
        digest=store.digest(raw, purpose),
        is_genuine=is_genuine,
        reporter=reporter,
    )


def genuine_token(settings: Settings, message: UUID | None = None) -> str:
    """The local part of a return path that the service could have given out."""
    key = return_path.key_of(settings.pepper)
    return return_path.return_path(key, message or ids.uuid7(), 0, "x").partition("@")[0]


async def add(pool: asyncpg.Pool, *mails: ReportMail) -> None:
    """Store report mails as the MX does."""
    async with pool.acquire() as connection, connection.transaction():
        await store.add(connection, mails)


async def stored(pool: asyncpg.Pool, local: str) -> list[asyncpg.Record]:
    """The stored mails to a local part, oldest first."""
    rows: list[asyncpg.Record] = await pool.fetch("SELECT * FROM report_mails WHERE local = $1 ORDER BY id", local)
    return rows


def dsn(*recipients: tuple[str, str, str, str], reporter: str = "mx.people.test") -> bytes:
    """A delivery status notification (RFC 3464) of (address, action, status, diagnostic) for each recipient."""
    fields = "".join(
        f"\r\nFinal-Recipient: rfc822; {address}\r\nAction: {action}\r\nStatus: {status}\r\n"
        + (f"Diagnostic-Code: smtp; {said}\r\n" if said else "")
        for address, action, status, said in recipients
    )
    return (
        f"From: MAILER-DAEMON@{reporter}\r\nSubject: Undelivered Mail Returned to Sender\r\n"
        "MIME-Version: 1.0\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n"
        "--b\r\nContent-Type: text/plain\r\n\r\nThis is the mail system.\r\n\r\n"
        f"--b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; {reporter}\r\n{fields}\r\n--b--\r\n"
    ).encode()


NOBODY = "550 5.1.1 <ann@people.test>: Recipient address rejected: User unknown"


def failed(address: str, said: str = NOBODY, status: str = "5.1.1") -> bytes:
    """A notification that one recipient failed for good."""
    return dsn((address, "failed", status, said))


def message_id_field(account: TestAccount, message: UUID) -> str:
    """The Message-ID field of a message."""
    return f"Message-ID: <{ids.encode(message)}@{account.domain}>\r\n"


def arf(kind: str = "abuse", *, author: str = "fbl@provider.test", headers: str = "", fields: str = "") -> bytes:
    """A complaint (RFC 5965); `headers` are those of the reported message, `fields` those of the report, with CRLF."""
    return (
        f"From: {author}\r\nTo: fbl@mail.test\r\nSubject: FW: complaint\r\nMIME-Version: 1.0\r\n"
        "Content-Type: multipart/report; report-type=feedback-report; boundary=b\r\n\r\n"
        "--b\r\nContent-Type: text/plain\r\n\r\nThis is a complaint.\r\n\r\n"
        f"--b\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: {kind}\r\nUser-Agent: Provider/1.0\r\n"
        f"Version: 1\r\nSource-IP: 192.0.2.7\r\n{fields}\r\n"
        f"--b\r\nContent-Type: message/rfc822\r\n\r\n"
        f"From: shop@example.test\r\nSubject: Hello\r\n{headers}\r\nHello!\r\n"
        "--b--\r\n"
    ).encode()
