"""Test an application against the real server: an account for each test, the mail that left it, and a clock.

    def test_sign_up(twin):
        sign_up("ann@example.com", client=twin.client, sender=f"hello@{twin.domain}")
        assert "Welcome" in twin.wait_for_mail("ann@example.com").subject

The fixtures `twin` and `twin_service` come with the package if pytest is installed (`waybill_client.pytest_plugin`).
"""

import smtplib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import make_msgid
from typing import Any, Final

import httpx

from .root import Waybill
from .testing_faults import FaultyTransport
from .testing_mail import TwinMail, mail_of
from .testing_service import TwinService, running_service
from .testing_webhooks import Post, WebhookReceiver
from .values import OMIT

__all__ = ["Post", "Twin", "TwinMail", "TwinService", "WebhookReceiver", "open_twin", "running_service"]

WAIT_S: Final = 10.0
_MOVE_S: Final = 300


class Twin:
    """An account of its own on a service that runs here, with what a test needs around it.

    `client` is a client with the account's key; `domain` a verified domain to send from. Clock and service are shared
    with the other tests of this process, accounts, messages and events are not.
    """

    def __init__(self, service: TwinService, opened: dict[str, Any]) -> None:
        self.base_url = service.base_url
        self.account_id: str = opened["accountId"]
        self.api_key: str = opened["apiKey"]
        self.domain: str = opened["domain"]
        self._faults = FaultyTransport()
        self._http = httpx.Client(transport=self._faults, timeout=_MOVE_S + 10)
        self.client = Waybill(api_key=self.api_key, base_url=self.base_url, http_client=self._http)
        self._mx_port = service.mx_port
        self._webhooks: WebhookReceiver | None = None

    # -- mail that was sent ---------------------------------------------------------------------------------

    def wait_for_mail(self, to: str, *, subject: str | None = None, timeout: float = WAIT_S) -> TwinMail:
        """Return the newest mail to an address, if given with this text in its subject, as soon as it has arrived.

        Raises AssertionError after `timeout` seconds, with what has happened to the messages of this account.
        """
        ends = time.monotonic() + timeout
        after: str | None = None
        while (left := ends - time.monotonic()) > 0:
            for row in self._arrived(to, after=after, wait=min(30, max(1, int(left)))):
                if subject is None or subject in (row["subject"] or ""):
                    return self._read(row["id"])
                after = after or row["id"]
        about = "" if subject is None else f" with {subject!r} in its subject"
        raise AssertionError(f"no mail to {to}{about} arrived within {timeout:g} s. {self._story()}")

    def mails(self, to: str | None = None) -> list[TwinMail]:
        """Return the mails that have arrived, oldest first."""
        return [self._read(row["id"]) for row in reversed(self._arrived(to))]

    def no_mail(self, to: str) -> None:
        """Check that no mail to an address has arrived, nor will before the clock moves; raises AssertionError."""
        self.settle()
        rows = self._arrived(to)
        assert not rows, f"{len(rows)} mails to {to} arrived: {[row['subject'] for row in rows]}"

    def events(self, kind: str | None = None) -> list[Any]:
        """Return the events of this account, oldest first, all or of one type."""
        found: list[Any] = []
        self.client.events.catch_up(0, found.append)
        return [event for event in found if kind is None or event["type"] == kind]

    # -- the clock ------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until no delivery, post or job is due."""
        self.client.local_clock.settle(timeout_s=_MOVE_S)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass; all that falls due happens in its order: retries, schedules, posts, expiries."""
        by = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        self.client.local_clock.move(advance=f"{round(by.total_seconds())}s", timeout_s=_MOVE_S)

    def at(self, when: datetime) -> None:
        """Let time pass until a moment, which has a time zone."""
        self.client.local_clock.move(to=when.isoformat(), timeout_s=_MOVE_S)

    def now(self) -> datetime:
        """Return the time of the service."""
        return datetime.fromisoformat(self.client.local_clock.get()["serviceTime"])

    # -- mail from outside ----------------------------------------------------------------------------------

    def inject(
        self,
        raw: bytes | None = None,
        *,
        to: str,
        from_: str = "ann@example.net",
        subject: str = "Hello",
        text: str = "Hello.",
        reply_to: TwinMail | None = None,
        automatic: bool = False,
    ) -> str:
        """Send a mail to the service as another server does; return its Message-ID.

        `raw` is the whole mail, else it is written from the rest. `reply_to` makes it an answer to a mail, `automatic`
        one of a program, such as a notice of absence.
        """
        message_id = make_msgid(domain=from_.rpartition("@")[2])
        content = raw or _written(from_, to, subject, text, message_id, reply_to, automatic=automatic)
        with smtplib.SMTP("127.0.0.1", self._mx_port, timeout=30) as server:
            server.sendmail(from_, [to], content)
        return message_id

    def unsubscribe(self, mail: TwinMail) -> None:
        """Unsubscribe with one click, as the button of a mailbox provider does (RFC 8058)."""
        urls = [one.strip(" <>") for one in (mail.header("List-Unsubscribe") or "").split(",")]
        found = [url for url in urls if url.startswith("http")]
        assert found, "the mail has no List-Unsubscribe with a URL"
        if found[0].startswith("https:"):  # the header may not stand beside http, as here: RFC 8058 3.1
            assert mail.header("List-Unsubscribe-Post"), "the mail has no List-Unsubscribe-Post"
        httpx.post(found[0], data={"List-Unsubscribe": "One-Click"}, timeout=30).raise_for_status()

    # -- webhooks and faults --------------------------------------------------------------------------------

    @property
    def webhooks(self) -> WebhookReceiver:
        """An endpoint that receives all events of this account; it exists from its first use on."""
        if self._webhooks is None:
            self._webhooks = WebhookReceiver()
            made = self.client.webhooks.create(url=self._webhooks.url)
            self._webhooks.secret = made["signingSecret"] or ""
        return self._webhooks

    def fail_next(self, path: str = "/v1/emails", *, after_commit: bool = False) -> None:
        """Let the next request of `client` to a path fail: with a 503, or `after_commit` by losing the response.

        The client tries again, and its idempotency key keeps the message from being sent twice.
        """
        self._faults.fail_next(path, after_commit=after_commit)

    def close(self) -> None:
        """Close connections and the endpoint; the account stays, for looking at it."""
        if self._webhooks is not None:
            self._webhooks.close()
        self._http.close()

    def _arrived(self, to: str | None, *, after: str | None = None, wait: int = 0) -> list[Any]:
        found = self.client.local_sink.list(
            limit=100, recipient=OMIT if to is None else to, after=OMIT if after is None else after, wait=wait
        )
        return list(found["data"])

    def _read(self, mail: str) -> TwinMail:
        with self.client.local_sink.raw(mail) as download:
            raw = download.read()
        return mail_of(dict(self.client.local_sink.get(mail)), raw)

    def _story(self) -> str:
        rows = self.client.messages.list(limit=10)["data"]
        told = [f"{row['id']} to {', '.join(row['to'])} is {row['status']}" for row in rows]
        return f"The newest messages: {'; '.join(told)}." if told else "This account has sent nothing."


def _written(
    from_: str, to: str, subject: str, text: str, message_id: str, reply_to: TwinMail | None, *, automatic: bool
) -> bytes:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Message-ID"] = from_, to, message_id
    mail["Subject"] = subject if reply_to is None else f"Re: {reply_to.subject}"
    if reply_to is not None and (answered := reply_to.header("Message-ID")):
        mail["In-Reply-To"] = mail["References"] = answered
    if automatic:
        mail["Auto-Submitted"] = "auto-replied"
    mail.set_content(text)
    return mail.as_bytes(policy=SMTP)


@contextmanager
def open_twin(service: TwinService, name: str = "Test") -> Iterator[Twin]:
    """Open an account on a service for one test."""
    with Waybill(api_key=service.api_key, base_url=service.base_url) as first:
        opened = first.local_accounts.create(name=name[:80])
    twin = Twin(service, dict(opened))
    try:
        yield twin
    finally:
        twin.close()
